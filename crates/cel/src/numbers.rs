//! Quantities (`1.5Gi`, `500m`) and semantic versions. Sources: `k8s.io/apimachinery/pkg/api/resource`,
//! `github.com/blang/semver/v4`, and `normalizeAndParse` in `k8s.io/apiserver/pkg/cel/library/semverlib.go`.

use std::cmp::Ordering;

/// `mantissa × 10^scale`, without trailing zeros in the mantissa.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    mantissa: i128,
    scale: i32,
    /// True if upstream does not convert it to an integer, whatever its value: it has a fraction or too many digits.
    fraction: bool,
}

/// Maximum number of digits that are exact.
const MAX_EXACT_DIGITS: usize = 36;

/// Maximum length of a quantity as text.
const MAX_QUANTITY_BYTES: usize = 64;

/// Minimum scale. Upstream keeps nine decimal places, and rounds away from zero.
const MIN_SCALE: i32 = -9;

/// Maximum value of a quantity with a binary suffix. Upstream caps larger ones.
const MAX_BINARY_QUANTITY: i128 = i64::MAX as i128;

impl Quantity {
    /// Parses a quantity. Source: `k8s.io/apimachinery/pkg/api/resource/quantity.go`, `ParseQuantity`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_QUANTITY_BYTES {
            return None;
        }
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, mut suffix) = rest.split_at(whole_len);
        let mut fraction = "";
        if let Some(behind) = suffix.strip_prefix('.') {
            let len = behind.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, suffix) = behind.split_at(len);
        }
        // As upstream, no digits are zero.
        let (binary, exponent) = suffixed(suffix)?;
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        // The first digits determine the magnitude.
        let kept = &digits[..digits.len().min(MAX_EXACT_DIGITS)];
        let mut mantissa: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        let mut scale = i32::try_from(digits.len() - kept.len()).ok()? - i32::try_from(fraction.len()).ok()?;
        match binary {
            Some(bits) => mantissa = mantissa.saturating_mul(1_i128 << bits),
            None => scale = scale.checked_add(exponent)?,
        }
        if negative {
            mantissa = -mantissa;
        }
        let mut quantity = Self::new(mantissa, scale).rounded();
        let digits = (whole.trim_start_matches('0').len().max(1) + fraction.len()) as i32;
        let many_digits = digits > 18;
        quantity.fraction = match binary {
            // Upstream keeps a product that overflows 64 bits as a decimal of any length.
            Some(bits) => !fraction.is_empty() || 14 - digits - (f64::from(bits) * 3.0 / 10.0) as i32 <= -1,
            None => many_digits || exponent < fraction.len() as i32,
        };
        if binary.is_some() && quantity.compare(&Self::new(MAX_BINARY_QUANTITY, 0)) == Ordering::Greater {
            quantity = Self { fraction: true, ..Self::new(MAX_BINARY_QUANTITY, 0) };
        }
        Some(quantity)
    }

    fn new(mantissa: i128, scale: i32) -> Self {
        let mut new = Self { mantissa, scale, fraction: false };
        if mantissa == 0 {
            new.scale = 0;
        }
        while new.mantissa != 0 && new.mantissa % 10 == 0 {
            new.mantissa /= 10;
            new.scale = new.scale.saturating_add(1);
        }
        new
    }

    fn rounded(self) -> Self {
        let surplus = MIN_SCALE.saturating_sub(self.scale);
        if surplus <= 0 || self.mantissa == 0 {
            return self;
        }
        let sign = self.mantissa.signum();
        match 10_i128.checked_pow(surplus.unsigned_abs()) {
            Some(unit) if self.mantissa % unit == 0 => Self::new(self.mantissa / unit, MIN_SCALE),
            Some(unit) => Self::new(self.mantissa / unit + sign, MIN_SCALE),
            None => Self::new(sign, MIN_SCALE),
        }
    }

    pub(super) fn whole(number: i64) -> Self {
        Self::new(number.into(), 0)
    }

    pub(super) fn sign(&self) -> i64 {
        self.mantissa.signum() as i64
    }

    /// Returns the quantity as an integer; `None` if it has a fraction or does not fit.
    pub(super) fn integer(&self) -> Option<i64> {
        let unit = 10_i128.checked_pow(u32::try_from(self.scale).ok()?)?;
        if self.fraction {
            return None;
        }
        self.mantissa.checked_mul(unit)?.try_into().ok()
    }

    pub(super) fn double(&self) -> f64 {
        let mantissa = self.mantissa as f64;
        if self.scale == 0 { mantissa } else { mantissa * 10_f64.powi(self.scale) }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let larger = match self.magnitude().cmp(&other.magnitude()) {
            Ordering::Equal => {
                // The magnitudes are equal, so few zeros are added. A mantissa that does not fit is the larger one.
                let scale = self.scale.min(other.scale);
                match (self.at(scale), other.at(scale)) {
                    (Some(a), Some(b)) => a.unsigned_abs().cmp(&b.unsigned_abs()),
                    (a, b) => a.is_none().cmp(&b.is_none()),
                }
            }
            unequal => unequal,
        };
        if self.mantissa < 0 { larger.reverse() } else { larger }
    }

    /// Returns the number of digits before the decimal point.
    fn magnitude(&self) -> i64 {
        let digits = self.mantissa.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1);
        i64::from(digits) + i64::from(self.scale)
    }

    fn at(&self, scale: i32) -> Option<i128> {
        let zeros = u32::try_from(self.scale.checked_sub(scale)?).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(zeros)?)
    }

    /// Returns the sum; `None` if it has too many digits.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let scale = self.scale.min(other.scale);
        let sum = Self::new(self.at(scale)?.checked_add(other.at(scale)?)?, scale);
        Some(Self { fraction: self.fraction || other.fraction, ..sum })
    }

    pub(super) fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&Self { mantissa: other.mantissa.checked_neg()?, ..*other })
    }
}

/// Returns the power of two, or of ten, of a suffix.
fn suffixed(suffix: &str) -> Option<(Option<u32>, i32)> {
    let decimal = |exponent| Some((None, exponent));
    let binary = |bits| Some((Some(bits), 0));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            let valid =
                !unsigned.is_empty() && unsigned.len() < 5 && unsigned.bytes().all(|byte| byte.is_ascii_digit());
            decimal(digits.parse().ok().filter(|_| valid)?)
        }
    }
}

/// A semantic version. Build metadata is not compared.
#[derive(Clone, Debug)]
pub(super) struct Semver {
    /// Major, minor, patch.
    pub(super) numbers: [u64; 3],
    /// Pre-release identifiers, separated by dots; empty if there are none.
    pre_release: Box<str>,
}

/// A pre-release identifier.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'t> {
    /// Less than any text.
    Number(u64),
    Text(&'t str),
}

impl Semver {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(before, build)| (before, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        if before.is_some_and(|before| !before.split('.').all(|part| identifier(part).is_some())) {
            return None;
        }
        Some(Self { numbers: [major, minor, number(patch)?], pre_release: before.unwrap_or_default().into() })
    }

    /// Parses a text that may begin with `v`, have leading zeros in its numbers, and lack the last numbers.
    pub(super) fn parse_normalized(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let plain = |part: &str| match part.trim_start_matches('0') {
            _ if part.len() < 2 => part.to_owned(),
            rest if rest.starts_with(|first: char| first.is_ascii_digit()) => rest.to_owned(),
            rest => format!("0{rest}"),
        };
        let mut parts: Vec<_> = text.splitn(3, '.').map(plain).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// Returns the number of bytes that a comparison may read.
    pub(super) fn len(&self) -> usize {
        self.pre_release.len()
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (false, false) => {
                    let [ours, theirs] =
                        [self, other].map(|version| version.pre_release.split('.').filter_map(identifier));
                    ours.cmp(theirs)
                }
                // A version is greater than its pre-releases.
                (ours, theirs) => ours.cmp(&theirs),
            }
        })
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_number)
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn identifier(text: &str) -> Option<Identifier<'_>> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(Identifier::Number);
    }
    is_identifier(text).then_some(Identifier::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_semver_says() {
        let order = [
            "0.9.9",
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0",
            "1.0.1",
            "10.0.0",
        ];
        let versions: Vec<_> = order.iter().map(|text| Semver::parse(text).expect(text)).collect();
        for (at, pair) in versions.windows(2).enumerate() {
            assert_eq!(pair[0].compare(&pair[1]), Ordering::Less, "{}", order[at]);
        }
        let build = Semver::parse("1.0.0+a.1").unwrap();
        assert_eq!(build.compare(&versions[7]), Ordering::Equal);
    }

    #[test]
    fn invalid_versions_are_rejected() {
        for text in
            ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0+", "1.0.0-a..b", "1.0.0-é", "1.+1.0"]
        {
            assert!(Semver::parse(text).is_none(), "{text}");
        }
        let normalized = |text| Semver::parse_normalized(text).map(|version| version.numbers);
        assert_eq!(
            [normalized("v1"), normalized("01.02"), normalized("00.1.0-a")],
            [Some([1, 0, 0]), Some([1, 2, 0]), Some([0, 1, 0])]
        );
        assert!(normalized("1-a").is_none() && normalized("1.0.a").is_none() && normalized("").is_none());
    }
}

//! Quantity: a number as Kubernetes writes amounts, `1.5Gi` or `500m`.

use std::cmp::Ordering;

/// `mantissa × 10^scale`, without zeros at the mantissa's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    mantissa: i128,
    scale: i32,
    /// Written, or too large to be kept, as a fraction: upstream makes no integer of it, whatever it is worth.
    fraction: bool,
}

/// As many digits as are counted exactly.
const MOST_DIGITS: usize = 36;

/// Longest text of one.
const LONGEST: usize = 64;

/// Upstream keeps no more than nine decimal places, and rounds away from zero.
const FINEST: i32 = -9;

/// The largest amount that upstream keeps of one that counts in powers of two.
const LARGEST: i128 = i64::MAX as i128;

impl Quantity {
    /// Source: `k8s.io/apimachinery/pkg/api/resource/quantity.go`, `ParseQuantity`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
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
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (binary, exponent) = suffixed(suffix)?;
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        // The first digits suffice for the magnitude.
        let kept = &digits[..digits.len().min(MOST_DIGITS)];
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
            // A product that overflows 64 bits is kept by upstream as a decimal of any length.
            Some(bits) => !fraction.is_empty() || 14 - digits - (f64::from(bits) * 3.0 / 10.0) as i32 <= -1,
            None => many_digits || exponent < fraction.len() as i32,
        };
        if binary.is_some() && quantity.compare(&Self::new(LARGEST, 0)) == Ordering::Greater {
            quantity = Self { fraction: true, ..Self::new(LARGEST, 0) };
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
        let surplus = FINEST.saturating_sub(self.scale);
        if surplus <= 0 || self.mantissa == 0 {
            return self;
        }
        let sign = self.mantissa.signum();
        match 10_i128.checked_pow(surplus.unsigned_abs()) {
            Some(unit) if self.mantissa % unit == 0 => Self::new(self.mantissa / unit, FINEST),
            Some(unit) => Self::new(self.mantissa / unit + sign, FINEST),
            None => Self::new(sign, FINEST),
        }
    }

    pub(super) fn whole(number: i64) -> Self {
        Self::new(number.into(), 0)
    }

    pub(super) fn sign(&self) -> i64 {
        self.mantissa.signum() as i64
    }

    /// As a whole number, where it is one that fits.
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
                // Of equal length, so that what is added are few zeros; and where they do not fit, the other is longer.
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

    /// Number of digits before the point.
    fn magnitude(&self) -> i64 {
        let digits = self.mantissa.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1);
        i64::from(digits) + i64::from(self.scale)
    }

    fn at(&self, scale: i32) -> Option<i128> {
        let zeros = u32::try_from(self.scale.checked_sub(scale)?).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(zeros)?)
    }

    /// The sum; `None` where it has too many digits.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let scale = self.scale.min(other.scale);
        let sum = Self::new(self.at(scale)?.checked_add(other.at(scale)?)?, scale);
        Some(Self { fraction: self.fraction || other.fraction, ..sum })
    }

    pub(super) fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&Self { mantissa: other.mantissa.checked_neg()?, ..*other })
    }
}

/// Power of two or of ten that a suffix stands for.
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

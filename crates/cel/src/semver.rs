//! Semver: a semantic version. Source: `github.com/blang/semver/v4`, and `normalizeAndParse` in
//! `k8s.io/apiserver/pkg/cel/library/semverlib.go`.

use std::cmp::Ordering;

/// A semantic version. Its build metadata counts for nothing.
#[derive(Clone, Debug)]
pub(super) struct Semver {
    /// Major, minor, patch.
    pub(super) numbers: [u64; 3],
    /// Identifiers of what it is before, with dots between them; empty where there are none.
    before: Box<str>,
}

/// A part of what a version is before.
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
        Some(Self { numbers: [major, minor, number(patch)?], before: before.unwrap_or_default().into() })
    }

    /// The same of a text that may begin with `v`, have zeros before its numbers and lack the last of them.
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

    /// Bytes that may have to be gone through to compare it.
    pub(super) fn len(&self) -> usize {
        self.before.len()
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.before.is_empty(), other.before.is_empty()) {
            (false, false) => {
                let [ours, theirs] = [self, other].map(|version| version.before.split('.').filter_map(identifier));
                ours.cmp(theirs)
            }
            // A version comes behind what is before it.
            (ours, theirs) => ours.cmp(&theirs),
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
    fn what_is_no_version_is_refused() {
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

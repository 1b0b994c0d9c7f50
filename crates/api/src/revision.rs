//! Revision: the name of one state of the configuration.

use std::{fmt, sync::Arc};

/// The name of one state of the configuration.
///
/// A digest is the same on every replica. A store's number is the one at which a replica first read that state: between
/// two changes of the configuration a store counts other writes, too, so replicas may show different numbers for one
/// state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// A store's own number (etcd's revision, an apiserver's resourceVersion); later states have larger ones.
    Store(u64),
    /// The beginning of the contents' SHA-256 (hex), where the source counts nothing, as files do not.
    Digest(Arc<str>),
}

/// Prefix of a digest where a number may stand as well.
const DIGEST: &str = "sha256:";
/// Hex digits of a digest that name a state.
const DIGITS: usize = 16;

impl Revision {
    /// The revision of contents that have nothing but this digest (hex).
    pub fn of_digest(digest: &str) -> Self {
        Self::Digest(digest.get(..DIGITS).unwrap_or(digest).into())
    }

    /// Reads what [`Revision`]'s `Display` writes; a digest may be cut shorter or given whole.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(digits) = text.strip_prefix(DIGEST) {
            let hex = digits.len() >= 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            return hex.then(|| Self::of_digest(&digits.to_ascii_lowercase()));
        }
        text.parse().ok().map(Self::Store)
    }

    /// Does this state hold what `wanted` is the name of? Numbers: it is as late or later. Digests: it is the same one.
    pub fn holds(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Store(own), Self::Store(wanted)) => own >= wanted,
            (Self::Digest(own), Self::Digest(wanted)) => !wanted.is_empty() && own.starts_with(&**wanted),
            _ => false,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(number) => write!(f, "{number}"),
            Self::Digest(digest) => write!(f, "{DIGEST}{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for revision in [Revision::Store(0), Revision::Store(u64::MAX), Revision::of_digest(&"0a".repeat(32))] {
            assert_eq!(Revision::parse(&revision.to_string()), Some(revision));
        }
        for wrong in ["", "-1", "sha256:", "sha256:xyz1", "abcdef0123456789"] {
            assert_eq!(Revision::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_state_holds_itself_and_what_came_before() {
        let (digest, other) = (Revision::of_digest(&"ab".repeat(32)), Revision::of_digest(&"cd".repeat(32)));
        assert!(Revision::Store(7).holds(&Revision::Store(7)) && Revision::Store(8).holds(&Revision::Store(7)));
        assert!(!Revision::Store(6).holds(&Revision::Store(7)) && !Revision::Store(6).holds(&digest));
        assert!(digest.holds(&digest) && digest.holds(&Revision::of_digest("abab")) && !digest.holds(&other));
        assert!(!digest.holds(&Revision::of_digest("")));
    }
}

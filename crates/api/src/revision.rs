//! Revision: the identifier of one state of the configuration.

use std::{fmt, sync::Arc};

/// The identifier of one state of the configuration.
///
/// A digest is the same on every replica. A store's number is the one at which a replica first read that state. A store
/// also counts other writes between two changes, so replicas may show different numbers for one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// A store's own number (etcd's revision, an apiserver's resourceVersion). Later states have larger numbers.
    Store(u64),
    /// The first digits of the contents' SHA-256 (hex), for a source without numbers, such as files.
    Digest(Arc<str>),
}

/// Prefix of a written digest, which distinguishes it from a number.
const DIGEST_PREFIX: &str = "sha256:";
/// Number of hex digits of a digest.
const DIGEST_LEN: usize = 16;

impl Revision {
    /// Creates the revision of contents with this digest (hex), from a source without numbers.
    pub fn of_digest(digest: &str) -> Self {
        Self::Digest(digest.get(..DIGEST_LEN).unwrap_or(digest).into())
    }

    /// Parses what `Display` writes. A digest may be shorter, or complete.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(digits) = text.strip_prefix(DIGEST_PREFIX) {
            let hex = digits.len() >= 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            return hex.then(|| Self::of_digest(&digits.to_ascii_lowercase()));
        }
        text.parse().ok().map(Self::Store)
    }

    /// Returns true if this state includes `wanted`. A number includes itself and smaller ones, a digest only itself.
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
            Self::Digest(digest) => write!(f, "{DIGEST_PREFIX}{digest}"),
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

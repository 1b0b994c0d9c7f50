//! Rejections of requests by one hook, by operation, cause and code.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::model::Operation;

/// Most different rejections of one hook that are told apart: the code of a denial is the hook's to choose. Denials beyond
/// are counted without it.
const MOST: usize = 64;
/// Codes above it are counted as this one. Upstream: `pkg/admission/metrics/metrics.go`.
const LARGEST_CODE: i32 = 600;

/// Cause for which a hook rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionCause {
    /// The hook said no.
    Denied,
    /// Its call failed, and its failure policy rejects; or it may not be called on a dry run.
    FailedClosed,
    /// Its patch cannot be applied.
    PatchRefused,
}

impl RejectionCause {
    /// Value of the metric's label: that of `gatepost_hook_calls_total` where it has one.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::FailedClosed => "failed_closed",
            Self::PatchRefused => "patch_refused",
        }
    }
}

/// Operation, by its index; cause, and code: `None` for any other.
type Key = (usize, RejectionCause, Option<u16>);

/// Counts of rejections. The lock is taken for rejected requests only.
#[derive(Debug, Default)]
pub(super) struct Rejections(Mutex<BTreeMap<Key, u64>>);

impl Rejections {
    /// One more.
    pub(super) fn count(&self, operation: Operation, cause: RejectionCause, code: i32) {
        let code = u16::try_from(code.clamp(0, LARGEST_CODE)).ok();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (operation.index(), cause, code);
        let is_told_apart = cause != RejectionCause::Denied || counts.len() < MOST || counts.contains_key(&key);
        let key = if is_told_apart { key } else { (operation.index(), cause, None) };
        *counts.entry(key).or_default() += 1;
    }

    /// All of them: operation, cause, code and count.
    pub(super) fn all(&self) -> Vec<(&'static str, &'static str, String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = |((operation, cause, code), count): (Key, u64)| {
            let operation = Operation::ALL.get(operation).map_or("", |operation| operation.as_str());
            (operation, cause.as_str(), code.map_or_else(|| "other".to_owned(), |code| code.to_string()), count)
        };
        counts.into_iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_told_apart_up_to_a_bound() {
        let rejections = Rejections::default();
        for code in [403, 403, 601, i32::MAX, -1] {
            rejections.count(Operation::Create, RejectionCause::Denied, code);
        }
        rejections.count(Operation::Connect, RejectionCause::FailedClosed, 500);
        let of = |operation, cause, code: &str, count| (operation, cause, code.to_owned(), count);
        assert_eq!(
            rejections.all(),
            [
                of("CREATE", "denied", "0", 1),
                of("CREATE", "denied", "403", 2),
                of("CREATE", "denied", "600", 2),
                of("CONNECT", "failed_closed", "500", 1),
            ]
        );
        for code in 0..1000 {
            rejections.count(Operation::Delete, RejectionCause::Denied, code);
        }
        rejections.count(Operation::Create, RejectionCause::Denied, 403);
        let all = rejections.all();
        assert_eq!(all.len(), MOST + 1);
        rejections.count(Operation::Delete, RejectionCause::FailedClosed, 500);
        assert!(rejections.all().contains(&of("DELETE", "failed_closed", "500", 1)), "a code of ours is always told");
        assert!(all.contains(&of("CREATE", "denied", "403", 3)), "known ones count on: {all:?}");
        let deleted: Vec<_> = all.iter().filter(|(operation, ..)| *operation == "DELETE").collect();
        assert_eq!(deleted.iter().map(|(.., count)| count).sum::<u64>(), 1000, "none is lost");
        assert!(deleted.iter().any(|(_, _, code, _)| code == "other"), "{deleted:?}");
    }
}

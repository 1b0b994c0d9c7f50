//! Counters of one hook, resolved once a generation.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::{cells::Cells, throttle::Throttle};

/// How one hook call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// The hook said yes.
    Allowed,
    /// The hook said no.
    Denied,
    /// A CallFailure that the policy ignored; the label is [`crate::model::CallFailure::kind`].
    FailedOpen(&'static str),
    /// A CallFailure that rejected the request.
    FailedClosed(&'static str),
    /// The request was decided before this hook answered.
    Cancelled,
}

impl HookOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 5] = ["allowed", "denied", "failed_open", "failed_closed", "cancelled"];
    /// Index of failed_open.
    pub(super) const OPEN: usize = 2;
    /// Index of cancelled.
    pub(super) const CANCELLED: usize = 4;
}

/// The kinds of CallFailure, as [`crate::model::CallFailure::kind`] names them; anything else is counted as the last.
pub(super) const FAILURE_KINDS: [&str; 19] = [
    "dry_run",
    "timeout",
    "connect",
    "connection",
    "grpc_status",
    "not_grpc",
    "too_large",
    "undecodable",
    "no_response",
    "wrong_uid",
    "patch_from_validating",
    "side_effects_undeclared",
    "http_status",
    "not_http",
    "unwritable",
    "other_version",
    "invalid",
    "overloaded",
    "other",
];

/// Why an audit annotation of a hook is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedAnnotation {
    /// `<hook>/<key>` is no qualified name.
    Key,
    /// The key has another value already.
    Value,
    /// The answer holds more of them than are taken.
    Limit,
}

impl DroppedAnnotation {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Key, Self::Value, Self::Limit];

    /// Value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Limit => "limit",
        }
    }
}

/// Why a hook is called once more about the same review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It answered 429 or 5xx with `Retry-After`.
    RetryAfter,
    /// Its failure policy is Retry.
    Policy,
}

impl Repeat {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::RetryAfter, Self::Policy];

    /// Value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry_after",
            Self::Policy => "policy",
        }
    }
}

/// Counters of one hook, resolved once so that the hot path takes no lock and looks nothing up.
#[derive(Debug)]
pub struct HookMetrics {
    pub(super) calls: Cells<5>,
    /// By kind; the first of each pair under Ignore, the second under Fail.
    pub(super) failures: [[AtomicU64; 2]; FAILURE_KINDS.len()],
    /// By cause.
    pub(super) annotations_dropped: [AtomicU64; DroppedAnnotation::ALL.len()],
    /// By cause.
    pub(super) repeats: [AtomicU64; Repeat::ALL.len()],
    /// Log lines about its failures.
    told: Throttle,
    /// Log lines about what is dropped from its answers.
    dropped: Throttle,
}

impl Default for HookMetrics {
    fn default() -> Self {
        Self::new(1)
    }
}

impl HookMetrics {
    /// Counters for that many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            calls: Cells::new(workers),
            failures: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
            annotations_dropped: array::from_fn(|_| AtomicU64::new(0)),
            repeats: array::from_fn(|_| AtomicU64::new(0)),
            told: Throttle::new(),
            dropped: Throttle::new(),
        }
    }

    /// One call ended.
    pub fn record(&self, worker: usize, outcome: HookOutcome, took: Duration) {
        let index = match outcome {
            HookOutcome::Allowed => 0,
            HookOutcome::Denied => 1,
            HookOutcome::FailedOpen(kind) => {
                self.failed(kind, 0);
                HookOutcome::OPEN
            }
            HookOutcome::FailedClosed(kind) => {
                self.failed(kind, 1);
                3
            }
            HookOutcome::Cancelled => HookOutcome::CANCELLED,
        };
        self.calls.record(worker, index, took);
    }

    /// Audit annotations of an answer were left out.
    pub fn annotations_dropped(&self, cause: DroppedAnnotation, count: u64) {
        self.annotations_dropped[cause as usize].fetch_add(count, Relaxed);
    }

    /// It is called once more.
    pub fn repeated(&self, cause: Repeat) {
        self.repeats[cause as usize].fetch_add(1, Relaxed);
    }

    /// May a failure of this hook be logged now? Then: how many lines were held back since the last.
    pub fn may_tell(&self) -> Option<u64> {
        self.told.pass()
    }

    /// The same of what is dropped from its answers.
    pub fn may_tell_dropped(&self) -> Option<u64> {
        self.dropped.pass()
    }

    fn failed(&self, kind: &str, policy: usize) {
        let last = FAILURE_KINDS.len() - 1;
        let index = FAILURE_KINDS.iter().position(|known| *known == kind).unwrap_or(last);
        self.failures[index][policy].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallFailure, Step, Unreachable};

    #[test]
    fn every_kind_of_call_failure_has_its_label() {
        let failures = [
            CallFailure::Timeout(Duration::ZERO),
            CallFailure::Connect(Unreachable::at(Step::Connect, "")),
            CallFailure::Connection(String::new()),
            CallFailure::Grpc { code: "", message: String::new() },
            CallFailure::NotGrpc(String::new()),
            CallFailure::TooLarge { limit: 0 },
            CallFailure::Undecodable(String::new()),
            CallFailure::NoResponse,
            CallFailure::WrongUid { expected: String::new(), got: String::new() },
            CallFailure::PatchFromValidating("patch"),
            CallFailure::SideEffectsUndeclared,
        ];
        for failure in failures {
            assert!(FAILURE_KINDS.contains(&failure.kind()), "{}", failure.kind());
        }
    }
}

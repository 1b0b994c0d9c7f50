//! Counters of one hook, resolved once a generation.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
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

/// Counters of one hook, resolved once so that the hot path takes no lock and looks nothing up.
#[derive(Debug)]
pub struct HookMetrics {
    pub(super) calls: Cells<5>,
    /// By kind; the first of each pair under Ignore, the second under Fail.
    pub(super) failures: [[AtomicU64; 2]; FAILURE_KINDS.len()],
    /// Log lines about its failures.
    told: Throttle,
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
            told: Throttle::default(),
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

    /// May a failure of this hook be logged now? Then: how many lines were held back since the last.
    pub fn may_tell(&self) -> Option<u64> {
        self.told.pass(Instant::now())
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

//! Metrics of one admission policy, looked up once per generation.

use std::time::Duration;

use gatepost_base::labels;

use super::{ShadowMetrics, hook::Cells};

labels! {
    /// Outcome of a policy for one request.
    pub enum PolicyOutcome {
        /// The policy allows the request, perhaps with a warning or an audit annotation.
        Allowed = "allowed",
        /// The policy denies the request.
        Denied = "denied",
        /// Match conditions exclude the request.
        Excluded = "excluded",
        /// The policy denies the request, which passes, as the policy does not enforce.
        WouldDeny = "would_deny",
        /// The policy could not be evaluated, and the request passes.
        FailedOpen = "failed_open",
        /// The policy could not be evaluated, and the request is rejected.
        FailedClosed = "failed_closed",
    }
}

/// Counts and durations of one policy's evaluations.
#[derive(Debug)]
pub struct PolicyMetrics {
    pub(super) evaluations: Cells<{ PolicyOutcome::LABELS.len() }>,
    /// Evaluations in shadow, which are no others.
    pub shadow: ShadowMetrics,
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        Self::new(1)
    }
}

impl PolicyMetrics {
    pub(super) fn new(workers: usize) -> Self {
        Self { evaluations: Cells::new(workers), shadow: ShadowMetrics::default() }
    }

    /// Records the end of an evaluation.
    pub fn record(&self, worker: usize, outcome: PolicyOutcome, took: Duration) {
        self.evaluations.record(worker, outcome as usize, took);
    }
}

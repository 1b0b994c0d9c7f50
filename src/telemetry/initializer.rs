//! Counters of one initializer, resolved once a generation.

use std::time::Duration;

use super::cells::Cells;

/// How one initializer's turn at one object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitializerOutcome {
    /// It has changed the object.
    Changed,
    /// It has left the object as it was.
    Unchanged,
    /// It has refused the object.
    Rejected,
    /// It did not act, or not as it should, and is passed over.
    FailedOpen,
    /// The same, and the request is rejected.
    FailedClosed,
}

impl InitializerOutcome {
    /// Labels, by index.
    pub(super) const LABELS: [&'static str; 5] = ["changed", "unchanged", "rejected", "failed_open", "failed_closed"];

    /// The label of metrics and of the audit log.
    pub fn as_str(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}

/// Counts and durations of one initializer's turns.
#[derive(Debug)]
pub struct InitializerMetrics(Cells<{ InitializerOutcome::LABELS.len() }>);

impl InitializerMetrics {
    pub(super) fn new(workers: usize) -> Self {
        Self(Cells::new(workers))
    }

    /// One turn ended.
    pub fn record(&self, worker: usize, outcome: InitializerOutcome, took: Duration) {
        self.0.record(worker, outcome as usize, took);
    }

    pub(super) fn cells(&self) -> &Cells<{ InitializerOutcome::LABELS.len() }> {
        &self.0
    }
}

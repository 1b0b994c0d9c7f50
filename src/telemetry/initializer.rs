//! Metrics of one initializer, looked up once per generation.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost_base::labels;

use super::{
    hook::Cells,
    recent::{Counts, RecentCallFailures, RecentResults},
};
use gatepost_api::FailurePolicy;

labels! {
    /// Outcome of an initializer's turn at an object.
    pub enum InitializerOutcome {
        /// The initializer changed the object.
        Changed = "changed",
        /// The initializer left the object as it was.
        Unchanged = "unchanged",
        /// The initializer rejected the object.
        Rejected = "rejected",
        /// The initializer did not act, or not as it should, and is skipped.
        FailedOpen = "failed_open",
        /// The initializer did not act, or not as it should, and the request is rejected.
        FailedClosed = "failed_closed",
        /// Too many objects are waiting already, and the request is rejected.
        Shed = "shed",
    }
}

/// Index of the first failure; those that follow are failures, too.
const FIRST_FAILURE: usize = InitializerOutcome::FailedOpen as usize;

impl InitializerOutcome {
    /// Returns true if the initializer did not act as it should.
    fn is_failure(self) -> bool {
        self as usize >= FIRST_FAILURE
    }
}

labels! {
    /// Reason why a report of a stored object was dropped; the label of `gatepost_stored_reports_dropped_total`.
    pub enum DroppedReport {
        /// The message is longer than a list and a Status can be.
        Message = "message",
        /// The list has too many names.
        Names = "names",
        /// The result has too many causes.
        Causes = "causes",
        /// A name, uid or version is longer than that of any object can be.
        Text = "text",
        /// The report is about the end of an initialization that was not reported, and for which no CREATE waits.
        Unknown = "unknown_object",
        /// No apiserver could send the report.
        Unreadable = "unreadable",
        /// The report does not fit into the memory budget.
        NoRoom = "no_room",
    }
}

/// Counts and durations of one initializer's turns.
#[derive(Debug, Default)]
pub struct InitializerMetrics {
    pub(super) turns: Cells<{ InitializerOutcome::LABELS.len() }>,
    recent: RecentResults,
}

impl InitializerMetrics {
    pub(super) fn new(workers: usize) -> Self {
        Self { turns: Cells::new(workers), ..Self::default() }
    }

    /// Records the end of a turn.
    pub fn record(&self, worker: usize, outcome: InitializerOutcome, took: Duration) {
        if outcome.is_failure() {
            self.recent.record_failure(outcome as u8, self.counts());
        } else {
            self.recent.record_success();
        }
        self.turns.record(worker, outcome as usize, took);
    }

    /// Samples the counters for [`InitializerMetrics::recent_failures`].
    pub fn sample(&self, now: Instant) {
        self.recent.sample(now, self.counts());
    }

    /// Returns the failed turns of the last minutes; `None` if there are none.
    pub fn recent_failures(&self, now: Instant) -> Option<RecentCallFailures> {
        if !self.recent.have_failed() {
            return None;
        }
        let kind = |outcome: u8| InitializerOutcome::LABELS.get(usize::from(outcome)).copied();
        self.recent.failures((now, self.counts()), kind)
    }

    fn counts(&self) -> Counts {
        let sums = self.turns.sums();
        let count = |outcomes: Range<usize>| outcomes.map(|outcome| sums.count(outcome)).sum();
        let all = InitializerOutcome::LABELS.len();
        Counts { calls: count(0..all), failed: count(FIRST_FAILURE..all), ..Counts::default() }
    }
}

/// Instances and holds of one initializer in this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Attendance {
    /// Name of the initializer.
    pub name: Arc<str>,
    /// Treatment of objects on which it does not act; the strictest one if several resources name it.
    pub failure_policy: FailurePolicy,
    /// Number of attached instances.
    pub instances: usize,
    /// Number of objects that wait for it.
    pub holds: usize,
    /// Time for which the oldest of these objects has waited.
    pub oldest: Option<Duration>,
    /// Time for which no instance has been attached; `None` while one is.
    pub unattended: Option<Duration>,
    /// False if no instance has been attached since it was configured: it is not called, and rejects nothing.
    pub proven: bool,
    /// True if no instance has ever been attached to this process.
    pub never_attached: bool,
}

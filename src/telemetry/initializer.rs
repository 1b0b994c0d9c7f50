//! Metrics of one initializer, looked up once per generation.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
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

impl InitializerOutcome {
    /// All outcomes.
    const ALL: [Self; 6] =
        [Self::Changed, Self::Unchanged, Self::Rejected, Self::FailedOpen, Self::FailedClosed, Self::Shed];

    /// Returns true if the initializer did not act as it should.
    fn is_failure(self) -> bool {
        matches!(self, Self::FailedOpen | Self::FailedClosed | Self::Shed)
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
#[derive(Debug)]
pub struct InitializerMetrics {
    turns: Cells<{ InitializerOutcome::LABELS.len() }>,
    recent: RecentResults,
}

impl InitializerMetrics {
    pub(super) fn new(workers: usize) -> Self {
        Self { turns: Cells::new(workers), recent: RecentResults::since(Instant::now()) }
    }

    /// Records the end of a turn.
    pub fn record(&self, worker: usize, outcome: InitializerOutcome, took: Duration) {
        if outcome.is_failure() {
            self.recent.failed(outcome as u8, self.counts());
        } else {
            self.recent.succeeded();
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
        let all = InitializerOutcome::ALL.iter();
        let count = |outcome: &InitializerOutcome| sums.count(*outcome as usize);
        Counts {
            calls: all.clone().map(count).sum(),
            failed: all.filter(|outcome| outcome.is_failure()).map(count).sum(),
            ..Counts::default()
        }
    }

    pub(super) fn cells(&self) -> &Cells<{ InitializerOutcome::LABELS.len() }> {
        &self.turns
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

/// Returns the attendance.
type Read = Box<dyn Fn() -> Vec<Attendance> + Send + Sync>;

/// Source of the attendance, set by the process.
#[derive(Default)]
pub(super) struct AttendanceSource(Mutex<Option<Read>>);

impl AttendanceSource {
    /// Sets the source; replaces an earlier one.
    pub(super) fn set(&self, read: impl Fn() -> Vec<Attendance> + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(read));
    }

    /// Returns the attendance, by name; empty without a source.
    pub(super) fn get(&self) -> Vec<Attendance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|read| read()).unwrap_or_default()
    }
}

impl fmt::Debug for AttendanceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attended").finish_non_exhaustive()
    }
}

//! Counters of one initializer, resolved once a generation.

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
    /// End of one initializer's turn at one object.
    pub enum InitializerOutcome {
        /// It has changed the object.
        Changed = "changed",
        /// It has left the object as it was.
        Unchanged = "unchanged",
        /// It has refused the object.
        Rejected = "rejected",
        /// It did not act, or not as it should, and is passed over.
        FailedOpen = "failed_open",
        /// The same, and the request is rejected.
        FailedClosed = "failed_closed",
        /// Too many objects waited already, and the request is rejected.
        Shed = "shed",
    }
}

impl InitializerOutcome {
    /// All of them.
    const ALL: [Self; 6] =
        [Self::Changed, Self::Unchanged, Self::Rejected, Self::FailedOpen, Self::FailedClosed, Self::Shed];

    /// Did it not act?
    fn is_failure(self) -> bool {
        matches!(self, Self::FailedOpen | Self::FailedClosed | Self::Shed)
    }
}

labels! {
    /// Reason why a report of a stored object was dropped. The bounded label of `gatepost_stored_reports_dropped_total`.
    pub enum DroppedReport {
        /// The message is longer than a list and a Status can be.
        Message = "message",
        /// Its list has more names than are read.
        Names = "names",
        /// Its result has more causes than are read.
        Causes = "causes",
        /// A name, uid or version of it is longer than any that an object can have.
        Text = "text",
        /// It says that an object is initialized or gone which was not reported as unfinished, and which no CREATE waits for.
        Unknown = "unknown_object",
        /// No apiserver could make it.
        Unreadable = "unreadable",
        /// There is no room for it in the memory budget.
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

    /// One turn ended.
    pub fn record(&self, worker: usize, outcome: InitializerOutcome, took: Duration) {
        if outcome.is_failure() {
            self.recent.failed(outcome as u8, self.counts());
        } else {
            self.recent.succeeded();
        }
        self.turns.record(worker, outcome as usize, took);
    }

    /// Remembers what the counters are now, for [`InitializerMetrics::recent_failures`].
    pub fn sample(&self, now: Instant) {
        self.recent.sample(now, self.counts());
    }

    /// Turns within the last minutes in which it did not act; `None` where it has always acted.
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

/// Instances and holds of one initializer that a process acts for.
#[derive(Clone, Debug, PartialEq)]
pub struct Attendance {
    /// Its name.
    pub name: Arc<str>,
    /// Treatment of objects on which it does not act; the stricter one where several resources name it.
    pub failure_policy: FailurePolicy,
    /// Instances that are attached.
    pub instances: usize,
    /// Objects that wait for it.
    pub holds: usize,
    /// Time that the oldest of them has waited.
    pub oldest: Option<Duration>,
    /// For how long no instance has been attached; `None` while one is.
    pub unattended: Option<Duration>,
    /// False while no instance has been attached since it was configured: it is not asked, and refuses nothing.
    pub proven: bool,
    /// No instance has ever been attached to this process.
    pub never_attached: bool,
}

/// Reads the attendance.
type Read = Box<dyn Fn() -> Vec<Attendance> + Send + Sync>;

/// Source of the attendance, set by the process.
#[derive(Default)]
pub(super) struct Attended(Mutex<Option<Read>>);

impl Attended {
    /// Sets the source; the last one set counts.
    pub(super) fn set(&self, read: impl Fn() -> Vec<Attendance> + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(read));
    }

    /// The attendance, by name; nothing where nobody knows it.
    pub(super) fn get(&self) -> Vec<Attendance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|read| read()).unwrap_or_default()
    }
}

impl fmt::Debug for Attended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attended").finish_non_exhaustive()
    }
}

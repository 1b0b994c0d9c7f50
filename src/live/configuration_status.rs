//! ConfigurationStatus: what was read and is not in force, what was in force and is no longer, and the copy on disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::rotation::RetiredEntry;
use gatepost_api::Revision;
use gatepost_config::{Problem, Relaxation};

/// The latest value of something, if there is one; read without a lock.
#[derive(Debug)]
pub struct Latest<T>(ArcSwapOption<T>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> Latest<T> {
    /// The value now.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// Sets or clears it.
    pub fn set(&self, value: Option<T>) {
        self.0.store(value.map(Arc::new));
    }
}

/// State of the configuration beside the generation in force. The rotator writes it.
#[derive(Debug, Default)]
pub struct ConfigurationStatus {
    /// What went wrong with the last read; `None` while the last one was good.
    pub failed_read: Latest<FailedRead>,
    /// The newest configuration, while it is not in force as it was written.
    pub rejected: Latest<Rejection>,
    /// Configuration that waits for a second read that lets the same go.
    pub pending_confirmation: Latest<PendingConfirmation>,
    /// State of the last good configuration on disk; `None` where none is kept.
    pub last_good: Latest<LastGoodState>,
    /// The store's revision at the last good read, plus one; 0 where there is none.
    observed: AtomicU64,
    retired: ArcSwap<Vec<RetiredEntry>>,
}

impl ConfigurationStatus {
    /// Changes what is known of the last good configuration on disk, where one is kept.
    pub fn update_last_good(&self, change: impl FnOnce(&mut LastGoodState)) {
        if let Some(state) = self.last_good.get() {
            let mut state = LastGoodState::clone(&state);
            change(&mut state);
            self.last_good.set(Some(state));
        }
    }

    /// The store's revision at the last good read: what is in force, or was rejected, is as of then. `None` before the
    /// first, and where the source counts nothing.
    pub fn observed(&self) -> Option<u64> {
        self.observed.load(Ordering::Acquire).checked_sub(1)
    }

    /// The last good read was as of that revision.
    pub fn set_observed(&self, revision: Option<u64>) {
        self.observed.store(revision.map_or(0, |revision| revision.saturating_add(1)), Ordering::Release);
    }

    /// Hooks and initializers that are Draining, and those that are Gone and not forgotten yet. To see where every one
    /// stands, load the generation first.
    pub fn retired(&self) -> Arc<Vec<RetiredEntry>> {
        self.retired.load_full()
    }

    /// These, and no others, are Draining or Gone.
    pub fn set_retired(&self, retired: Vec<RetiredEntry>) {
        self.retired.store(Arc::new(retired));
    }

    /// Hooks and initializers that are no longer in force and still hold requests.
    pub fn draining(&self) -> Vec<RetiredEntry> {
        self.retired().iter().filter(|retired| retired.drains()).cloned().collect()
    }
}

/// Failed reads since the last good one. The configuration in force stays, and grows old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRead {
    /// Failure of the last of them, with advice.
    pub error: String,
    /// Time at which the first of them ended.
    pub since: SystemTime,
    /// Number of failed reads.
    pub count: u64,
}

/// A configuration that was read and is not in force as it was written. Either nothing of it is, and an older one
/// stays; or everything but the documents that are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Time at which it was first seen.
    pub since: SystemTime,
    /// The documents that are held back; none where nothing of it is in force.
    pub quarantined: Vec<QuarantinedDocument>,
}

impl Rejection {
    /// Is nothing of it in force?
    pub fn is_whole(&self) -> bool {
        self.quarantined.is_empty()
    }

    /// Numbers of documents in force in their last good state, and of those without one.
    pub fn counts(&self) -> (usize, usize) {
        let keeping = self.quarantined.iter().filter(|document| document.keeps).count();
        (keeping, self.quarantined.len() - keeping)
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedDocument {
    /// Its file, named as the source names it.
    pub document: String,
    /// Its last good state is in force; otherwise it never had one, and is left out.
    pub keeps: bool,
    /// Since when.
    pub since: SystemTime,
    /// First problem.
    pub problem: Problem,
    /// Number of problems.
    pub problems: usize,
}

impl QuarantinedDocument {
    /// Effect on requests.
    pub fn means(&self) -> &'static str {
        match self.keeps {
            true => "its last good state stays in force",
            false => "it is left out: nothing of it is in force",
        }
    }
}

/// A configuration that was read, is sound, and enforces less than what is in force, from a source that cannot say
/// whether it was read whole: a second read that lets the same go puts it in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingConfirmation {
    /// Checks that it would no longer enforce.
    pub relaxations: Vec<Relaxation>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Since when the source has held something that waits so.
    pub since: SystemTime,
}

/// State of the last good configuration on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastGoodState {
    /// The file.
    pub path: String,
    /// Reason why it was not used at the start, where it could not be.
    pub refused: Option<String>,
    /// It, or a document of it, is in force.
    pub in_use: Option<LastGoodUse>,
    /// Time of the last write.
    pub saved: Option<SystemTime>,
    /// Failure of the last write.
    pub failure: Option<String>,
}

/// Part of the last good configuration on disk that is in force since the start, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastGoodUse {
    /// Time at which it was first put in force.
    pub written: SystemTime,
    /// Reason for its use.
    pub why: String,
}

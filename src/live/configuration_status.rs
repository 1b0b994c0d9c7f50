//! Status of the configuration besides the generation in force: failures, retired hooks, the copy on disk.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::rotation::RetiredEntry;
use gatepost_api::Revision;
use gatepost_config::{Problem, Relaxation};

/// Latest value of a state, if there is one; read without a lock.
#[derive(Debug)]
pub struct Latest<T>(ArcSwapOption<T>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> Latest<T> {
    /// Returns the current value.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    /// Sets or clears the value.
    pub fn set(&self, value: Option<T>) {
        self.0.store(value.map(Arc::new));
    }
}

/// State of the configuration besides the generation in force. Written by the rotator; `last_good` by `runtime`.
#[derive(Debug, Default)]
pub struct ConfigurationStatus {
    /// Failed reads since the last good one; `None` if the last read was good.
    pub failed_read: Latest<FailedRead>,
    /// The newest configuration, if it is not fully in force.
    pub rejected: Latest<Rejection>,
    /// Configuration that waits for a second read with the same relaxations.
    pub pending_confirmation: Latest<PendingConfirmation>,
    /// Params that were not read yet; `None` if all were.
    pub awaited_params: Latest<AwaitedParams>,
    /// State of the last good configuration on disk; `None` if none is written.
    pub last_good: Latest<LastGoodState>,
    /// The store's revision at the last good read, plus one; 0 if unknown.
    observed: AtomicU64,
    retired: ArcSwap<Vec<RetiredEntry>>,
}

impl ConfigurationStatus {
    /// Changes the state of the last good configuration on disk, if one is written.
    pub fn update_last_good(&self, change: impl FnOnce(&mut LastGoodState)) {
        if let Some(state) = self.last_good.get() {
            let mut state = LastGoodState::clone(&state);
            change(&mut state);
            self.last_good.set(Some(state));
        }
    }

    /// Returns the store's revision at the last good read, as of which the configuration is in force or rejected.
    /// `None` before the first read, and if the source has no revisions.
    pub fn observed(&self) -> Option<u64> {
        self.observed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Sets the store's revision at the last good read.
    pub fn set_observed(&self, revision: Option<u64>) {
        self.observed.store(revision.map_or(0, |revision| revision.saturating_add(1)), Ordering::Release);
    }

    /// Returns the hooks and initializers that are Draining, and those that are Gone and still listed. To miss none,
    /// load the generation before calling this.
    pub fn retired(&self) -> Arc<Vec<RetiredEntry>> {
        self.retired.load_full()
    }

    /// Replaces the hooks and initializers that are Draining or Gone.
    pub fn set_retired(&self, retired: Vec<RetiredEntry>) {
        self.retired.store(Arc::new(retired));
    }

    /// Returns hooks and initializers that are no longer in force but still serve older requests.
    pub fn draining(&self) -> Vec<RetiredEntry> {
        self.retired().iter().filter(|retired| retired.is_draining()).cloned().collect()
    }
}

/// Params of policies that have not been read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedParams {
    /// Bindings that are not evaluated until their params are read, in the order of the policies.
    pub bindings: Vec<AwaitedBinding>,
    /// Until this time the process is unready, because params of the first configuration are missing.
    pub unready_until: Option<Instant>,
}

/// New binding of a policy whose params have not been read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedBinding {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Name of the binding.
    pub binding: Arc<str>,
    /// Time since which it waits.
    pub since: SystemTime,
    /// Failure of the last read; `None` before the first has ended.
    pub last_failure: Option<String>,
}

impl fmt::Display for AwaitedBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, binding, since, last_failure } = self;
        let (since, why) = (humantime::format_rfc3339_seconds(*since), last_failure.as_deref());
        let why = why.unwrap_or("no read has ended");
        write!(
            f,
            "policy {policy}, binding {binding}: not evaluated since {since}, as its params were never read: {why}"
        )
    }
}

/// Failed reads since the last good one. The configuration in force stays and ages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRead {
    /// Error of the last failed read, with advice.
    pub error: String,
    /// End of the first failed read.
    pub since: SystemTime,
    /// Number of failed reads.
    pub count: u64,
}

/// Configuration that was read and is not fully in force. Either an older one stays in force, or everything but the
/// quarantined documents is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// All problems of the configuration.
    pub problems: Vec<Problem>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Time at which the configuration was first seen.
    pub since: SystemTime,
    /// Quarantined documents; empty if nothing of the configuration is in force.
    pub quarantined: Vec<QuarantinedDocument>,
}

impl Rejection {
    /// Returns true if nothing of the configuration is in force.
    pub fn is_whole(&self) -> bool {
        self.quarantined.is_empty()
    }

    /// Returns the number of quarantined documents whose last good state is in force, and of those that have none.
    pub fn counts(&self) -> (usize, usize) {
        let with_last_good = self.quarantined.iter().filter(|document| document.last_good_in_force).count();
        (with_last_good, self.quarantined.len() - with_last_good)
    }
}

/// Document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedDocument {
    /// File of the document, as the source names it.
    pub document: String,
    /// True if its last good state is in force; false if it never had one and is left out.
    pub last_good_in_force: bool,
    /// Time since which it is quarantined.
    pub since: SystemTime,
    /// First problem.
    pub problem: Problem,
    /// Number of problems.
    pub problems: usize,
}

impl QuarantinedDocument {
    /// Describes which state of the document is in force.
    pub fn effect(&self) -> &'static str {
        match self.last_good_in_force {
            true => "its last good state stays in force",
            false => "it is left out: nothing of it is in force",
        }
    }
}

/// Valid configuration that relaxes the one in force, from a source that cannot detect an incomplete read. A second
/// read with the same relaxations puts it in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingConfirmation {
    /// Checks that it would no longer enforce.
    pub relaxations: Vec<Relaxation>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Time since which the source has contained such a configuration.
    pub since: SystemTime,
}

/// State of the last good configuration on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastGoodState {
    /// Path of the file.
    pub path: String,
    /// Reason why it could not be used at the start; `None` if it could.
    pub refused: Option<String>,
    /// Set if the file, or a document of it, is in force.
    pub in_use: Option<LastGoodUse>,
    /// Time of the last write.
    pub saved: Option<SystemTime>,
    /// Error of the last write.
    pub failure: Option<String>,
}

/// Use of the last good configuration on disk, which is wholly or partly in force since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastGoodUse {
    /// Time at which the file was written.
    pub written: SystemTime,
    /// Reason for its use.
    pub why: String,
}

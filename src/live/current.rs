//! Current: the generation in force and the time of the last good read. The only place that knows arc-swap.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{Departed, Generation};
use crate::{
    model::Revision,
    snapshot::{Problem, Snapshot},
};

/// Older than this, the configuration is not trusted and requests are refused.
// source: dynamic-admission-control-configuration.md, "If there isn't any successful read in the last 5s".
pub const STALE_AFTER: Duration = Duration::from_secs(5);

/// A configuration that was read but not put in force because it is invalid; an older one stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
    /// What the source calls that state.
    pub revision: Revision,
    /// When it was first seen.
    pub since: SystemTime,
}

/// Reads fail: the last one, and since when none has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// What happened, and what to do.
    pub what: String,
    /// When the first of them failed.
    pub since: SystemTime,
}

/// The generation in force, swapped as one, read without a lock.
#[derive(Debug)]
pub struct Current {
    generation: ArcSwap<Generation>,
    epoch: Instant,
    /// Nanoseconds from `epoch` to the start of the last good read, plus one; 0 before the first.
    fresh: AtomicU64,
    rejected: ArcSwapOption<Rejection>,
    draining: AtomicBool,
    /// The store's revision at the last good read, plus one; 0 where there is none.
    observed: AtomicU64,
    read_failure: ArcSwapOption<ReadFailure>,
    departed: ArcSwap<Vec<Departed>>,
}

impl Current {
    /// No hooks, and no good read yet: every request is refused until [`Current::stamp`].
    pub fn new(now: Instant) -> Self {
        let generation = Generation {
            number: 0,
            digest: String::new(),
            revision: Revision::of_digest(""),
            published: SystemTime::UNIX_EPOCH,
            snapshot: Arc::new(Snapshot::empty()),
            hooks: Vec::new(),
        };
        Self {
            generation: ArcSwap::from_pointee(generation),
            epoch: now,
            fresh: AtomicU64::new(0),
            rejected: ArcSwapOption::empty(),
            draining: AtomicBool::new(false),
            observed: AtomicU64::new(0),
            read_failure: ArcSwapOption::empty(),
            departed: ArcSwap::default(),
        }
    }

    /// The generation in force. One call a request, at its beginning.
    ///
    /// `load_full` rather than arc-swap's `Cache`: a cache keeps the old generation alive in every worker, which would
    /// break "the last drop means drained".
    pub fn load(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// Puts a generation in force; returns the one it replaced, still held by the requests under way.
    pub fn publish(&self, generation: Arc<Generation>) -> Arc<Generation> {
        self.generation.swap(generation)
    }

    /// A consistent read that *started* at `started` has succeeded.
    pub fn stamp(&self, started: Instant) {
        let nanos = started.saturating_duration_since(self.epoch).as_nanos() as u64;
        self.fresh.fetch_max(nanos + 1, Ordering::Release);
    }

    /// Time since the start of the last good read; `None` before the first.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let nanos = self.fresh.load(Ordering::Acquire).checked_sub(1)?;
        Some(now.saturating_duration_since(self.epoch + Duration::from_nanos(nanos)))
    }

    /// True while the configuration is younger than [`STALE_AFTER`].
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < STALE_AFTER)
    }

    /// The newest configuration's problems while it is invalid; `None` while the newest is the one in force.
    pub fn rejected(&self) -> Option<Arc<Rejection>> {
        self.rejected.load_full()
    }

    /// Raises the newest configuration's problems, or clears them.
    pub fn set_rejected(&self, rejection: Option<Rejection>) {
        self.rejected.store(rejection.map(Arc::new));
    }

    /// The process is about to end: not ready any longer, requests are still answered.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// True from [`Current::drain`] on.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
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

    /// Why the configuration cannot be read now; `None` while it can.
    pub fn read_failure(&self) -> Option<Arc<ReadFailure>> {
        self.read_failure.load_full()
    }

    /// A read has failed in that way, or (`None`) succeeded.
    pub fn set_read_failure(&self, what: Option<String>, now: SystemTime) {
        let before = self.read_failure();
        if before.as_ref().map(|before| &before.what) == what.as_ref() {
            return;
        }
        let since = before.map_or(now, |before| before.since);
        self.read_failure.store(what.map(|what| Arc::new(ReadFailure { what, since })));
    }

    /// The hooks that are Draining, and those that are Gone and not forgotten yet. To see where every hook stands, load
    /// the generation first.
    pub fn departed(&self) -> Arc<Vec<Departed>> {
        self.departed.load_full()
    }

    /// These hooks, and no others, are Draining or Gone.
    pub fn set_departed(&self, departed: Vec<Departed>) {
        self.departed.store(Arc::new(departed));
    }

    /// The hooks that are no longer in force and still hold requests.
    pub fn leaving(&self) -> Vec<Departed> {
        self.departed().iter().filter(|departed| departed.drains()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_until_five_seconds_after_the_start_of_the_last_good_read() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let current = Current::new(epoch);
        assert!(!current.is_fresh(at(0)), "never read");
        current.stamp(at(1000));
        assert!(current.is_fresh(at(5999)));
        assert!(!current.is_fresh(at(6000)));
        current.stamp(at(500));
        assert!(current.is_fresh(at(5999)), "an older read that ends late does not age us");
        current.stamp(at(6500));
        assert!(current.is_fresh(at(11_499)));
    }
}

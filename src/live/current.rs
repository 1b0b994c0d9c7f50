//! Current generation and its freshness, and the guard by which a request keeps its generation.
//!
//! Every request uses the generation in force to its end. With one reference count for all, every worker would write
//! the same cache line twice a request. So each thread caches the generation that it entered last under a reference
//! count of its own, and reuses it until a newer one is published: that costs one load of a number which rarely
//! changes, and one increment that no other thread touches.
//!
//! A cached guard outlives its requests. To still detect a drain by the last drop, the publisher makes each worker
//! [`refresh`](Current::refresh).

use std::{
    cell::RefCell,
    collections::HashSet,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use gatepost_api::registration::Segment;
use gatepost_base::clock::{self, SuspendedTime, suspended_time};
use gatepost_config::coverage::rule_index::RuleIndex;
use gatepost_initializers::{Hub, StoredObjects, desk::DeskLimits};

use super::{
    freshness::Freshness,
    generation::Generation,
    labelled::LabelledObjectRole,
    rule_index::{IndexRegistry, KnownGeneration},
    segment_moves::SegmentMoves,
};

/// Generation in force, swapped atomically and read without a lock, and the state that outlives generations.
#[derive(Debug)]
pub struct Current {
    generation: ArcSwap<Generation>,
    newest: Newest,
    segment_moves: SegmentMoves,
    rule_index: IndexRegistry,
    freshness: Freshness,
    hub: Arc<Hub>,
    stored: Arc<StoredObjects>,
    labelled: Arc<LabelledObjectRole>,
}

impl Current {
    /// Creates the state without hooks and without a good read: every request is rejected until [`Freshness::stamp`].
    pub fn new(now: Instant) -> Self {
        Self::with_clock(suspended_time, now)
    }

    /// Like [`Current::new`], with another clock of suspended time.
    pub fn with_clock(suspended_time: SuspendedTime, now: Instant) -> Self {
        let generation = Generation::empty();
        Self {
            rule_index: IndexRegistry::new(&generation, now),
            generation: ArcSwap::from_pointee(generation),
            newest: Newest::new(),
            segment_moves: SegmentMoves::since(now),
            freshness: Freshness::new(now, suspended_time),
            hub: Hub::new(DeskLimits::default(), now),
            stored: Arc::default(),
            labelled: Arc::default(),
        }
    }

    /// Returns the age of the configuration in force, and the age from which it is stale.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Returns the generation in force for a request, which calls this once, at its beginning. Takes no lock, and
    /// writes nothing that another thread reads or writes.
    pub fn enter(&self) -> GenerationGuard {
        self.newest.enter(|| self.load())
    }

    /// Drops the generation that this thread has cached, if it is no longer in force. Every thread that serves requests
    /// must call this after [`Current::publish`]; otherwise the generation that an idle thread has cached keeps hooks
    /// from draining.
    pub fn refresh(&self) {
        drop(self.enter());
    }

    /// Returns the generation in force, for occasional readers.
    pub fn load(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// Puts a generation in force; returns the replaced one, which requests under way still use.
    pub fn publish(&self, generation: Arc<Generation>) -> Arc<Generation> {
        let in_force = self.load();
        let mut index = None;
        if !Arc::ptr_eq(&in_force.snapshot, &generation.snapshot) {
            index = Some(RuleIndex::new(&generation.snapshot));
            let now = clock::now();
            self.segment_moves.record_change(&in_force.snapshot, &generation.snapshot, now);
            let before: HashSet<_> = in_force.snapshot.claimable().collect();
            // A restart never enforces less: no instance can have attached before the first configuration.
            if in_force.number == 0 {
                self.hub.desk(|desk| generation.snapshot.claimable().for_each(|name| desk.enforce(name)));
            }
            // An initializer that was enforced in another form, such as built in, is enforced in this form, too.
            let known: HashSet<_> = in_force.snapshot.initializer_names().collect();
            let new = || generation.snapshot.claimable().filter(|name| !before.contains(name));
            self.hub.desk(|desk| {
                new().filter(|name| known.contains(name)).for_each(|name| desk.enforce(name));
                new().for_each(|name| desk.configure(name, now));
            });
        }
        let former = self.generation.swap(Arc::clone(&generation));
        self.newest.changed();
        // After the swap: a plugin that knows the new index then finds the new generation.
        self.rule_index.publish(&generation, index);
        former
    }

    /// Returns the newest generation of which no plugin uses an older rule index: the one in force, or while a plugin
    /// has not acknowledged its index, for a second at most, an older one. A report that a generation is in force
    /// means this.
    pub fn known_to_plugins(&self, now: Instant) -> KnownGeneration {
        self.rule_index.known(now)
    }

    /// Returns the rule index in force and its followers.
    pub fn rule_index(&self) -> &IndexRegistry {
        &self.rule_index
    }

    /// Returns true if a mutating hook changed its segment so recently that another segment of a request may be decided
    /// by the older configuration. Call this for `segment` after [`Current::enter`].
    pub fn segments_are_unsettled(&self, segment: Segment, now: Instant) -> bool {
        self.segment_moves.are_unsettled(segment, now)
    }

    /// Returns true once there is a configuration in force and a good read, so that requests can be decided.
    pub fn decides(&self, now: Instant) -> bool {
        self.freshness.age(now).is_some() && self.load().number > 0
    }

    /// Returns the attached instances of initializers, and the holds that wait for them.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns the objects that apiservers store unfinished, and the CREATEs that wait for them.
    pub fn stored(&self) -> &Arc<StoredObjects> {
        &self.stored
    }

    /// Returns the state of objects that a stock apiserver stores unfinished, by their label.
    pub fn labelled(&self) -> &Arc<LabelledObjectRole> {
        &self.labelled
    }
}

/// Generation of one request. The outer reference count belongs to the thread that entered; the inner count is shared
/// and changes rarely.
#[derive(Clone, Debug)]
pub struct GenerationGuard(Arc<ThreadGeneration>);

/// Generation with a reference count of this thread.
#[derive(Debug)]
struct ThreadGeneration(Arc<Generation>);

impl Deref for GenerationGuard {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.0
    }
}

/// Identity of a published generation in the process, across all [`Current`](super::Current)s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

/// Number of the generation in force.
#[derive(Debug)]
pub(super) struct Newest(AtomicU64);

thread_local! {
    /// Guard of the generation that this thread entered last.
    static LAST: RefCell<Option<(Stamp, GenerationGuard)>> = const { RefCell::new(None) };
}

impl Newest {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(Stamp::next().0))
    }

    /// Records that another generation is in force. Must be called after the swap: a thread that reads the new
    /// stamp then loads that generation.
    pub(super) fn changed(&self) {
        self.0.store(Stamp::next().0, Ordering::Release);
    }

    /// Returns the guard that this thread has cached, if its generation is still in force, otherwise a new guard of the
    /// result of `load`.
    pub(super) fn enter(&self, load: impl Fn() -> Arc<Generation>) -> GenerationGuard {
        // Read before the load: if a generation is published in between, the next call finds another stamp.
        let newest = Stamp(self.0.load(Ordering::Acquire));
        let entered = LAST.try_with(|last| {
            if let Some((stamp, entered)) = &*last.borrow()
                && *stamp == newest
            {
                return entered.clone();
            }
            let entered = GenerationGuard(Arc::new(ThreadGeneration(load())));
            // The former guard is dropped after the borrow ends, as its drop may drop a generation.
            let _former = last.replace(Some((newest, entered.clone())));
            entered
        });
        // A thread that is ending caches nothing.
        entered.unwrap_or_else(|_| GenerationGuard(Arc::new(ThreadGeneration(load()))))
    }
}

impl Stamp {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod generation_guard_tests {
    use std::{
        sync::{Weak, atomic::AtomicBool},
        thread,
        time::Instant,
    };

    use crate::live::{Current, Generation};

    use super::*;

    fn published(current: &Current, number: u64) -> Weak<Generation> {
        let generation = Arc::new(Generation { number, ..Generation::empty() });
        let weak = Arc::downgrade(&generation);
        current.publish(generation);
        weak
    }

    #[test]
    fn generation_guard_holds_the_generation_in_force() {
        let (one, other) = (Current::new(Instant::now()), Current::new(Instant::now()));
        for number in 1..4 {
            published(&one, number);
            published(&other, number + 10);
            assert_eq!([one.enter().number, one.enter().number, other.enter().number], [number, number, number + 10]);
            assert_eq!(one.enter().number, number, "each keeps to its own");
        }
    }

    #[test]
    fn generation_is_dropped_once_every_thread_has_refreshed() {
        let current = Current::new(Instant::now());
        let first = published(&current, 1);
        let request = current.enter();
        published(&current, 2);
        current.refresh();
        assert_eq!(request.number, 1, "a request keeps what it entered");
        drop(request);
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn generation_guard_never_holds_a_replaced_generation() {
        let current = Current::new(Instant::now());
        let (newest, over) = (AtomicU64::new(0), AtomicBool::new(false));
        published(&current, 0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let at_least = newest.load(Ordering::Acquire);
                        assert!(current.enter().number >= at_least);
                    }
                });
            }
            for number in 1..20_000 {
                published(&current, number);
                newest.store(number, Ordering::Release);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(current.enter().number, 19_999);
    }
}

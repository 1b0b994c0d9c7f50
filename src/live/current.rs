//! Current: the generation in force, and how fresh it is; and the guard by which a request keeps the generation that it
//! goes through.
//!
//! Every request takes the generation in force and keeps it to its end. Counted in one place, that would be a cache
//! line that all workers write, twice a request. So each thread keeps the generation that it took last, under a count
//! of its own, and takes it again as long as nothing newer was published: one load of a number that nobody writes
//! meanwhile, and one count that no other thread touches.
//!
//! A guard that a thread keeps stays alive without a request. "The last drop means drained" holds all the same, as the
//! publisher then has each worker [`refresh`](Current::refresh).

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
use gatepost_base::clock::{self, Slept, slept};
use gatepost_initializers::{Hub, StoredObjects, desk::DeskLimits};

use super::{freshness::Freshness, generation::Generation, labelled::Labelled, segment_moves::SegmentMoves};

/// The generation in force, swapped as one, read without a lock.
#[derive(Debug)]
pub struct Current {
    generation: ArcSwap<Generation>,
    newest: Newest,
    segment_moves: SegmentMoves,
    freshness: Freshness,
    hub: Arc<Hub>,
    stored: Arc<StoredObjects>,
    labelled: Arc<Labelled>,
}

impl Current {
    /// No hooks, and no good read yet: every request is refused until [`Freshness::stamp`].
    pub fn new(now: Instant) -> Self {
        Self::by(slept, now)
    }

    /// The same, with another clock of the time that the machine has slept.
    pub fn by(slept: Slept, now: Instant) -> Self {
        Self {
            generation: ArcSwap::from_pointee(Generation::nothing()),
            newest: Newest::new(),
            segment_moves: SegmentMoves::since(now),
            freshness: Freshness::new(now, slept),
            hub: Hub::new(DeskLimits::default(), now),
            stored: Arc::default(),
            labelled: Arc::default(),
        }
    }

    /// Age of what is in force, and whether it is still trusted.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The generation in force, for a request: one call, at its beginning. Takes no lock, and writes nothing that
    /// another thread reads or writes.
    pub fn enter(&self) -> GenerationGuard {
        self.newest.enter(|| self.load())
    }

    /// Lets go of what this thread has entered, where that is no longer in force. Every thread that serves requests is
    /// to do so after [`Current::publish`], or an idle one keeps hooks from draining.
    pub fn refresh(&self) {
        drop(self.enter());
    }

    /// The generation in force, for whoever looks at it now and then.
    pub fn load(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// Puts a generation in force; returns the one it replaced, still held by the requests under way.
    pub fn publish(&self, generation: Arc<Generation>) -> Arc<Generation> {
        let in_force = self.load();
        if !Arc::ptr_eq(&in_force.snapshot, &generation.snapshot) {
            let now = clock::now();
            self.segment_moves.replaced(&in_force.snapshot, &generation.snapshot, now);
            let before: HashSet<_> = in_force.snapshot.claimed().collect();
            // A restart never enforces less: no instance can have attached before the first configuration.
            if in_force.number == 0 {
                self.hub.enforce(generation.snapshot.claimed());
            }
            // One that was enforced in another form, such as built in, is enforced in this one.
            let known: HashSet<_> = in_force.snapshot.initializer_names().collect();
            self.hub
                .enforce(generation.snapshot.claimed().filter(|name| known.contains(name) && !before.contains(name)));
            let new = generation.snapshot.claimed().filter(|name| !before.contains(name));
            self.hub.configure(new, now);
        }
        let former = self.generation.swap(generation);
        self.newest.changed();
        former
    }

    /// Has a mutating hook changed its segment so lately that another segment of a request may be decided as before? To be
    /// asked of this segment after [`Current::enter`].
    pub fn segments_are_unsettled(&self, segment: Segment, now: Instant) -> bool {
        self.segment_moves.are_unsettled(segment, now)
    }

    /// True once something is in force by which reviews are decided. Before that, what is in force only lets past what it
    /// lets past unasked.
    pub fn decides(&self, now: Instant) -> bool {
        self.freshness.age(now).is_some() && self.load().number > 0
    }

    /// The instances of initializers that are attached, and the holds that wait for them.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Objects that apiservers store unfinished, and the CREATEs that are held for them.
    pub fn stored(&self) -> &Arc<StoredObjects> {
        &self.stored
    }

    /// Objects that a stock apiserver stores unfinished, by their label.
    pub fn labelled(&self) -> &Arc<Labelled> {
        &self.labelled
    }
}

/// The generation that one request goes through. The outer count belongs to the thread that entered, the inner one is
/// everybody's and rests.
#[derive(Clone, Debug)]
pub struct GenerationGuard(Arc<Own>);

/// Generation with a count of this thread's own.
#[derive(Debug)]
struct Own(Arc<Generation>);

impl Deref for GenerationGuard {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.0
    }
}

/// Identity of a published generation among all of the process, of whichever [`Current`](super::Current).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

/// Which generation is in force, as a number.
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

    /// Another generation was put in force. Called after it was: who sees the new stamp finds it.
    pub(super) fn changed(&self) {
        self.0.store(Stamp::next().0, Ordering::Release);
    }

    /// Guard of the generation that this thread entered last, where it is still in force; else of the one that `load`
    /// gives.
    pub(super) fn enter(&self, load: impl Fn() -> Arc<Generation>) -> GenerationGuard {
        // Read before what is loaded: if something is published in between, the next look finds another stamp.
        let newest = Stamp(self.0.load(Ordering::Acquire));
        let entered = LAST.try_with(|last| {
            if let Some((stamp, entered)) = &*last.borrow()
                && *stamp == newest
            {
                return entered.clone();
            }
            let entered = GenerationGuard(Arc::new(Own(load())));
            // The former is dropped when it is no longer borrowed: with it may go the last of a generation.
            let _former = last.replace(Some((newest, entered.clone())));
            entered
        });
        // A thread that is ending keeps nothing.
        entered.unwrap_or_else(|_| GenerationGuard(Arc::new(Own(load()))))
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
        let generation = Arc::new(Generation { number, ..Generation::nothing() });
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
    fn a_generation_is_gone_with_its_last_request_once_every_thread_has_looked() {
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

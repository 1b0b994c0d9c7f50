//! Current: the generation in force, and how fresh it is.

use std::{collections::HashSet, ops::Deref, sync::Arc, time::Instant};

use arc_swap::ArcSwap;

use super::{
    freshness::Freshness,
    generation::Generation,
    generation_guard::{GenerationGuard, Newest},
    labelled::Labelled,
    segment_moves::SegmentMoves,
};
use gatepost_api::registration::Segment;
use gatepost_base::clock::{self, Slept, slept};
use gatepost_initializers::{Hub, StoredObjects, desk::DeskLimits};

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

impl Deref for Current {
    type Target = Freshness;

    fn deref(&self) -> &Freshness {
        &self.freshness
    }
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
        self.age(now).is_some() && self.load().number > 0
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

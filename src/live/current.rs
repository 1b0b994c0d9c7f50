//! Current: the generation in force and the time of the last good read. The only place that knows arc-swap.

use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    BreakGlasses, Generation, GenerationGuard, Hub, Labelled, LastGoodState, RegistrationState, Rejection,
    RetiredEntry, StoredObjects, Unconfirmed, generation_guard::Newest, segment_moves::SegmentMoves,
};
use crate::{
    clock::{self, Age, Moment, Slept, slept},
    initialize::desk::DeskLimits,
    model::registration::Segment,
    tls::ServerTls,
};

/// Older than this, the configuration is not trusted and requests are refused.
// source: dynamic-admission-control-configuration.md, "If there isn't any successful read in the last 5s".
pub const STALE_AFTER: Duration = Duration::from_secs(5);

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

/// The generation in force, swapped as one, read without a lock.
#[derive(Debug)]
pub struct Current {
    generation: ArcSwap<Generation>,
    newest: Newest,
    segment_moves: SegmentMoves,
    /// Since the start of the last good read.
    read: Age,
    failed_read: ArcSwapOption<FailedRead>,
    rejected: ArcSwapOption<Rejection>,
    unconfirmed: ArcSwapOption<Unconfirmed>,
    draining: AtomicBool,
    /// Age from which the configuration is not trusted, in milliseconds.
    trusted: AtomicU64,
    /// The store's revision at the last good read, plus one; 0 where there is none.
    observed: AtomicU64,
    retired: ArcSwap<Vec<RetiredEntry>>,
    break_glass: BreakGlasses,
    hub: Arc<Hub>,
    stored: Arc<StoredObjects>,
    labelled: Arc<Labelled>,
    last_good: ArcSwapOption<LastGoodState>,
    /// TLS of callers, and whether all of them need it.
    serving_tls: OnceLock<(Arc<ServerTls>, bool)>,
    registration: ArcSwapOption<RegistrationState>,
}

impl Current {
    /// No hooks, and no good read yet: every request is refused until [`Current::stamp`].
    pub fn new(now: Instant) -> Self {
        Self::by(slept, now)
    }

    /// The same, with another clock of the time that the machine has slept.
    pub fn by(slept: Slept, now: Instant) -> Self {
        Self {
            generation: ArcSwap::from_pointee(Generation::nothing()),
            newest: Newest::new(),
            segment_moves: SegmentMoves::since(now),
            read: Age::new(now, slept),
            failed_read: ArcSwapOption::empty(),
            rejected: ArcSwapOption::empty(),
            unconfirmed: ArcSwapOption::empty(),
            draining: AtomicBool::new(false),
            trusted: AtomicU64::new(u64::try_from(STALE_AFTER.as_millis()).unwrap_or(u64::MAX)),
            observed: AtomicU64::new(0),
            retired: ArcSwap::default(),
            break_glass: BreakGlasses::default(),
            hub: Hub::new(DeskLimits::default(), now),
            stored: Arc::default(),
            labelled: Arc::default(),
            last_good: ArcSwapOption::empty(),
            serving_tls: OnceLock::new(),
            registration: ArcSwapOption::empty(),
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

    /// A consistent read that *started* at `started` has succeeded, and the machine has not slept since.
    pub fn stamp(&self, started: Instant) {
        self.read.renew_awake(started);
    }

    /// A consistent read that *started* at `started` has succeeded, and what it found is in force.
    pub fn stamp_read(&self, started: Moment) {
        self.read.renew(started);
    }

    /// Time since the start of the last good read, time slept included; `None` before the first.
    ///
    /// Ask before [`Current::load`]: what is loaded then is at least as new as the age says.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.read.at(now)
    }

    /// True once something is in force by which reviews are decided. Before that, what is in force only lets past what it
    /// lets past unasked.
    pub fn decides(&self, now: Instant) -> bool {
        self.age(now).is_some() && self.load().number > 0
    }

    /// Sets the age from which the configuration is not trusted: [`STALE_AFTER`], or less.
    pub fn trust_for(&self, age: Duration) {
        self.trusted.store(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Age from which the configuration is not trusted.
    pub fn trusted_for(&self) -> Duration {
        Duration::from_millis(self.trusted.load(Ordering::Acquire)).min(STALE_AFTER)
    }

    /// True while the configuration is younger than [that](Current::trusted_for).
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < self.trusted_for())
    }

    /// Failure of the last read; `None` while the last one was good.
    pub fn failed_read(&self) -> Option<Arc<FailedRead>> {
        self.failed_read.load_full()
    }

    /// Raises what went wrong with the last read, or clears it.
    pub fn set_failed_read(&self, failed: Option<FailedRead>) {
        self.failed_read.store(failed.map(Arc::new));
    }

    /// The newest configuration's problems while it is invalid; `None` while the newest is the one in force.
    pub fn rejected(&self) -> Option<Arc<Rejection>> {
        self.rejected.load_full()
    }

    /// Raises the newest configuration's problems, or clears them.
    pub fn set_rejected(&self, rejection: Option<Rejection>) {
        self.rejected.store(rejection.map(Arc::new));
    }

    /// Configuration that waits for a second read that lets the same go; `None` while none does.
    pub fn unconfirmed(&self) -> Option<Arc<Unconfirmed>> {
        self.unconfirmed.load_full()
    }

    /// Says what waits for a second read that lets the same go, or that nothing does.
    pub fn set_unconfirmed(&self, unconfirmed: Option<Unconfirmed>) {
        self.unconfirmed.store(unconfirmed.map(Arc::new));
    }

    /// State of the last good configuration on disk; `None` where none is kept.
    pub fn last_good(&self) -> Option<Arc<LastGoodState>> {
        self.last_good.load_full()
    }

    /// Says that one is kept, and where.
    pub fn keeps_last_good(&self, path: String) {
        self.last_good.store(Some(Arc::new(LastGoodState { path, ..LastGoodState::default() })));
    }

    /// Changes what is known of it, where one is kept.
    pub fn with_last_good(&self, change: impl FnOnce(&mut LastGoodState)) {
        if let Some(state) = self.last_good() {
            let mut state = LastGoodState::clone(&state);
            change(&mut state);
            self.last_good.store(Some(Arc::new(state)));
        }
    }

    /// Callers come by this TLS: all of them, or those that do not come by a unix socket. To be called once.
    pub fn serve_with(&self, tls: Arc<ServerTls>, all: bool) {
        let _ = self.serving_tls.set((tls, all));
    }

    /// TLS of callers; `None` where they come without.
    pub fn serving_tls(&self) -> Option<&Arc<ServerTls>> {
        self.serving_tls.get().map(|(tls, _)| tls)
    }

    /// True where no caller gets in, as the certificate in force is not valid.
    pub fn is_unreachable(&self, clock: SystemTime) -> bool {
        self.serving_tls.get().is_some_and(|(tls, all)| *all && tls.certificate_fault(clock).is_some())
    }

    /// The last comparison of the registration with what is in force; `None` where it is not followed.
    pub fn registration(&self) -> Option<Arc<RegistrationState>> {
        self.registration.load_full()
    }

    /// The registration was compared, or could not be.
    pub fn set_registration(&self, state: RegistrationState) {
        self.registration.store(Some(Arc::new(state)));
    }

    /// The process is about to end: not ready any longer, requests are still answered.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// True from [`Current::drain`] on.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Open break-glass, whatever is in force.
    pub fn break_glass(&self) -> &BreakGlasses {
        &self.break_glass
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
    pub fn leaving(&self) -> Vec<RetiredEntry> {
        self.retired().iter().filter(|retired| retired.drains()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
        current.trust_for(Duration::from_millis(1400));
        assert!(current.is_fresh(at(7899)) && !current.is_fresh(at(7900)));
    }

    thread_local! {
        static SLEPT: Cell<u64> = const { Cell::new(0) };
    }

    fn slept() -> Duration {
        Duration::from_secs(SLEPT.get())
    }

    #[test]
    fn time_slept_ages_it_although_the_monotonic_clock_stood_still() {
        SLEPT.set(100);
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let current = Current::by(slept, epoch);
        current.stamp(at(1000));
        assert_eq!(current.age(at(1500)), Some(Duration::from_millis(500)), "what was slept before does not count");
        SLEPT.set(3700);
        assert_eq!(current.age(at(1500)), Some(Duration::from_millis(3_600_500)));
        assert!(!current.is_fresh(at(1500)));
        current.stamp(at(2000));
        assert_eq!(current.age(at(2100)), Some(Duration::from_millis(100)), "read after it woke");
    }

    #[test]
    fn a_read_that_was_slept_through_is_dated_from_its_start() {
        SLEPT.set(0);
        let epoch = Instant::now();
        let current = Current::by(slept, epoch);
        let started = Moment::awake_since(epoch, slept);
        SLEPT.set(60);
        current.stamp_read(started);
        assert_eq!(current.age(epoch), Some(Duration::from_secs(60)));
    }
}

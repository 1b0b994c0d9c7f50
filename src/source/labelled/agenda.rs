//! Agenda: known marked objects, and the next step that is due.
//!
//! The turn of an object is due when the object is new or changed, and again some time after a failed try. A head that
//! has exceeded its timeout is corrected by its failure policy. Whatever the timers are, the [`Controller`] corrects
//! heads that it finds in two snapshots, and each list corrects objects that are older than [`ReadRepair`] allows.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    follow::{News, ServedResource},
    turn::TurnEnd,
    turns::{DueTurns, TurnSlot},
};
use crate::live::Current;
use gatepost_api::FailurePolicy;
use gatepost_base::{clock::Backoff, memory::Reservation, offload};
use gatepost_initializers::{
    Controller, Correction, CorrectiveAction, ReadRepair, Unfinished,
    controller::{HeadIndex, OverdueObject},
    unfinished::{StoredEvent, StoredObject},
};

/// Pause before a retry; it doubles with each failed write of the object.
const MIN_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause before a retry.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Maximum number of queued corrections.
const MAX_CORRECTIONS: usize = 500;
/// Maximum number of queued corrections of heads that exceeded their timeout; the rest is for the controller.
const MAX_LATE_CORRECTIONS: usize = 400;
/// Maximum number of corrections that run concurrently.
const MAX_CONCURRENT_CORRECTIONS: usize = 128;
/// Approximate bytes of one object for the cost of building an index.
const INDEXED: usize = 256;

/// Step of an object.
#[derive(Debug)]
pub(super) enum Due {
    /// The initializer at its head acts.
    Turn,
    /// Its head is removed, or the object fails or is deleted.
    Correction(Correction),
}

/// Object whose step starts, with its resource.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) resource: Arc<ServedResource>,
    pub(super) stored: Arc<StoredObject>,
    pub(super) since: Instant,
}

/// Object with a step under way.
#[derive(Debug)]
struct Busy {
    /// True if the object has changed since the step started.
    changed: bool,
    /// Name at the head that counts the step; `None` for a correction.
    name: Option<Box<str>>,
}

/// Known objects.
#[derive(Debug)]
pub(super) struct Agenda {
    objects: Unfinished,
    resources: HashMap<Arc<str>, Arc<ServedResource>>,
    turns: DueTurns,
    corrections: VecDeque<Correction>,
    /// uids of the objects of `corrections`.
    correcting: HashSet<Arc<str>>,
    /// Objects with a step under way, by uid.
    busy: HashMap<Arc<str>, Busy>,
    /// Time of the next retry, by uid.
    retry_at: BTreeMap<Arc<str>, Instant>,
    /// Pauses after failed writes in a row, by object.
    failures: HashMap<Arc<str>, Backoff>,
    controller: Controller,
    room: Reservation,
}

impl Agenda {
    /// Creates an empty agenda. `room` is the reservation for its objects.
    pub(super) fn new(room: Reservation) -> Self {
        let (objects, resources, turns, corrections, correcting) = Default::default();
        let (busy, retry_at, failures, controller) = Default::default();
        Self { objects, resources, turns, corrections, correcting, busy, retry_at, failures, controller, room }
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Applies an event of a resource.
    pub(super) fn take(&mut self, news: News, current: &Current, now: Instant) {
        match news {
            News::Changed(resource, object) => self.put(&resource, *object, now),
            News::Gone(uid) => self.forget(&uid, now),
            News::Page { resource, objects, now: theirs } => {
                for (object, created) in objects {
                    let uid = Arc::clone(&object.uid);
                    let times = created.zip(theirs);
                    let is_old = times.is_some_and(|times| is_old(current, &object, times, now));
                    self.put(&resource, object, now);
                    if let Some(entry) = self.objects.get(&uid).filter(|_| is_old) {
                        let head = entry.object.list.head().unwrap_or_default().into();
                        let object = Arc::clone(&entry.object);
                        self.correct(
                            Correction { object, remedy: CorrectiveAction::RemoveHead(head) },
                            MAX_CORRECTIONS,
                        );
                    }
                }
            }
            News::Listed { resource, uids } => {
                let of_resource = self
                    .resources
                    .iter()
                    .filter(|(_, of)| (&of.group, &of.resource) == (&resource.group, &resource.resource));
                let gone: Vec<_> =
                    of_resource.map(|(uid, _)| Arc::clone(uid)).filter(|uid| !uids.contains(uid)).collect();
                gone.iter().for_each(|uid| self.forget(uid, now));
                self.objects.apply(StoredEvent::Synced, now);
            }
        }
    }

    fn put(&mut self, resource: &Arc<ServedResource>, object: StoredObject, now: Instant) {
        let uid = Arc::clone(&object.uid);
        let same = |known: &Arc<StoredObject>| known.resource_version == object.resource_version;
        let known = self.objects.get(&uid).is_some_and(|known| same(&known.object));
        self.objects.apply(StoredEvent::Unfinished(object), now);
        let more = self.objects.size().saturating_sub(self.room.bytes());
        if more > 0 && !self.room.try_grow(more.max(4096)) {
            // The next list contains it again.
            return self.forget(&uid, now);
        }
        self.resources.insert(Arc::clone(&uid), Arc::clone(resource));
        if !known {
            self.failures.remove(&uid);
            self.retry_at.remove(&uid);
        }
        match self.busy.get_mut(&uid) {
            // A list of known objects brings nothing new.
            Some(_) if known => {}
            Some(busy) => busy.changed = true,
            // Its retry is due later.
            None if self.retry_at.contains_key(&uid) => {}
            None => self.queue(uid, now),
        }
    }

    fn forget(&mut self, uid: &Arc<str>, now: Instant) {
        self.objects.apply(StoredEvent::Gone { uid: Arc::clone(uid) }, now);
        self.resources.remove(uid);
        self.retry_at.remove(uid);
        self.failures.remove(uid);
        self.turns.forget(uid);
        if self.objects.is_empty() {
            self.room.shrink_to(0);
        }
    }

    fn queue(&mut self, uid: Arc<str>, now: Instant) {
        if let Some(entry) = self.objects.get(&uid) {
            self.turns.push(uid, entry.object.list.head().unwrap_or_default(), now);
        }
    }

    /// Queues a correction if fewer than `most` are queued.
    fn correct(&mut self, correction: Correction, most: usize) {
        if self.corrections.len() < most && self.correcting.insert(Arc::clone(&correction.object.uid)) {
            self.corrections.push_back(correction);
        }
    }

    /// Returns the next step that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Due, Assignment)> {
        while self.busy.values().filter(|busy| busy.name.is_none()).count() < MAX_CONCURRENT_CORRECTIONS
            && let Some(correction) = self.corrections.pop_front()
        {
            let uid = Arc::clone(&correction.object.uid);
            self.correcting.remove(&uid);
            if let Some(assignment) = self.begin(&uid, None) {
                return Some((Due::Correction(correction), assignment));
            }
        }
        let (objects, busy) = (&self.objects, &self.busy);
        let head = |uid: &str| {
            let entry = objects.get(uid).filter(|_| !busy.contains_key(uid))?;
            Some(entry.object.list.head().unwrap_or_default().into())
        };
        let TurnSlot { uid, name, since } = self.turns.next(head)?;
        // Counts the wait from when the current head became the head, at the earliest.
        let since = self.objects.get(&uid).map_or(since, |entry| since.max(entry.since));
        self.objects.delay(&uid, now.saturating_duration_since(since));
        let assignment = self.begin(&uid, Some(name.clone()));
        if assignment.is_none() {
            self.turns.ended(&name);
        }
        assignment.map(|assignment| (Due::Turn, assignment))
    }

    fn begin(&mut self, uid: &Arc<str>, name: Option<Box<str>>) -> Option<Assignment> {
        if self.busy.contains_key(uid) {
            return None;
        }
        let entry = self.objects.get(uid)?;
        let (stored, since) = (Arc::clone(&entry.object), entry.since);
        let resource = Arc::clone(self.resources.get(uid)?);
        self.busy.insert(Arc::clone(uid), Busy { changed: false, name });
        Some(Assignment { resource, stored, since })
    }

    /// Records the end of a step.
    pub(super) fn ended(&mut self, uid: &Arc<str>, ended: &TurnEnd, now: Instant) {
        let busy = self.busy.remove(uid);
        let changed = busy.as_ref().is_some_and(|busy| busy.changed);
        if let Some(name) = busy.and_then(|busy| busy.name) {
            self.turns.ended(&name);
        }
        if self.objects.get(uid).is_none() {
            return;
        }
        match ended {
            _ if changed => self.queue(Arc::clone(uid), now),
            TurnEnd::Retry(None) => _ = self.retry_at.insert(Arc::clone(uid), now + MIN_RETRY_PAUSE),
            TurnEnd::Retry(Some(_)) => {
                let backoff = || Backoff::new(MIN_RETRY_PAUSE, MAX_RETRY_PAUSE);
                let pause = self.failures.entry(Arc::clone(uid)).or_insert_with(backoff).pause();
                self.retry_at.insert(Arc::clone(uid), now + pause);
            }
            TurnEnd::Settled => _ = self.failures.remove(uid),
            TurnEnd::Waiting => {}
        }
    }

    /// Returns true if no correction is due, because a step is queued or under way, or a retry is pending.
    fn has_pending_step(&self, uid: &str) -> bool {
        let waits = self.busy.contains_key(uid) || self.turns.contains(uid) || self.correcting.contains(uid);
        waits || self.failures.contains_key(uid) && self.retry_at.contains_key(uid)
    }

    /// Queues due retries and corrections. Called once a second.
    pub(super) async fn queue_due(&mut self, current: &Current, now: Instant) {
        let due: Vec<_> = self.retry_at.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in due {
            self.retry_at.remove(&uid);
            self.queue(uid, now);
        }
        // No initializer is skipped by a configuration that may be outdated.
        let age = current.freshness().age(now).filter(|_| current.freshness().is_fresh(now));
        let Some(read) = age.and_then(|age| now.checked_sub(age)) else { return };
        let generation = current.load();
        // Objects without failed corrections come first, so that failing objects do not delay them.
        let this = &*self;
        let idle = move |failed: bool| {
            let entries = this.objects.entries().filter(|entry| !this.has_pending_step(&entry.object.uid));
            entries.filter(move |entry| this.failures.contains_key(&entry.object.uid) == failed)
        };
        let late = idle(false).chain(idle(true)).filter_map(|entry| {
            let rule = generation.head_rule(&entry.object);
            let pending = entry.object.list.result.is_none() && entry.object.list.head().is_some();
            (pending && now >= entry.since + rule.timeout).then(|| Correction::of(&entry.object, rule)).flatten()
        });
        let late: Vec<_> = late.take(MAX_LATE_CORRECTIONS.saturating_sub(self.corrections.len())).collect();
        late.into_iter().for_each(|correction| self.correct(correction, MAX_LATE_CORRECTIONS));
        self.control(read, current, now).await;
    }

    /// Compares snapshots, as often as the controller requires.
    async fn control(&mut self, read: Instant, current: &Current, now: Instant) {
        if self.objects.is_synced && self.controller.is_due(now) {
            let (objects, mut controller) =
                (self.objects.after(None, usize::MAX), std::mem::take(&mut self.controller));
            let comparing = offload::run(INDEXED * objects.len(), move || {
                controller.compare(HeadIndex::of(objects, now));
                controller
            });
            self.controller = comparing.await;
        }
        let generation = current.load();
        // Objects whose head may take longer, or has changed, do not delay the others.
        loop {
            let overdue = self.controller.overdue(Some(read), MAX_CORRECTIONS.saturating_sub(self.corrections.len()));
            if overdue.is_empty() {
                return;
            }
            let correction = |overdue: &OverdueObject| {
                let entry = self.objects.get(&overdue.uid)?;
                overdue.correction(&entry.object, |object| generation.head_rule(object))
            };
            let corrections: Vec<_> = overdue.iter().filter_map(correction).collect();
            corrections.into_iter().for_each(|correction| self.correct(correction, MAX_CORRECTIONS));
        }
    }
}

/// Returns true if the object is so old that its head must be removed, and the head fails open.
fn is_old(current: &Current, object: &StoredObject, times: (i64, i64), now: Instant) -> bool {
    if !current.freshness().is_fresh(now) {
        return false;
    }
    let generation = current.load();
    let rule = generation.head_rule(object);
    let must_act = |_: &str| rule.policy != FailurePolicy::Ignore;
    let repair = ReadRepair::of(generation.snapshot.initializers_of(&object.group, &object.resource));
    repair.head(&object.list, times, must_act).is_some()
}

#[cfg(test)]
#[path = "agenda/tests.rs"]
mod tests;

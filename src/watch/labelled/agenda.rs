//! Agenda: marked objects that are known, and which of them is to make a step now.
//!
//! An object's turn is due when it is new, when it has changed, and again a while after a try that failed. A head that has
//! had its time is corrected by its failure policy; so is one that two snapshots of the [`Controller`] find, whatever the
//! timers say, and, on each list, one of an object that is older than [`ReadRepair`] says.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    follow::News,
    resource::ServedResource,
    step::head_rule,
    turn::Ended,
    turns::{DueTurns, Placed},
};
use crate::live::Current;
use gatepost_api::FailurePolicy;
use gatepost_base::{memory::Reservation, offload};
use gatepost_initializers::{
    Controller, Correction, CorrectiveAction, ReadRepair, Unfinished,
    controller::{HeadIndex, OverdueObject},
    unfinished::{StoredEvent, StoredObject},
};

/// Pause before a turn is tried again; it doubles with each failure of the apiserver to take it.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest.
const RARELY: Duration = Duration::from_secs(30);
/// Corrections that wait.
const CORRECTIONS: usize = 500;
/// Part of them for heads whose time is over; the others are the controller's.
const LATE: usize = 400;
/// Corrections that are carried out at once.
const CORRECTING: usize = 128;
/// Bytes of one object in an index, about: what sorting it goes through.
const INDEXED: usize = 256;

/// Step that an object is to make.
#[derive(Debug)]
pub(super) enum Due {
    /// Its head acts.
    Turn,
    /// Its head, or it itself, goes.
    Correction(Correction),
}

/// Object whose step is due, and where it is.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) resource: Arc<ServedResource>,
    pub(super) stored: Arc<StoredObject>,
    pub(super) since: Instant,
}

/// Object that is worked on.
#[derive(Debug)]
struct Busy {
    /// It has changed since.
    changed: bool,
    /// Name whose place it has; none for a correction.
    name: Option<Box<str>>,
}

/// Objects that are known.
#[derive(Debug)]
pub(super) struct Agenda {
    objects: Unfinished,
    resources: HashMap<Arc<str>, Arc<ServedResource>>,
    turns: DueTurns,
    /// Corrections that wait, and their objects.
    corrections: VecDeque<Correction>,
    correcting: HashSet<Arc<str>>,
    busy: HashMap<Arc<str>, Busy>,
    again: BTreeMap<Arc<str>, Instant>,
    /// Failures of objects of which the apiserver takes nothing, one after another.
    failures: HashMap<Arc<str>, u32>,
    controller: Controller,
    room: Reservation,
}

impl Agenda {
    /// None; what is known later has its room in the memory budget.
    pub(super) fn new(room: Reservation) -> Self {
        let (objects, resources, turns, corrections, correcting) = Default::default();
        let (busy, again, failures, controller) = Default::default();
        Self { objects, resources, turns, corrections, correcting, busy, again, failures, controller, room }
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Takes news of a resource.
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
                        self.correct(Correction { object, remedy: CorrectiveAction::RemoveHead(head) }, CORRECTIONS);
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
            // The next list has it again.
            return self.forget(&uid, now);
        }
        self.resources.insert(Arc::clone(&uid), Arc::clone(resource));
        if !known {
            self.failures.remove(&uid);
            self.again.remove(&uid);
        }
        match self.busy.get_mut(&uid) {
            // A list tells nothing new of it.
            Some(_) if known => {}
            Some(busy) => busy.changed = true,
            // It is tried again in its time.
            None if self.again.contains_key(&uid) => {}
            None => self.queue(uid, now),
        }
    }

    fn forget(&mut self, uid: &Arc<str>, now: Instant) {
        self.objects.apply(StoredEvent::Gone { uid: Arc::clone(uid) }, now);
        self.resources.remove(uid);
        self.again.remove(uid);
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

    /// Takes a correction, where fewer than `most` wait.
    fn correct(&mut self, correction: Correction, most: usize) {
        if self.corrections.len() < most && self.correcting.insert(Arc::clone(&correction.object.uid)) {
            self.corrections.push_back(correction);
        }
    }

    /// The next step that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Due, Assignment)> {
        while self.busy.values().filter(|busy| busy.name.is_none()).count() < CORRECTING
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
        let Placed { uid, name, since } = self.turns.next(head)?;
        // It waits for this head since it is its head, at the longest.
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

    /// A step has ended.
    pub(super) fn ended(&mut self, uid: &Arc<str>, ended: &Ended, now: Instant) {
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
            Ended::Again(None) => _ = self.again.insert(Arc::clone(uid), now + AGAIN),
            Ended::Again(Some(_)) => {
                let failures = self.failures.entry(Arc::clone(uid)).or_default();
                let pause = AGAIN.saturating_mul(1 << (*failures).min(5)).min(RARELY);
                *failures += 1;
                self.again.insert(Arc::clone(uid), now + pause);
            }
            Ended::Settled => _ = self.failures.remove(uid),
            Ended::Waits => {}
        }
    }

    /// Is it left alone for a while?
    fn pauses(&self, uid: &str) -> bool {
        let waits = self.busy.contains_key(uid) || self.turns.contains(uid) || self.correcting.contains(uid);
        waits || self.failures.contains_key(uid) && self.again.contains_key(uid)
    }

    /// Looks at the time, once a second.
    pub(super) async fn look(&mut self, current: &Current, now: Instant) {
        let due: Vec<_> = self.again.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in due {
            self.again.remove(&uid);
            self.queue(uid, now);
        }
        // By a configuration that may be outdated nobody is passed over.
        let age = current.freshness().age(now).filter(|_| current.freshness().is_fresh(now));
        let Some(read) = age.and_then(|age| now.checked_sub(age)) else { return };
        let generation = current.load();
        // First those whose correction has not failed before: the others must not keep them waiting.
        let this = &*self;
        let idle = move |failed: bool| {
            let entries = this.objects.entries().filter(|entry| !this.pauses(&entry.object.uid));
            entries.filter(move |entry| this.failures.contains_key(&entry.object.uid) == failed)
        };
        let late = idle(false).chain(idle(true)).filter_map(|entry| {
            let rule = head_rule(&generation, &entry.object);
            let pending = entry.object.list.result.is_none() && entry.object.list.head().is_some();
            (pending && now >= entry.since + rule.timeout).then(|| Correction::of(&entry.object, rule)).flatten()
        });
        let late: Vec<_> = late.take(LATE.saturating_sub(self.corrections.len())).collect();
        late.into_iter().for_each(|correction| self.correct(correction, LATE));
        self.control(read, current, now).await;
    }

    /// Compares snapshots, as often as the controller wants.
    async fn control(&mut self, read: Instant, current: &Current, now: Instant) {
        if self.objects.is_synced() && self.controller.is_due(now) {
            let (objects, mut controller) =
                (self.objects.after(None, usize::MAX), std::mem::take(&mut self.controller));
            let comparing = offload::run(INDEXED * objects.len(), move || {
                controller.compare(HeadIndex::of(objects, now));
                controller
            });
            self.controller = comparing.await;
        }
        let generation = current.load();
        // Objects whose head may take longer, or is another one by now, keep none waiting.
        loop {
            let overdue = self.controller.overdue(Some(read), CORRECTIONS.saturating_sub(self.corrections.len()));
            if overdue.is_empty() {
                return;
            }
            let correction = |overdue: &OverdueObject| {
                let entry = self.objects.get(overdue.uid())?;
                overdue.correction(&entry.object, |object| head_rule(&generation, object))
            };
            let corrections: Vec<_> = overdue.iter().filter_map(correction).collect();
            corrections.into_iter().for_each(|correction| self.correct(correction, CORRECTIONS));
        }
    }
}

/// Is the object so old that its head goes, which fails open?
fn is_old(current: &Current, object: &StoredObject, times: (i64, i64), now: Instant) -> bool {
    if !current.freshness().is_fresh(now) {
        return false;
    }
    let generation = current.load();
    let rule = head_rule(&generation, object);
    let must_act = |_: &str| rule.policy != FailurePolicy::Ignore;
    let repair = ReadRepair::of(generation.snapshot.initializers_of(&object.group, &object.resource));
    repair.head(&object.list, times, must_act).is_some()
}

#[cfg(test)]
#[path = "agenda/tests.rs"]
mod tests;

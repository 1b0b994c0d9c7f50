//! Agenda: marked objects that are known, and which of them is to make a step now.
//!
//! An object's turn is due when it is new, when it has changed, and again a second after a try that failed. A head that has
//! had its time is corrected by its failure policy; so is one that two snapshots of the [`Controller`] find, whatever the
//! timers say, and, on each list, one of an object that is older than [`ReadRepair`] says.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{follow::News, resource::ServedResource, step::head_rule, turn::Ended};
use crate::{
    initialize::{
        Controller, ReadRepair, Unfinished,
        controller::{HeadIndex, OverdueObject},
        unfinished::{Correction, Remedy, StoredEvent, StoredObject},
    },
    live::Current,
    memory::Reservation,
    model::FailurePolicy,
    offload,
};

/// Pause before a turn is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Corrections of one look.
const CORRECTIONS: usize = 500;
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

/// Objects that are known.
#[derive(Debug)]
pub(super) struct Agenda {
    objects: Unfinished,
    resources: HashMap<Arc<str>, Arc<ServedResource>>,
    /// Turns that are due, in order, each once.
    due: VecDeque<Arc<str>>,
    queued: HashSet<Arc<str>>,
    corrections: VecDeque<Correction>,
    /// Objects that are worked on, each with whether it has changed since.
    busy: HashMap<Arc<str>, bool>,
    again: BTreeMap<Arc<str>, Instant>,
    controller: Controller,
    room: Reservation,
}

impl Agenda {
    /// None; what is known later has its room in the memory budget.
    pub(super) fn new(room: Reservation) -> Self {
        let (objects, resources, due, queued, corrections) = Default::default();
        let (busy, again, controller) = Default::default();
        Self { objects, resources, due, queued, corrections, busy, again, controller, room }
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
            News::Listed { resource, objects, now: theirs } => {
                let there: HashSet<Arc<str>> = objects.iter().map(|(object, _)| Arc::clone(&object.uid)).collect();
                let of_resource = self
                    .resources
                    .iter()
                    .filter(|(_, of)| (&of.group, &of.resource) == (&resource.group, &resource.resource));
                let gone: Vec<_> =
                    of_resource.map(|(uid, _)| Arc::clone(uid)).filter(|uid| !there.contains(uid)).collect();
                gone.iter().for_each(|uid| self.forget(uid, now));
                let mut old = Vec::new();
                for (object, created) in objects {
                    if let Some((created, theirs)) = created.zip(theirs)
                        && is_old(current, &object, (created, theirs), now)
                    {
                        old.push(Arc::clone(&object.uid));
                    }
                    self.put(&resource, object, now);
                }
                for entry in old.iter().filter_map(|uid| self.objects.get(uid)) {
                    let head = entry.object.list.head().unwrap_or_default().into();
                    let object = Arc::clone(&entry.object);
                    self.corrections.push_back(Correction { object, remedy: Remedy::RemoveHead(head) });
                }
                self.objects.take(StoredEvent::Synced, now);
            }
        }
    }

    fn put(&mut self, resource: &Arc<ServedResource>, object: StoredObject, now: Instant) {
        let uid = Arc::clone(&object.uid);
        let same = |known: &Arc<StoredObject>| known.resource_version == object.resource_version;
        let known = self.objects.get(&uid).is_some_and(|known| same(&known.object));
        self.objects.take(StoredEvent::Unfinished(object), now);
        let more = self.objects.size().saturating_sub(self.room.bytes());
        if more > 0 && !self.room.try_grow(more.max(4096)) {
            // The next list has it again.
            return self.forget(&uid, now);
        }
        self.resources.insert(Arc::clone(&uid), Arc::clone(resource));
        match self.busy.get_mut(&uid) {
            // A list tells nothing new of it.
            Some(_) if known => {}
            Some(changed) => *changed = true,
            None => self.queue(uid),
        }
    }

    fn forget(&mut self, uid: &Arc<str>, now: Instant) {
        self.objects.take(StoredEvent::Gone { uid: Arc::clone(uid) }, now);
        self.resources.remove(uid);
        self.again.remove(uid);
        self.queued.remove(uid);
        if self.objects.is_empty() {
            self.room.shrink_to(0);
        }
    }

    fn queue(&mut self, uid: Arc<str>) {
        if self.queued.insert(Arc::clone(&uid)) {
            self.due.push_back(uid);
        }
    }

    /// The next step that is due.
    pub(super) fn next(&mut self) -> Option<(Due, Assignment)> {
        while let Some(correction) = self.corrections.pop_front() {
            let uid = Arc::clone(&correction.object.uid);
            if let Some(assignment) = self.begin(&uid) {
                return Some((Due::Correction(correction), assignment));
            }
        }
        while let Some(uid) = self.due.pop_front() {
            if self.queued.remove(&uid)
                && let Some(assignment) = self.begin(&uid)
            {
                return Some((Due::Turn, assignment));
            }
        }
        None
    }

    fn begin(&mut self, uid: &Arc<str>) -> Option<Assignment> {
        if self.busy.contains_key(uid) {
            return None;
        }
        let entry = self.objects.get(uid)?;
        let (stored, since) = (Arc::clone(&entry.object), entry.since);
        let resource = Arc::clone(self.resources.get(uid)?);
        self.busy.insert(Arc::clone(uid), false);
        Some(Assignment { resource, stored, since })
    }

    /// A step has ended.
    pub(super) fn ended(&mut self, uid: &Arc<str>, ended: &Ended, now: Instant) {
        let changed = self.busy.remove(uid).unwrap_or_default();
        match ended {
            _ if changed => self.queue(Arc::clone(uid)),
            Ended::Again(_) => _ = self.again.insert(Arc::clone(uid), now + AGAIN),
            Ended::Settled | Ended::Waits => {}
        }
    }

    /// Looks at the time, once a second.
    pub(super) async fn look(&mut self, current: &Current, now: Instant) {
        let due: Vec<_> = self.again.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in due {
            self.again.remove(&uid);
            self.queue(uid);
        }
        // By a configuration that may be outdated nobody is passed over.
        let age = current.age(now).filter(|_| current.is_fresh(now));
        let Some(read) = age.and_then(|age| now.checked_sub(age)) else { return };
        let generation = current.load();
        let idle = self.objects.entries().filter(|entry| !self.busy.contains_key(&entry.object.uid));
        let late = idle.filter_map(|entry| {
            let rule = head_rule(&generation, &entry.object);
            let pending = entry.object.list.result.is_none() && entry.object.list.head().is_some();
            (pending && now >= entry.since + rule.timeout).then(|| Correction::of(&entry.object, rule)).flatten()
        });
        let late: Vec<_> = late.take(CORRECTIONS.saturating_sub(self.corrections.len())).collect();
        self.corrections.extend(late);
        self.control(read, current, now).await;
    }

    /// Compares snapshots, as often as the controller wants.
    async fn control(&mut self, read: Instant, current: &Current, now: Instant) {
        if self.objects.is_synced() && self.controller.is_due(now) {
            let (objects, mut controller) =
                (self.objects.behind(None, usize::MAX), std::mem::take(&mut self.controller));
            let comparing = offload::run(INDEXED * objects.len(), move || {
                controller.compare(HeadIndex::of(objects, now));
                controller
            });
            self.controller = comparing.await;
        }
        let overdue = self.controller.overdue(Some(read), CORRECTIONS.saturating_sub(self.corrections.len()));
        if overdue.is_empty() {
            return;
        }
        let generation = current.load();
        let correction = |overdue: &OverdueObject| {
            let entry = self.objects.get(overdue.uid())?;
            overdue.correction(&entry.object, |object| head_rule(&generation, object))
        };
        let corrections: Vec<_> = overdue.iter().filter_map(correction).collect();
        self.corrections.extend(corrections);
    }
}

/// Is the object so old that its head goes, which fails open?
fn is_old(current: &Current, object: &StoredObject, times: (i64, i64), now: Instant) -> bool {
    if !current.is_fresh(now) {
        return false;
    }
    let rule = head_rule(&current.load(), object);
    let must_act = |_: &str| rule.policy != FailurePolicy::Ignore;
    ReadRepair::default().head(&object.list, times, must_act).is_some()
}

#[cfg(test)]
#[path = "agenda/tests.rs"]
mod tests;

//! Stored objects: the unfinished objects that apiservers report, and the CREATEs that are held for them.
//!
//! An apiserver that follows reports its unfinished objects and receives corrections of them. A hold waits for the end
//! of one object's initialization, and sends corrections of a late head. If this state is lost, the apiserver reports
//! and requests holds again. Lookups go to every apiserver of a client, so that one that hangs delays only itself.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use gatepost_api::StatusInfo;
use gatepost_base::{clock::now, offload};
use tokio::{
    sync::{Notify, mpsc},
    task::yield_now,
    time::sleep_until,
};

use super::{
    Initializers,
    controller::{Controller, Correction, HeadRule, INDEX_ENTRY_BYTES},
    failure::size_of_result,
    hub::Recent,
    unfinished::{HoldOutcome, StoredEvent, StoredObject, Unfinished, UnfinishedEntry},
};

/// Maximum number of queued messages of holds to one apiserver. Further messages are dropped, and sent again later.
const MAX_QUEUED_MESSAGES: usize = 1024;
/// Time for the report of an object that was just stored. After this time, the object is looked up.
const FIRST_LOOKUP_DELAY: Duration = Duration::from_millis(250);
/// Interval at which a correction or a lookup is sent again while it has no effect.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of objects that are visited without releasing the lock.
const MAX_BATCH_OBJECTS: usize = 4096;
/// Approximate size of a kept result without its texts, in bytes.
const RESULT_OVERHEAD: usize = 256;

/// An object as a hold identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoughtObject {
    /// API group.
    pub group: Box<str>,
    /// Resource.
    pub resource: Box<str>,
    /// Namespace.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// uid.
    pub uid: Arc<str>,
}

impl SoughtObject {
    /// Returns the object as it was stored, as far as the hold knows it.
    pub fn as_stored(&self, resource_version: &str) -> StoredObject {
        let Self { group, resource, namespace, name, uid } = self.clone();
        let (resource_version, list) = (resource_version.into(), Initializers::default());
        StoredObject { group, resource, namespace, name, uid, resource_version, list }
    }
}

/// Message to an apiserver that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToFollower {
    /// Make this change.
    Correct(Correction),
    /// Report this object.
    Look(Arc<SoughtObject>),
}

/// A queued message. It does not keep an object that has changed, or a hold that has ended, in memory.
#[derive(Debug)]
enum QueuedMessage {
    Correct(Weak<StoredObject>, HeadRule),
    Look(Weak<SoughtObject>),
}

/// Error of a hold that has timed out, with the object as it was last reported, if it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldTimeout(pub Option<Arc<StoredObject>>);

/// Stored objects of all apiservers that follow this process.
#[derive(Debug, Default)]
pub struct StoredObjects {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    followers: BTreeMap<u64, Follower>,
    holds: HashMap<Arc<str>, Vec<Hold>>,
}

#[derive(Debug)]
struct Follower {
    client: Arc<str>,
    unfinished: Unfinished,
    /// Results of objects that have failed and are gone, for creators whose CREATE is held only later.
    failures: Recent<Arc<str>, Box<StatusInfo>>,
    to: mpsc::Sender<QueuedMessage>,
}

impl Follower {
    /// Returns the result of an object that is reported as failed.
    fn reported_failure(&self, uid: &str) -> Option<&StatusInfo> {
        self.unfinished.get(uid)?.object.list.result.as_deref()
    }
}

#[derive(Debug)]
struct Hold {
    id: u64,
    client: Arc<str>,
    wake: Arc<Notify>,
    outcome: Option<HoldOutcome>,
}

impl StoredObjects {
    /// Waits for the end of an object's initialization, as apiservers of that client report it. `rule` returns the rule
    /// of an object's head; `None` while the configuration may be outdated.
    ///
    /// # Errors
    /// [`HoldTimeout`].
    pub async fn hold(
        &self,
        client: &Arc<str>,
        sought: &Arc<SoughtObject>,
        deadline: Instant,
        rule: impl Fn(&StoredObject) -> Option<HeadRule>,
    ) -> Result<HoldOutcome, HoldTimeout> {
        let registration = self.register(client, &sought.uid);
        let started = now();
        let (mut looked_up, mut corrected): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let now = now();
            let wake = {
                let state = self.state();
                if let Some(outcome) = state.outcome(client, &sought.uid, registration.id) {
                    return Ok(outcome);
                }
                let reports = state.reports(client, &sought.uid);
                if now >= deadline {
                    let last = reports.into_iter().max_by_key(|(_, entry)| entry.since);
                    return Err(HoldTimeout(last.map(|(_, entry)| entry.object)));
                }
                let mut wake = deadline.min(now + RETRY_INTERVAL);
                // An object that is missing in a complete report is initialized, or deleted, or so new that its event
                // is still pending: have it looked up in the storage.
                let due = looked_up.map_or(started + FIRST_LOOKUP_DELAY, |looked_up| looked_up + RETRY_INTERVAL);
                if now < due {
                    wake = wake.min(due);
                } else if state.request_lookups(client, sought) {
                    looked_up = Some(now);
                }
                let before = corrected;
                for (to, UnfinishedEntry { object, since }) in &reports {
                    let Some(rule) = rule(object) else { continue };
                    let due =
                        (*since + rule.timeout).max(before.map_or(*since, |corrected| corrected + RETRY_INTERVAL));
                    if now < due {
                        wake = wake.min(due);
                    } else {
                        let _ = to.try_send(QueuedMessage::Correct(Arc::downgrade(object), rule));
                        corrected = Some(now);
                    }
                }
                wake
            };
            tokio::select! {
                () = registration.wake.notified() => {}
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    /// Adds an apiserver of this client that follows.
    pub fn follow(self: &Arc<Self>, client: &Arc<str>) -> Following {
        let (to, queue) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        let (unfinished, failures) = Default::default();
        state.followers.insert(id, Follower { client: Arc::clone(client), unfinished, failures, to });
        drop(state);
        let (objects, client) = (Arc::clone(self), Arc::clone(client));
        Following { objects, client, id, queue, controller: Controller::default() }
    }

    /// Returns the number of reported objects of all apiservers.
    pub fn unfinished(&self) -> usize {
        self.state().followers.values().map(|follower| follower.unfinished.len()).sum()
    }

    /// Returns the number of CREATEs that are held.
    pub fn held(&self) -> usize {
        self.state().holds.values().map(Vec::len).sum()
    }

    fn register(&self, client: &Arc<str>, uid: &Arc<str>) -> Registration<'_> {
        let mut state = self.state();
        state.next += 1;
        let (id, wake) = (state.next, Arc::new(Notify::new()));
        let hold = Hold { id, client: Arc::clone(client), wake: Arc::clone(&wake), outcome: None };
        state.holds.entry(Arc::clone(uid)).or_default().push(hold);
        Registration { objects: self, uid: Arc::clone(uid), id, wake }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the outcome of the object, if known.
    fn outcome(&self, client: &str, uid: &str, id: u64) -> Option<HoldOutcome> {
        let hold = self.holds.get(uid)?.iter().find(|hold| hold.id == id)?;
        let failed = || {
            let result = self.followers_of(client).find_map(|follower| {
                follower.reported_failure(uid).or_else(|| follower.failures.get(uid).map(AsRef::as_ref))
            });
            result.map(|result| HoldOutcome::Failed(Box::new(result.clone())))
        };
        hold.outcome.clone().or_else(failed)
    }

    /// Returns the followers of one client.
    fn followers_of(&self, client: &str) -> impl Iterator<Item = &Follower> {
        self.followers.values().filter(move |follower| *follower.client == *client)
    }

    /// Returns the object as each apiserver that has it reports it.
    fn reports(&self, client: &str, uid: &str) -> Vec<(mpsc::Sender<QueuedMessage>, UnfinishedEntry)> {
        let report = |follower: &Follower| Some((follower.to.clone(), follower.unfinished.get(uid)?.clone()));
        self.followers_of(client).filter_map(report).collect()
    }

    /// Requests lookups from each apiserver of the client with a complete report without the object. False if none has.
    fn request_lookups(&self, client: &str, sought: &Arc<SoughtObject>) -> bool {
        let lacks = |unfinished: &Unfinished| unfinished.is_synced && unfinished.get(&sought.uid).is_none();
        let lacking = self.followers_of(client).filter(|follower| lacks(&follower.unfinished));
        lacking.fold(false, |_, follower| {
            // A full queue drops the message. The hold requests the lookup again later.
            let _ = follower.to.try_send(QueuedMessage::Look(Arc::downgrade(sought)));
            true
        })
    }
}

/// A registered hold. Dropping it removes the hold.
struct Registration<'a> {
    objects: &'a StoredObjects,
    uid: Arc<str>,
    id: u64,
    wake: Arc<Notify>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut state = self.objects.state();
        if let Some(holds) = state.holds.get_mut(&self.uid) {
            holds.retain(|hold| hold.id != self.id);
            if holds.is_empty() {
                state.holds.remove(&self.uid);
            }
        }
    }
}

/// One apiserver that follows. Dropping it removes its reports.
#[derive(Debug)]
pub struct Following {
    objects: Arc<StoredObjects>,
    client: Arc<str>,
    id: u64,
    queue: mpsc::Receiver<QueuedMessage>,
    controller: Controller,
}

impl Following {
    /// Applies an event. Returns false for the end of an object that was not reported before and has no hold.
    pub fn apply(&self, event: StoredEvent) -> bool {
        let now = now();
        let mut state = self.objects.state();
        let State { followers, holds, .. } = &mut *state;
        let Some(follower) = followers.get_mut(&self.id) else { return true };
        let mut holds: Vec<_> = match &event {
            // Each hold of the client may request lookups from now on.
            StoredEvent::Synced if !follower.unfinished.is_synced => holds.values_mut().flatten().collect(),
            StoredEvent::Synced => Vec::new(),
            StoredEvent::Unfinished(StoredObject { uid, .. })
            | StoredEvent::Initialized { uid, .. }
            | StoredEvent::Gone { uid } => holds.get_mut(uid).into_iter().flatten().collect(),
        };
        holds.retain(|hold| hold.client == self.client);
        let is_known = match &event {
            StoredEvent::Initialized { uid, .. } | StoredEvent::Gone { uid } => {
                follower.unfinished.get(uid).is_some() || !holds.is_empty()
            }
            StoredEvent::Unfinished(_) | StoredEvent::Synced => true,
        };
        let end = event.end().and_then(|(uid, end)| match (end, follower.reported_failure(uid)) {
            // Keep the result for a creator whose CREATE is held only later.
            (Some(HoldOutcome::Deleted), Some(result)) => {
                let result = Box::new(result.clone());
                let bytes = RESULT_OVERHEAD + uid.len() + size_of_result(&result);
                follower.failures.insert(Arc::clone(uid), result.clone(), bytes, now);
                Some(HoldOutcome::Failed(result))
            }
            (end, _) => end,
        });
        for hold in holds {
            if hold.outcome.is_none() {
                hold.outcome.clone_from(&end);
            }
            hold.wake.notify_one();
        }
        follower.unfinished.apply(event, now);
        is_known
    }

    /// Removes the earlier report of an object because the new one cannot be used. Holds continue, and may have the
    /// object looked up.
    pub fn forget(&self, uid: &str) {
        if let Some(follower) = self.objects.state().followers.get_mut(&self.id) {
            follower.unfinished.remove(uid);
        }
    }

    /// Returns the next message of a hold.
    pub async fn recv(&mut self) -> Option<ToFollower> {
        loop {
            let correction = |object, rule| Correction::of(&object, rule).map(ToFollower::Correct);
            let message = match self.queue.recv().await? {
                QueuedMessage::Correct(object, rule) => object.upgrade().and_then(|object| correction(object, rule)),
                QueuedMessage::Look(sought) => sought.upgrade().map(ToFollower::Look),
            };
            if message.is_some() {
                return message;
            }
        }
    }

    /// Returns the approximate size of its objects and kept results, in bytes.
    pub fn size(&self) -> usize {
        let state = self.objects.state();
        state.followers.get(&self.id).map_or(0, |follower| follower.unfinished.size() + follower.failures.bytes())
    }

    /// Runs the controller, and returns at most `max` corrections. Must be called every second. `read` is the time at
    /// which the read of the configuration of `rule` began; `None` while the configuration may be outdated.
    pub async fn control(
        &mut self,
        read: Option<Instant>,
        rule: impl Fn(&StoredObject) -> HeadRule,
        max: usize,
    ) -> Vec<Correction> {
        let now = now();
        let is_synced = {
            let mut state = self.objects.state();
            let Some(follower) = state.followers.get_mut(&self.id) else { return Vec::new() };
            follower.failures.expire(now);
            follower.unfinished.is_synced
        };
        if is_synced && self.controller.is_due(now) {
            let objects = self.all().await;
            self.controller.take_snapshot(objects, now).await;
        }
        let mut corrections = Vec::new();
        // Objects whose head has more time, or has changed, must not delay the others.
        loop {
            let overdue = self.controller.overdue(read, max.saturating_sub(corrections.len()).min(MAX_BATCH_OBJECTS));
            if overdue.is_empty() {
                return corrections;
            }
            let objects: Vec<_> = {
                let state = self.objects.state();
                let Some(follower) = state.followers.get(&self.id) else { return corrections };
                let object = |uid| follower.unfinished.get(uid).map(|entry| Arc::clone(&entry.object));
                overdue.iter().filter_map(|overdue| Some((overdue, object(&overdue.uid)?))).collect()
            };
            let late = objects.iter().filter_map(|(overdue, object)| overdue.correction(object, &rule));
            corrections.extend(late);
            yield_now().await;
        }
    }

    /// Returns all of its objects, read in batches.
    async fn all(&self) -> Vec<Arc<StoredObject>> {
        let mut objects: Vec<Arc<StoredObject>> = Vec::new();
        loop {
            let next = {
                let state = self.objects.state();
                let Some(follower) = state.followers.get(&self.id) else { return objects };
                follower.unfinished.after(objects.last().map(|last| &*last.uid), MAX_BATCH_OBJECTS)
            };
            let is_last = next.len() < MAX_BATCH_OBJECTS;
            objects.extend(next);
            if is_last {
                return objects;
            }
            yield_now().await;
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // The follower is freed after the lock is released.
        let follower = self.objects.state().followers.remove(&self.id);
        let Some(follower) = follower else { return };
        let size = INDEX_ENTRY_BYTES * follower.unfinished.len();
        offload::discard(size, (follower, mem::take(&mut self.controller)));
    }
}

#[cfg(test)]
mod tests;

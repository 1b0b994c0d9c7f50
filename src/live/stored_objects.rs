//! Stored objects: what apiservers report of objects that are not initialized, and the CREATEs that are held for them.
//!
//! An apiserver follows: it reports its unfinished objects and is told what to correct of them. A hold waits for the end of
//! one of them, and sees to it that a head which is late does not stay. All of it can be lost: the apiserver reports anew,
//! and asks for its holds again.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, mpsc},
    time::sleep_until,
};

use crate::{
    initialize::{
        Controller, Initializers, Unfinished,
        controller::HeadIndex,
        unfinished::{Correction, HeadRule, HoldOutcome, StoredEvent, StoredObject, UnfinishedEntry},
    },
    offload,
};

/// Messages of holds that wait for one apiserver to take them; more are dropped, and come again.
const WAITING: usize = 1024;
/// Time for the report of an object that was just stored, before the apiserver is asked for it.
const SOON: Duration = Duration::from_millis(250);
/// Time for a correction, or a question, to have an effect before it is sent again.
const AGAIN: Duration = Duration::from_secs(2);
/// Bytes of one object in an index, about: what sorting it goes through.
const INDEXED: usize = 256;

/// An object as a hold names it.
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
    /// The same as it was stored, as far as the hold knows it.
    pub fn as_stored(&self, resource_version: &str) -> StoredObject {
        let Self { group, resource, namespace, name, uid } = self.clone();
        let (resource_version, list) = (resource_version.into(), Initializers::default());
        StoredObject { group, resource, namespace, name, uid, resource_version, list }
    }
}

/// Message to an apiserver that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToFollower {
    /// It is to make this change.
    Correct(Correction),
    /// It is to report this object.
    Look(SoughtObject),
}

/// End of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The object's initialization has ended.
    Over(HoldOutcome),
    /// The hold's own time has: the object as it is then, where it was reported.
    OutOfTime(Option<Arc<StoredObject>>),
}

/// Stored objects of all apiservers that follow this process.
#[derive(Debug, Default)]
pub struct StoredObjects {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    followers: BTreeMap<u64, Follower>,
    holds: HashMap<Arc<str>, Vec<Held>>,
}

#[derive(Debug)]
struct Follower {
    client: Arc<str>,
    unfinished: Unfinished,
    to: mpsc::Sender<ToFollower>,
}

#[derive(Debug)]
struct Held {
    id: u64,
    client: Arc<str>,
    wake: Arc<Notify>,
    outcome: Option<HoldOutcome>,
}

impl StoredObjects {
    /// An apiserver follows; `client` tells it from others.
    pub fn follow(self: &Arc<Self>, client: &Arc<str>) -> Following {
        let (to, told) = mpsc::channel(WAITING);
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        state.followers.insert(id, Follower { client: Arc::clone(client), unfinished: Unfinished::default(), to });
        drop(state);
        let (controller, corrections) = (Controller::default(), VecDeque::new());
        Following { objects: Arc::clone(self), client: Arc::clone(client), id, told, controller, corrections }
    }

    /// Waits for the end of an object's initialization, as apiservers of that client report it. `rule` is the configuration
    /// of an object's head; `None` while that is not known to be current.
    pub async fn hold(
        &self,
        client: &Arc<str>,
        sought: &SoughtObject,
        deadline: Instant,
        rule: impl Fn(&StoredObject) -> Option<HeadRule>,
    ) -> HoldEnd {
        let held = self.register(client, &sought.uid);
        let began = now();
        let mut sent: Option<Instant> = None;
        loop {
            let (now, wake) = (now(), deadline.min(now() + AGAIN));
            let wake = {
                let state = self.state();
                if let Some(outcome) = state.outcome(&sought.uid, held.id) {
                    return HoldEnd::Over(outcome);
                }
                let found = state.find(client, &sought.uid);
                if now >= deadline {
                    return HoldEnd::OutOfTime(found.map(|(_, entry)| entry.object));
                }
                match found {
                    Some((_, UnfinishedEntry { object, .. })) if object.list.result.is_some() => {
                        return HoldEnd::Over(
                            object.list.result.clone().map_or(HoldOutcome::Deleted, HoldOutcome::Failed),
                        );
                    }
                    Some((to, UnfinishedEntry { object, since })) => match rule(&object) {
                        None => wake,
                        Some(rule) => {
                            let due =
                                sent.map_or(since + rule.timeout, |sent| (sent + AGAIN).max(since + rule.timeout));
                            if now < due {
                                wake.min(due)
                            } else {
                                if let Some(correction) = Correction::of(&object, rule) {
                                    let _ = to.try_send(ToFollower::Correct(correction));
                                }
                                sent = Some(now);
                                wake
                            }
                        }
                    },
                    None => {
                        // An object that a full report does not list as unfinished is initialized, or deleted, or so
                        // new that its event is still to come: look it up in the storage.
                        let due = sent.map_or(began + SOON, |sent| sent + AGAIN);
                        let synced =
                            state.followers.values().find(|one| one.client == *client && one.unfinished.is_synced());
                        if let Some(follower) = synced.filter(|_| now >= due) {
                            let _ = follower.to.try_send(ToFollower::Look(sought.clone()));
                            sent = Some(now);
                        }
                        if now < due { wake.min(due) } else { wake }
                    }
                }
            };
            tokio::select! {
                () = held.wake.notified() => {}
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    /// Objects that are reported, of all apiservers.
    pub fn unfinished(&self) -> usize {
        self.state().followers.values().map(|follower| follower.unfinished.len()).sum()
    }

    /// CREATEs that are held.
    pub fn held(&self) -> usize {
        self.state().holds.values().map(Vec::len).sum()
    }

    fn register(&self, client: &Arc<str>, uid: &Arc<str>) -> Registered<'_> {
        let mut state = self.state();
        state.next += 1;
        let (id, wake) = (state.next, Arc::new(Notify::new()));
        let held = Held { id, client: Arc::clone(client), wake: Arc::clone(&wake), outcome: None };
        state.holds.entry(Arc::clone(uid)).or_default().push(held);
        Registered { objects: self, uid: Arc::clone(uid), id, wake }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn outcome(&self, uid: &str, id: u64) -> Option<HoldOutcome> {
        self.holds.get(uid)?.iter().find(|held| held.id == id)?.outcome.clone()
    }

    /// The object, and the apiserver that has reported it.
    fn find(&self, client: &str, uid: &str) -> Option<(mpsc::Sender<ToFollower>, UnfinishedEntry)> {
        let followers = self.followers.values().filter(|follower| *follower.client == *client);
        followers
            .filter_map(|follower| Some((follower.to.clone(), follower.unfinished.get(uid)?.clone())))
            .min_by_key(|(_, entry)| entry.since)
    }
}

/// A hold's place among all, given back when it is dropped.
struct Registered<'a> {
    objects: &'a StoredObjects,
    uid: Arc<str>,
    id: u64,
    wake: Arc<Notify>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut state = self.objects.state();
        if let Some(holds) = state.holds.get_mut(&self.uid) {
            holds.retain(|held| held.id != self.id);
            if holds.is_empty() {
                state.holds.remove(&self.uid);
            }
        }
    }
}

/// One apiserver that follows. Dropping it forgets what it has reported.
#[derive(Debug)]
pub struct Following {
    objects: Arc<StoredObjects>,
    client: Arc<str>,
    id: u64,
    told: mpsc::Receiver<ToFollower>,
    controller: Controller,
    corrections: VecDeque<Correction>,
}

impl Following {
    /// It reports.
    pub fn take(&self, event: StoredEvent) {
        let mut state = self.objects.state();
        if let Some((uid, ended)) = event.end() {
            let holds = state.holds.get_mut(uid).into_iter().flatten();
            for held in holds.filter(|held| held.client == self.client) {
                if held.outcome.is_none() {
                    held.outcome.clone_from(&ended);
                }
                held.wake.notify_one();
            }
        } else {
            // Everybody may ask now.
            state.holds.values().flatten().for_each(|held| held.wake.notify_one());
        }
        if let Some(follower) = state.followers.get_mut(&self.id) {
            follower.unfinished.take(event, now());
        }
    }

    /// The next message of a hold.
    pub async fn told(&mut self) -> Option<ToFollower> {
        self.told.recv().await
    }

    /// Bytes that its objects hold, about.
    pub fn size(&self) -> usize {
        self.objects.state().followers.get(&self.id).map_or(0, |follower| follower.unfinished.size())
    }

    /// The controller's part, called every second: at most `most` corrections. `read` is when the reading of the
    /// configuration began that `rule` is of.
    pub async fn control(
        &mut self,
        read: Option<Instant>,
        rule: impl Fn(&StoredObject) -> HeadRule,
        most: usize,
    ) -> Vec<Correction> {
        let now = now();
        let objects = {
            let state = self.objects.state();
            let follower = state.followers.get(&self.id).filter(|follower| follower.unfinished.is_synced());
            follower.filter(|_| self.controller.is_due(now)).map(|follower| follower.unfinished.all())
        };
        if let Some(objects) = objects {
            let mut controller = mem::take(&mut self.controller);
            let comparing = offload::run(INDEXED * objects.len(), move || {
                controller.compare(HeadIndex::of(objects, now));
                controller
            });
            self.controller = comparing.await;
        }
        if self.controller.has_overdue() {
            self.corrections.extend(self.controller.corrections(read, rule));
        }
        let most = most.min(self.corrections.len());
        self.corrections.drain(..most).collect()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.objects.state().followers.remove(&self.id);
    }
}

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
#[path = "stored_objects/tests.rs"]
mod tests;

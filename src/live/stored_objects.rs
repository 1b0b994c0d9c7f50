//! Stored objects: what apiservers report of objects that are not initialized, and the CREATEs that are held for them.
//!
//! An apiserver follows: it reports its unfinished objects and is told what to correct of them. A hold waits for the end of
//! one of them, and sees to it that a head which is late does not stay. All of it can be lost: the apiserver reports anew,
//! and asks for its holds again. Each apiserver of a client that can answer is asked, so that one that hangs keeps nothing
//! from the others.

mod following;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, mpsc},
    time::sleep_until,
};

pub use following::Following;

use crate::{
    initialize::{
        Initializers, RecentFailures, Unfinished,
        unfinished::{Correction, HeadRule, HoldOutcome, StoredObject, UnfinishedEntry},
    },
    model::StatusInfo,
};

/// Messages of holds that wait for one apiserver to take them; more are dropped, and come again.
const WAITING: usize = 1024;
/// Time for the report of an object that was just stored, before the apiserver is asked for it.
const SOON: Duration = Duration::from_millis(250);
/// Time for a correction, or a question, to have an effect before it is sent again.
const AGAIN: Duration = Duration::from_secs(2);

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
    Look(Arc<SoughtObject>),
}

/// The same while it waits. It keeps neither an object that has changed by then nor a hold that has ended.
#[derive(Debug)]
enum Queued {
    Correct(Weak<StoredObject>, HeadRule),
    Look(Weak<SoughtObject>),
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
    failures: RecentFailures,
    to: mpsc::Sender<Queued>,
}

#[derive(Debug)]
struct Held {
    id: u64,
    client: Arc<str>,
    wake: Arc<Notify>,
    outcome: Option<HoldOutcome>,
}

impl StoredObjects {
    /// Waits for the end of an object's initialization, as apiservers of that client report it. `rule` is the configuration
    /// of an object's head; `None` while that is not known to be current.
    pub async fn hold(
        &self,
        client: &Arc<str>,
        sought: &Arc<SoughtObject>,
        deadline: Instant,
        rule: impl Fn(&StoredObject) -> Option<HeadRule>,
    ) -> HoldEnd {
        let held = self.register(client, &sought.uid);
        let began = now();
        let (mut looked, mut corrected): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let now = now();
            let wake = {
                let state = self.state();
                if let Some(outcome) = state.outcome(client, &sought.uid, held.id) {
                    return HoldEnd::Over(outcome);
                }
                let reports = state.reports(client, &sought.uid);
                if now >= deadline {
                    let last = reports.into_iter().max_by_key(|(_, entry)| entry.since);
                    return HoldEnd::OutOfTime(last.map(|(_, entry)| entry.object));
                }
                let mut wake = deadline.min(now + AGAIN);
                // An object that a full report does not list as unfinished is initialized, or deleted, or so new that its event
                // is still to come: have it looked up in the storage.
                let due = looked.map_or(began + SOON, |looked| looked + AGAIN);
                if now < due {
                    wake = wake.min(due);
                } else if state.look(client, sought) {
                    looked = Some(now);
                }
                let before = corrected;
                for (to, UnfinishedEntry { object, since }) in &reports {
                    let Some(rule) = rule(object) else { continue };
                    let due = (*since + rule.timeout).max(before.map_or(*since, |corrected| corrected + AGAIN));
                    if now < due {
                        wake = wake.min(due);
                    } else {
                        let _ = to.try_send(Queued::Correct(Arc::downgrade(object), rule));
                        corrected = Some(now);
                    }
                }
                wake
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
    /// The end of the object, where it is known.
    fn outcome(&self, client: &str, uid: &str, id: u64) -> Option<HoldOutcome> {
        let held = self.holds.get(uid)?.iter().find(|held| held.id == id)?;
        let failed = || self.failed(client, uid).map(|result| HoldOutcome::Failed(Box::new(result.clone())));
        held.outcome.clone().or_else(failed)
    }

    /// The result of an object that has failed, also of one that is gone.
    fn failed(&self, client: &str, uid: &str) -> Option<&StatusInfo> {
        self.followers_of(client).find_map(|follower| {
            let there = follower.unfinished.get(uid).and_then(|entry| entry.object.list.result.as_deref());
            there.or_else(|| follower.failures.get(uid))
        })
    }

    /// Apiservers of one client.
    fn followers_of(&self, client: &str) -> impl Iterator<Item = &Follower> {
        self.followers.values().filter(move |follower| *follower.client == *client)
    }

    /// The object as each apiserver that has it reports it.
    fn reports(&self, client: &str, uid: &str) -> Vec<(mpsc::Sender<Queued>, UnfinishedEntry)> {
        let reported = |follower: &Follower| Some((follower.to.clone(), follower.unfinished.get(uid)?.clone()));
        self.followers_of(client).filter_map(reported).collect()
    }

    /// Asks each apiserver of the client whose report is complete and has not the object. False where there is none.
    fn look(&self, client: &str, sought: &Arc<SoughtObject>) -> bool {
        let knows = |unfinished: &Unfinished| unfinished.is_synced() && unfinished.get(&sought.uid).is_none();
        let asked = self
            .followers_of(client)
            .filter(|follower| knows(&follower.unfinished))
            .map(|follower| follower.to.try_send(Queued::Look(Arc::downgrade(sought))));
        asked.count() > 0
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

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
#[path = "stored_objects/tests.rs"]
mod tests;

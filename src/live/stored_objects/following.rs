//! Following: one apiserver that follows, its reports and the messages to it.

use std::{mem, sync::Arc, time::Instant};

use tokio::{sync::mpsc, task::yield_now};

use super::{Follower, Queued, StoredObjects, ToFollower, WAITING, now};
use crate::{
    initialize::{
        Controller, RecentFailures, Unfinished,
        controller::HeadIndex,
        unfinished::{Correction, HeadRule, HoldOutcome, StoredEvent, StoredObject},
    },
    offload,
};

/// Bytes of one object in an index, about: what sorting it goes through, and freeing it.
const INDEXED: usize = 256;
/// Objects that are looked at before others get the lock.
const AT_ONCE: usize = 4096;

/// One apiserver that follows. Dropping it forgets what it has reported.
#[derive(Debug)]
pub struct Following {
    objects: Arc<StoredObjects>,
    client: Arc<str>,
    id: u64,
    pub(super) queue: mpsc::Receiver<Queued>,
    controller: Controller,
}

impl StoredObjects {
    /// An apiserver follows; `client` names it.
    pub fn follow(self: &Arc<Self>, client: &Arc<str>) -> Following {
        let (to, queue) = mpsc::channel(WAITING);
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        let (unfinished, failures) = (Unfinished::default(), RecentFailures::default());
        state.followers.insert(id, Follower { client: Arc::clone(client), unfinished, failures, to });
        drop(state);
        Following {
            objects: Arc::clone(self),
            client: Arc::clone(client),
            id,
            queue,
            controller: Controller::default(),
        }
    }
}

impl Following {
    /// It reports. False where that is the end of an object which it has not reported before and no hold waits for.
    pub fn take(&self, event: StoredEvent) -> bool {
        let now = now();
        let mut state = self.objects.state();
        let state = &mut *state;
        let Some(follower) = state.followers.get_mut(&self.id) else { return true };
        let is_known = match &event {
            StoredEvent::Initialized { uid, .. } | StoredEvent::Gone { uid } => {
                let held = state.holds.get(uid).into_iter().flatten();
                follower.unfinished.get(uid).is_some() || held.into_iter().any(|held| held.client == self.client)
            }
            StoredEvent::Unfinished(_) | StoredEvent::Synced => true,
        };
        match event.end() {
            Some((uid, end)) => {
                let end = match (end, failure(follower, uid)) {
                    // Its creator gets the result also where the CREATE is held only now.
                    (Some(HoldOutcome::Deleted), Some(result)) => {
                        follower.failures.push(uid, result.clone(), now);
                        Some(HoldOutcome::Failed(result))
                    }
                    (end, _) => end,
                };
                let holds = state.holds.get_mut(uid).into_iter().flatten();
                for held in holds.filter(|held| held.client == self.client) {
                    if held.outcome.is_none() {
                        held.outcome.clone_from(&end);
                    }
                    held.wake.notify_one();
                }
            }
            // Each may ask now.
            None if !follower.unfinished.is_synced() => {
                let holds = state.holds.values().flatten();
                holds.filter(|held| held.client == self.client).for_each(|held| held.wake.notify_one());
            }
            None => {}
        }
        follower.unfinished.take(event, now);
        is_known
    }

    /// It reports an object in a way that is not taken: what it said of it before is not so any more. Holds go on, and may
    /// ask for it.
    pub fn forget(&self, uid: &str) {
        if let Some(follower) = self.objects.state().followers.get_mut(&self.id) {
            follower.unfinished.forget(uid);
        }
    }

    /// The next message of a hold.
    pub async fn recv(&mut self) -> Option<ToFollower> {
        loop {
            let message = match self.queue.recv().await? {
                Queued::Correct(object, rule) => {
                    let correction = object.upgrade().and_then(|object| Correction::of(&object, rule));
                    correction.map(ToFollower::Correct)
                }
                Queued::Look(sought) => sought.upgrade().map(ToFollower::Look),
            };
            if message.is_some() {
                return message;
            }
        }
    }

    /// Bytes that its objects hold, about.
    pub fn size(&self) -> usize {
        let state = self.objects.state();
        state.followers.get(&self.id).map_or(0, |follower| follower.unfinished.size() + follower.failures.size())
    }

    /// The controller's part, called every second: at most `most` corrections. `read` is when the reading of the
    /// configuration began that `rule` is of; `None` while that is not known to be current.
    pub async fn control(
        &mut self,
        read: Option<Instant>,
        rule: impl Fn(&StoredObject) -> HeadRule,
        most: usize,
    ) -> Vec<Correction> {
        let now = now();
        let is_synced = {
            let mut state = self.objects.state();
            let Some(follower) = state.followers.get_mut(&self.id) else { return Vec::new() };
            follower.failures.expire(now);
            follower.unfinished.is_synced()
        };
        if is_synced && self.controller.is_due(now) {
            let objects = self.all().await;
            let mut controller = mem::take(&mut self.controller);
            let comparing = offload::run(INDEXED * objects.len(), move || {
                controller.compare(HeadIndex::of(objects, now));
                controller
            });
            self.controller = comparing.await;
        }
        let mut corrections = Vec::new();
        // Objects whose head may take longer, or is another one by now, keep none waiting.
        loop {
            let overdue = self.controller.overdue(read, most.saturating_sub(corrections.len()).min(AT_ONCE));
            if overdue.is_empty() {
                return corrections;
            }
            let objects: Vec<_> = {
                let state = self.objects.state();
                let Some(follower) = state.followers.get(&self.id) else { return corrections };
                let object = |uid| follower.unfinished.get(uid).map(|entry| Arc::clone(&entry.object));
                overdue.iter().filter_map(|overdue| Some((overdue, object(overdue.uid())?))).collect()
            };
            let late = objects.iter().filter_map(|(overdue, object)| overdue.correction(object, &rule));
            corrections.extend(late);
            yield_now().await;
        }
    }

    /// All of its objects, a part after the other.
    async fn all(&self) -> Vec<Arc<StoredObject>> {
        let mut objects: Vec<Arc<StoredObject>> = Vec::new();
        loop {
            let next = {
                let state = self.objects.state();
                let Some(follower) = state.followers.get(&self.id) else { return objects };
                follower.unfinished.behind(objects.last().map(|last| &*last.uid), AT_ONCE)
            };
            let is_last = next.len() < AT_ONCE;
            objects.extend(next);
            if is_last {
                return objects;
            }
            yield_now().await;
        }
    }
}

/// The result of an object that is reported as failed.
fn failure(follower: &Follower, uid: &str) -> Option<Box<crate::model::StatusInfo>> {
    follower.unfinished.get(uid)?.object.list.result.clone()
}

impl Drop for Following {
    fn drop(&mut self) {
        // Freed once nobody waits for the lock.
        let gone = self.objects.state().followers.remove(&self.id);
        let Some(gone) = gone else { return };
        let size = INDEXED * gone.unfinished.len();
        offload::discard(size, (gone, mem::take(&mut self.controller)));
    }
}

//! Controller: heads that do not act although nobody holds a CREATE for them.
//!
//! Every 30 s it takes a snapshot of the unfinished objects, indexed by their heads, and compares it with the one before.
//! A head of the same object in both is overdue, unless its own timeout is longer: then it must have been the head in
//! snapshots that are so far apart. The correction is decided when the object's turn comes, for its state then and by the
//! configuration in force then, which was read after the snapshot; the change itself is conditional on the object's
//! resource version. So a pass may be repeated, run beside another replica's, or be interrupted anywhere.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost_api::{FailurePolicy, ResourceInitializers, StatusInfo};
use gatepost_base::offload;

use super::{Initializers, Lifecycle, unfinished::StoredObject};

/// Time between two snapshots.
// source: "Dynamic admission control configuration", "every 30s ... takes a snapshot of the uninitialized objects".
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);
/// Approximate bytes of one object in an index, which sorting and freeing it read.
pub(crate) const INDEX_ENTRY_BYTES: usize = 256;

/// Configuration of the name at the head of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRule {
    /// Consequence for the object when it does not act in time.
    pub policy: FailurePolicy,
    /// Time that it has.
    pub timeout: Duration,
}

impl HeadRule {
    /// Rule of an object's head, by the initializers of its resource.
    pub fn of(entry: Option<&ResourceInitializers>, object: &StoredObject) -> Self {
        let head = object.list.head().unwrap_or_default();
        let one = entry.and_then(|entry| entry.initializers.iter().find(|one| *one.name == *head));
        one.map_or_else(Self::default, |one| Self { policy: one.failure_policy, timeout: one.timeout })
    }
}

impl Default for HeadRule {
    /// The rule of a name that is not configured: the object must not wait for ever.
    fn default() -> Self {
        Self { policy: FailurePolicy::Ignore, timeout: Duration::from_secs(30) }
    }
}

/// Change of a stored object that its apiserver must make, while the object has the resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The object as it was reported.
    pub object: Arc<StoredObject>,
    /// The change.
    pub remedy: CorrectiveAction,
}

/// Change of an object that does not proceed by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorrectiveAction {
    /// The first entry of the list, which has this name, is removed.
    RemoveHead(Box<str>),
    /// The result is set, and the object deleted.
    Fail(Box<StatusInfo>),
    /// The object has failed, and is deleted.
    Delete,
}

impl Correction {
    /// Correction of an object whose head is overdue, or which has failed and still exists; `None` where nothing is wrong
    /// with it.
    pub fn of(object: &Arc<StoredObject>, rule: HeadRule) -> Option<Self> {
        let remedy = match (Lifecycle::of(Some(&object.list)), object.list.head()) {
            (Lifecycle::Failed, _) => CorrectiveAction::Delete,
            (Lifecycle::Pending(_), Some(head)) if rule.policy.fails_open() => {
                CorrectiveAction::RemoveHead(head.into())
            }
            (Lifecycle::Pending(_), Some(head)) => CorrectiveAction::Fail(Box::new(object.timed_out(head))),
            _ => return None,
        };
        Some(Self { object: Arc::clone(object), remedy })
    }
}

/// Objects with one head: group, resource and name; no name where the object has failed.
type Head = (Box<str>, Box<str>, Option<Box<str>>);

fn head_of(object: &StoredObject) -> Head {
    let head = object.list.head().filter(|_| object.list.result.is_none()).map(Into::into);
    (object.group.clone(), object.resource.clone(), head)
}

/// Unfinished objects at one moment, by head. It holds none of them.
#[derive(Debug)]
pub struct HeadIndex {
    taken: Instant,
    /// uids, each with the time of the first snapshot with this head.
    by_head: BTreeMap<Arc<Head>, BTreeMap<Arc<str>, Instant>>,
}

impl HeadIndex {
    /// Index of these objects, as they were then.
    pub fn of(objects: Vec<Arc<StoredObject>>, taken: Instant) -> Self {
        let mut by_head: BTreeMap<Arc<Head>, BTreeMap<_, _>> = BTreeMap::new();
        for object in objects {
            by_head.entry(Arc::new(head_of(&object))).or_default().insert(Arc::clone(&object.uid), taken);
        }
        Self { taken, by_head }
    }

    /// Objects that had the same head in an `older` snapshot, in order. They keep the time of that one.
    fn unchanged(&mut self, older: &Self) -> VecDeque<OverdueObject> {
        let mut unchanged = VecDeque::new();
        for (head, objects) in &mut self.by_head {
            let Some(before) = older.by_head.get(head) else { continue };
            for (uid, since) in objects {
                let Some(first) = before.get(uid) else { continue };
                *since = *first;
                let waited = self.taken.saturating_duration_since(*first);
                unchanged.push_back(OverdueObject { head: Arc::clone(head), uid: Arc::clone(uid), waited });
            }
        }
        unchanged
    }
}

/// An object that had the same head in two snapshots, or in more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdueObject {
    head: Arc<Head>,
    uid: Arc<str>,
    /// Time between the first of them and the last.
    waited: Duration,
}

impl OverdueObject {
    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its correction, as the object is now; `None` where it has another head by now, or its head has more time.
    pub fn correction(&self, now: &Arc<StoredObject>, rule: impl Fn(&StoredObject) -> HeadRule) -> Option<Correction> {
        if head_of(now) != *self.head {
            return None;
        }
        let (rule, waits_for_nobody) = (rule(now), self.head.2.is_none());
        (waits_for_nobody || self.waited >= rule.timeout).then(|| Correction::of(now, rule)).flatten()
    }
}

/// The last snapshot, and the overdue objects in it.
#[derive(Debug, Default)]
pub struct Controller {
    last: Option<HeadIndex>,
    overdue: VecDeque<OverdueObject>,
    /// Head and uid of the last one whose turn has come.
    decided: Option<(Arc<Head>, Arc<str>)>,
}

impl Controller {
    /// True when it is time for a snapshot.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|last| now.saturating_duration_since(last.taken) >= SNAPSHOT_INTERVAL)
    }

    /// Compares a snapshot with the one before. Objects that are still overdue are found again; those that had no turn
    /// are the first now.
    pub fn compare(&mut self, mut snapshot: HeadIndex) {
        let mut overdue = self.last.as_ref().map_or_else(VecDeque::new, |older| snapshot.unchanged(older));
        if let Some((head, uid)) = &self.decided {
            overdue.rotate_left(overdue.partition_point(|object| (&object.head, &object.uid) <= (head, uid)));
        }
        (self.overdue, self.last) = (overdue, Some(snapshot));
    }

    /// Takes a snapshot of these objects and compares it, beside the worker where there are many.
    pub(crate) async fn take_snapshot(&mut self, objects: Vec<Arc<StoredObject>>, now: Instant) {
        let mut controller = mem::take(self);
        let comparing = offload::run(INDEX_ENTRY_BYTES * objects.len(), move || {
            controller.compare(HeadIndex::of(objects, now));
            controller
        });
        *self = comparing.await;
    }

    /// The next overdue objects, at most `max`, by a configuration whose reading began at `read`; none before one was read
    /// that is newer than the snapshot.
    pub fn overdue(&mut self, read: Option<Instant>, max: usize) -> Vec<OverdueObject> {
        let Some(taken) = self.last.as_ref().map(|last| last.taken) else { return Vec::new() };
        if read.is_none_or(|read| read < taken) {
            return Vec::new();
        }
        let next: Vec<_> = self.overdue.drain(..max.min(self.overdue.len())).collect();
        if let Some(last) = next.last() {
            self.decided = Some((Arc::clone(&last.head), Arc::clone(&last.uid)));
        }
        next
    }
}

/// Read repair: the last of three ways in which a head goes that fails open. The timer of the held CREATE is the first,
/// the controller is the second. It needs nothing but the object that somebody reads, so it works where both have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRepair {
    /// Age from which the head of an object is removed on a read.
    pub older_than: Duration,
    /// Skew between the clock that wrote `creationTimestamp` and the one that is read now.
    pub skew: Duration,
}

impl Default for ReadRepair {
    /// 10 min, and 1 min of skew.
    // source: "Dynamic admission control configuration", "if the creationTimestamp is older than a global timeout (e.g.
    // 10min)".
    fn default() -> Self {
        Self { older_than: Duration::from_secs(600), skew: Duration::from_secs(60) }
    }
}

impl ReadRepair {
    /// Rule for objects with these initializers. Each that has more time than a head has by default may need all of it,
    /// one after the other.
    pub fn of(entry: Option<&ResourceInitializers>) -> Self {
        let (rule, usual) = (Self::default(), HeadRule::default().timeout);
        let all = entry.into_iter().flat_map(|entry| &entry.initializers);
        let more = all.map(|one| one.timeout.saturating_sub(usual)).sum::<Duration>();
        Self { older_than: rule.older_than + more, ..rule }
    }

    /// The name that must be removed from the front of the list, if any. `created` and `now` are seconds since 1970;
    /// `must_act` says of a name that it does not fail open. The removal itself is conditional on the object being as it
    /// was read, so that two readers at once remove one head.
    pub fn head(
        self,
        list: &Initializers,
        (created, now): (i64, i64),
        must_act: impl FnOnce(&str) -> bool,
    ) -> Option<&str> {
        // A creation in the future means that a clock is wrong by an unknown time.
        let age = u64::try_from(now.checked_sub(created)?).ok()?;
        let is_old = age > self.older_than.as_secs().saturating_add(self.skew.as_secs());
        let head = list.head().filter(|_| is_old && list.result.is_none())?;
        (!must_act(head)).then_some(head)
    }
}

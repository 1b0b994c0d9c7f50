//! Controller: corrects heads (first pending initializers) that do not act although no CREATE is held for them.
//!
//! Every 30 s, it takes a snapshot of the unfinished objects, indexed by their heads, and compares it with the previous
//! snapshot. An object with the same head in both is overdue. If the head's timeout is longer, it must be the head in
//! snapshots that far apart. A correction is decided later, from the object's state and the configuration at that time,
//! which was read after the snapshot. The change is conditional on the object's resource version. So a pass may be
//! repeated, run beside another replica's, or be interrupted at any point.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost_api::{FailurePolicy, ResourceInitializers, StatusInfo};
use gatepost_base::offload;

use super::{Initializers, unfinished::StoredObject};

/// Interval between two snapshots.
// source: "Dynamic admission control configuration", "every 30s ... takes a snapshot of the uninitialized objects".
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);
/// Approximate size of one object in an index, in bytes. Sorting and freeing an index read it.
pub(crate) const INDEX_ENTRY_BYTES: usize = 256;

/// Configuration of the head of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRule {
    /// Failure policy if the head does not act in time.
    pub policy: FailurePolicy,
    /// Timeout of the head.
    pub timeout: Duration,
}

impl HeadRule {
    /// Returns the rule of an object's head. `entry` has the initializers of its resource.
    pub fn of(entry: Option<&ResourceInitializers>, object: &StoredObject) -> Self {
        let head = object.list.head().unwrap_or_default();
        let one = entry.and_then(|entry| entry.initializers.iter().find(|one| *one.name == *head));
        one.map_or_else(Self::default, |one| Self { policy: one.failure_policy, timeout: one.timeout })
    }
}

impl Default for HeadRule {
    /// Returns the rule of a name that is not configured: the object must not wait for ever.
    fn default() -> Self {
        Self { policy: FailurePolicy::Ignore, timeout: Duration::from_secs(30) }
    }
}

/// Change of a stored object that its apiserver must make if the object still has its resource version.
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
    /// Remove the first entry of the list, which has this name.
    RemoveHead(Box<str>),
    /// Set the result, and delete the object.
    Fail(Box<StatusInfo>),
    /// Delete the object, which has failed.
    Delete,
}

impl Correction {
    /// Returns the correction of an object whose head is overdue, or which has failed and still exists; `None` if the
    /// object needs no correction.
    pub fn of(object: &Arc<StoredObject>, rule: HeadRule) -> Option<Self> {
        let remedy = match (&object.list.result, object.list.head()) {
            (Some(_), _) => CorrectiveAction::Delete,
            (None, Some(head)) if rule.policy.fails_open() => CorrectiveAction::RemoveHead(head.into()),
            (None, Some(head)) => CorrectiveAction::Fail(Box::new(object.timed_out(head))),
            (None, None) => return None,
        };
        Some(Self { object: Arc::clone(object), remedy })
    }
}

/// Group, resource and head of an object; no head if the object has failed.
type Head = (Box<str>, Box<str>, Option<Box<str>>);

fn head_of(object: &StoredObject) -> Head {
    let head = object.list.head().filter(|_| object.list.result.is_none()).map(Into::into);
    (object.group.clone(), object.resource.clone(), head)
}

/// Index of the unfinished objects at one moment, by head. It does not keep the objects in memory.
#[derive(Debug)]
pub struct HeadIndex {
    taken: Instant,
    /// uids of the objects, each with the time of its first snapshot with this head.
    by_head: BTreeMap<Arc<Head>, BTreeMap<Arc<str>, Instant>>,
}

impl HeadIndex {
    /// Builds the index of these objects, which were read at `taken`.
    pub fn of(objects: Vec<Arc<StoredObject>>, taken: Instant) -> Self {
        let mut by_head: BTreeMap<Arc<Head>, BTreeMap<_, _>> = BTreeMap::new();
        for object in objects {
            by_head.entry(Arc::new(head_of(&object))).or_default().insert(Arc::clone(&object.uid), taken);
        }
        Self { taken, by_head }
    }

    /// Returns the objects with the same head in an `older` snapshot, in order. They keep the time of that one.
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

/// An object that had the same head in two or more snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdueObject {
    head: Arc<Head>,
    /// The object's uid.
    pub uid: Arc<str>,
    /// Time between the first and the last of these snapshots.
    waited: Duration,
}

impl OverdueObject {
    /// Returns the correction of the object in its current state; `None` if its head has changed, or has more time.
    pub fn correction(&self, now: &Arc<StoredObject>, rule: impl Fn(&StoredObject) -> HeadRule) -> Option<Correction> {
        if head_of(now) != *self.head {
            return None;
        }
        let (rule, waits_for_nobody) = (rule(now), self.head.2.is_none());
        (waits_for_nobody || self.waited >= rule.timeout).then(|| Correction::of(now, rule)).flatten()
    }
}

/// The last snapshot, and its overdue objects.
#[derive(Debug, Default)]
pub struct Controller {
    last: Option<HeadIndex>,
    overdue: VecDeque<OverdueObject>,
    /// Head and uid of the last object that [`overdue`](Self::overdue) has returned.
    decided: Option<(Arc<Head>, Arc<str>)>,
}

impl Controller {
    /// Returns true if a snapshot is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|last| now.saturating_duration_since(last.taken) >= SNAPSHOT_INTERVAL)
    }

    /// Compares a snapshot with the previous one. Objects that are still overdue are listed again, and those that have
    /// not been returned yet come first.
    pub fn compare(&mut self, mut snapshot: HeadIndex) {
        let mut overdue = self.last.as_ref().map_or_else(VecDeque::new, |older| snapshot.unchanged(older));
        if let Some((head, uid)) = &self.decided {
            overdue.rotate_left(overdue.partition_point(|object| (&object.head, &object.uid) <= (head, uid)));
        }
        (self.overdue, self.last) = (overdue, Some(snapshot));
    }

    /// Takes a snapshot of these objects and compares it, on another thread if there are many.
    pub(crate) async fn take_snapshot(&mut self, objects: Vec<Arc<StoredObject>>, now: Instant) {
        let mut controller = mem::take(self);
        let comparing = offload::run(INDEX_ENTRY_BYTES * objects.len(), move || {
            controller.compare(HeadIndex::of(objects, now));
            controller
        });
        *self = comparing.await;
    }

    /// Returns the next overdue objects, at most `max`. `read` is the time at which the last read of the configuration
    /// began. Returns none if that was before the snapshot.
    pub fn overdue(&mut self, read: Option<Instant>, max: usize) -> Vec<OverdueObject> {
        if self.last.as_ref().is_none_or(|last| read < Some(last.taken)) {
            return Vec::new();
        }
        let next: Vec<_> = self.overdue.drain(..max.min(self.overdue.len())).collect();
        if let Some(last) = next.last() {
            self.decided = Some((Arc::clone(&last.head), Arc::clone(&last.uid)));
        }
        next
    }
}

/// Read repair: the third way to remove a head that fails open, after the timer of the held CREATE and the controller.
/// It needs only the object that is read, so it works if both have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRepair {
    /// Age from which a read removes the head of an object.
    pub older_than: Duration,
    /// Maximum skew between the clock that wrote `creationTimestamp` and the reader's clock.
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
    /// Returns the rule for objects with these initializers. Each timeout adds its time beyond the default, because the
    /// initializers may need all of their time one after the other.
    pub fn of(entry: Option<&ResourceInitializers>) -> Self {
        let (rule, usual) = (Self::default(), HeadRule::default().timeout);
        let all = entry.into_iter().flat_map(|entry| &entry.initializers);
        let more = all.map(|one| one.timeout.saturating_sub(usual)).sum::<Duration>();
        Self { older_than: rule.older_than + more, ..rule }
    }

    /// Returns the name to remove from the front of the list, if any. `created` and `now` are seconds since 1970.
    /// `must_act` returns true for a name that does not fail open. The removal must be conditional on the object being
    /// unchanged, so that two concurrent readers remove one head.
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

//! Controller: the heads that stay where they are though nobody holds a CREATE for them.
//!
//! Every 30 s it takes a snapshot of the unfinished objects, indexed by their heads, and compares it with the one before.
//! A head of the same object in both has had its time, unless its own is longer: then it stays until it has been the head
//! in snapshots that are so far apart. The correction is decided when the object's turn comes, as it is then, by the
//! configuration in force then, which was read after the snapshot; the change itself is conditional on the object's
//! resource version. So a pass may be repeated, run beside another replica's, or be interrupted anywhere.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::unfinished::{Correction, HeadRule, StoredObject};

/// Time between two snapshots.
// source: configuration proposal, "every 30s ... takes a snapshot of the uninitialized objects".
pub const EVERY: Duration = Duration::from_secs(30);

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
    /// Of these objects, as they were then.
    pub fn of(objects: Vec<Arc<StoredObject>>, taken: Instant) -> Self {
        let mut by_head: BTreeMap<Arc<Head>, BTreeMap<_, _>> = BTreeMap::new();
        for object in objects {
            by_head.entry(Arc::new(head_of(&object))).or_default().insert(Arc::clone(&object.uid), taken);
        }
        Self { taken, by_head }
    }

    /// Objects that had the same head in an `older` snapshot, in order. They have it since then.
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

    /// Its correction, as it is now; none where another is at its head by now, or where its head may take longer.
    pub fn correction(&self, now: &Arc<StoredObject>, rule: impl Fn(&StoredObject) -> HeadRule) -> Option<Correction> {
        if head_of(now) != *self.head {
            return None;
        }
        let (rule, waits_for_nobody) = (rule(now), self.head.2.is_none());
        (waits_for_nobody || self.waited >= rule.timeout).then(|| Correction::of(now, rule)).flatten()
    }
}

/// The last snapshot, and what it found overdue.
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
        self.last.as_ref().is_none_or(|last| now.saturating_duration_since(last.taken) >= EVERY)
    }

    /// Compares a snapshot with the one before. Objects that are still overdue are found again; where there are more
    /// than have had their turn, these are the first now.
    pub fn compare(&mut self, mut snapshot: HeadIndex) {
        let mut overdue = self.last.as_ref().map_or_else(VecDeque::new, |older| snapshot.unchanged(older));
        if let Some((head, uid)) = &self.decided {
            overdue.rotate_left(overdue.partition_point(|object| (&object.head, &object.uid) <= (head, uid)));
        }
        (self.overdue, self.last) = (overdue, Some(snapshot));
    }

    /// The next of those objects, `most` of them, by a configuration whose reading began at `read`; none before one was read
    /// that is newer than the snapshot.
    pub fn overdue(&mut self, read: Option<Instant>, most: usize) -> Vec<OverdueObject> {
        let Some(taken) = self.last.as_ref().map(|last| last.taken) else { return Vec::new() };
        if read.is_none_or(|read| read < taken) {
            return Vec::new();
        }
        let next: Vec<_> = self.overdue.drain(..most.min(self.overdue.len())).collect();
        if let Some(last) = next.last() {
            self.decided = Some((Arc::clone(&last.head), Arc::clone(&last.uid)));
        }
        next
    }
}

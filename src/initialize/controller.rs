//! Controller: the heads that stay where they are though nobody holds a CREATE for them.
//!
//! Every 30 s it takes a snapshot of the unfinished objects, indexed by their heads, and compares it with the one before.
//! A head of the same object in both has had its time. What becomes of the object is asked of a configuration that was
//! read after the snapshot; the change itself is conditional on the object's resource version. So a pass may be repeated,
//! run beside another replica's, or be interrupted anywhere.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::unfinished::{Correction, HeadRule, StoredObject};

/// Time between two snapshots.
// source: configuration proposal, "every 30s ... takes a snapshot of the uninitialized objects".
pub const EVERY: Duration = Duration::from_secs(30);

/// Objects with one head: group, resource and name; no name where the object has failed.
type Head = (Box<str>, Box<str>, Option<Box<str>>);

/// Unfinished objects at one moment, by head.
#[derive(Debug)]
pub struct HeadIndex {
    taken: Instant,
    by_head: BTreeMap<Head, BTreeMap<Arc<str>, Arc<StoredObject>>>,
}

impl HeadIndex {
    /// Of these objects, as they were then.
    pub fn of(objects: Vec<Arc<StoredObject>>, taken: Instant) -> Self {
        let mut by_head: BTreeMap<Head, BTreeMap<_, _>> = BTreeMap::new();
        for object in objects {
            let head = object.list.head().filter(|_| object.list.result.is_none()).map(Into::into);
            let key = (object.group.clone(), object.resource.clone(), head);
            by_head.entry(key).or_default().insert(Arc::clone(&object.uid), object);
        }
        Self { taken, by_head }
    }

    /// Objects, as they are here, that had the same head in an `older` snapshot.
    fn unchanged(&self, older: &Self) -> Vec<Arc<StoredObject>> {
        let mut unchanged = Vec::new();
        for (head, objects) in &self.by_head {
            let Some(before) = older.by_head.get(head) else { continue };
            unchanged.extend(
                objects.iter().filter(|(uid, _)| before.contains_key(*uid)).map(|(_, object)| Arc::clone(object)),
            );
        }
        unchanged
    }
}

/// The last snapshot, and what is to be corrected once the configuration has been read again.
#[derive(Debug, Default)]
pub struct Controller {
    last: Option<HeadIndex>,
    overdue: Vec<Arc<StoredObject>>,
}

impl Controller {
    /// True when it is time for a snapshot.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|last| now.saturating_duration_since(last.taken) >= EVERY)
    }

    /// Compares a snapshot with the one before.
    pub fn compare(&mut self, snapshot: HeadIndex) {
        self.overdue = self.last.as_ref().map_or_else(Vec::new, |older| snapshot.unchanged(older));
        self.last = Some(snapshot);
    }

    /// True while objects are to be corrected.
    pub fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Corrections of what is overdue, by a configuration whose reading began at `read`; none before one was read that is
    /// newer than the snapshot.
    pub fn corrections(&mut self, read: Option<Instant>, rule: impl Fn(&StoredObject) -> HeadRule) -> Vec<Correction> {
        let Some(taken) = self.last.as_ref().map(|last| last.taken) else { return Vec::new() };
        if read.is_none_or(|read| read < taken) {
            return Vec::new();
        }
        let overdue = std::mem::take(&mut self.overdue);
        overdue.iter().filter_map(|object| Correction::of(object, rule(object))).collect()
    }
}

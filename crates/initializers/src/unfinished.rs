//! Unfinished stored objects, as one apiserver reports them.
//!
//! This module persists nothing, because each object contains its state. After a restart, the apiserver reports all
//! objects again.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost_api::{StatusCause, StatusInfo, StatusMetadata};

use super::{
    Initializers,
    failure::{TIMED_OUT, cause, size_of_result},
};

/// One stored object that is not initialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// API group.
    pub group: Box<str>,
    /// Resource, plural.
    pub resource: Box<str>,
    /// Namespace; "" if it has none.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// uid.
    pub uid: Arc<str>,
    /// Resource version, on which every change of the object is conditional.
    pub resource_version: Box<str>,
    /// `metadata.initializers`.
    pub list: Initializers,
}

/// Approximate size of one object without its texts, including its entries in the map and in an index, in bytes.
const OBJECT_OVERHEAD: usize = 512;

impl StoredObject {
    /// Returns the approximate size in memory, in bytes: all texts, and the uid once more in an index.
    pub fn size(&self) -> usize {
        let Self { group, resource, namespace, name, uid, resource_version, list } = self;
        let pending: usize = list.pending.iter().map(|name| name.len() + 32).sum();
        let result = list.result.as_deref().map_or(0, size_of_result);
        let texts = [group, resource, namespace, name, resource_version].iter().map(|text| text.len()).sum::<usize>();
        OBJECT_OVERHEAD + texts + 2 * uid.len() + pending + result
    }

    /// Returns the result of the object if its head must act and did not act in time.
    pub(crate) fn timed_out(&self, head: &str) -> StatusInfo {
        let message = format!("Timeout: initializer \"{head}\" did not act in time; the object is deleted");
        self.timeout(message, cause(TIMED_OUT, "the object is deleted", head))
    }

    /// Returns the answer to the creator if the request times out before the object is initialized. The answer has the
    /// resource version from which the client can watch the object.
    pub fn still_pending(&self) -> StatusInfo {
        let head = self.list.head().unwrap_or_default();
        let message = format!("Timeout: the object waits for initializer \"{head}\", and may still be initialized");
        let why = format!("the object exists at resource version {} and is not initialized", self.resource_version);
        self.timeout(message, cause("InitializationPending", &why, head))
    }

    /// Returns a timeout without `retryAfterSeconds`: client-go would repeat the CREATE, and create another object.
    fn timeout(&self, message: String, cause: StatusCause) -> StatusInfo {
        let resource_version = self.resource_version.to_string();
        StatusInfo {
            metadata: Some(Box::new(StatusMetadata { resource_version, ..StatusMetadata::default() })),
            details_name: self.name.to_string(),
            details_group: self.group.to_string(),
            details_kind: self.resource.to_string(),
            details_uid: self.uid.to_string(),
            causes: vec![cause],
            ..StatusInfo::failure(504, "Timeout", message)
        }
    }
}

/// Event of a stored object, reported by an apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredEvent {
    /// The object is not initialized.
    Unfinished(StoredObject),
    /// The object is initialized, at this resource version.
    Initialized {
        /// Its uid.
        uid: Arc<str>,
        /// Its resource version.
        resource_version: Box<str>,
    },
    /// The object is gone.
    Gone {
        /// Its uid.
        uid: Arc<str>,
    },
    /// All objects that existed when the report began have been reported.
    Synced,
}

/// End of an object's initialization, for the hold of its CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// The object is initialized, at this resource version.
    Completed(Box<str>),
    /// The object has failed, and is deleted. Its creator gets this result.
    Failed(Box<StatusInfo>),
    /// The object is gone.
    Deleted,
}

impl StoredEvent {
    /// Returns the uid of the object, and the outcome if this event ends its initialization.
    pub fn end(&self) -> Option<(&Arc<str>, Option<HoldOutcome>)> {
        match self {
            Self::Unfinished(object) => Some((&object.uid, object.list.result.clone().map(HoldOutcome::Failed))),
            Self::Initialized { uid, resource_version } => {
                Some((uid, Some(HoldOutcome::Completed(resource_version.clone()))))
            }
            Self::Gone { uid } => Some((uid, Some(HoldOutcome::Deleted))),
            Self::Synced => None,
        }
    }
}

/// An unfinished object, and the time of its current head.
#[derive(Clone, Debug)]
pub struct UnfinishedEntry {
    /// The object.
    pub object: Arc<StoredObject>,
    /// Time of the first report with this head, plus all [delays](Unfinished::delay).
    pub since: Instant,
}

/// Unfinished objects of one apiserver, by uid.
#[derive(Debug, Default)]
pub struct Unfinished {
    objects: BTreeMap<Arc<str>, UnfinishedEntry>,
    /// All objects have been reported.
    pub is_synced: bool,
    size: usize,
}

impl Unfinished {
    /// Applies an event.
    pub fn apply(&mut self, report: StoredEvent, now: Instant) {
        match report {
            StoredEvent::Unfinished(object) => {
                let before = self.remove(&object.uid);
                let before = before.filter(|before| before.object.list.head() == object.list.head());
                let since = before.map_or(now, |before| before.since);
                self.size += object.size();
                let uid = Arc::clone(&object.uid);
                self.objects.insert(uid, UnfinishedEntry { object: Arc::new(object), since });
            }
            StoredEvent::Initialized { uid, .. } | StoredEvent::Gone { uid } => _ = self.remove(&uid),
            StoredEvent::Synced => self.is_synced = true,
        }
    }

    /// Removes an object, for example because its state is no longer known.
    pub fn remove(&mut self, uid: &str) -> Option<UnfinishedEntry> {
        let before = self.objects.remove(uid)?;
        self.size -= before.object.size();
        Some(before)
    }

    /// Gives the object's head more time, because it has waited for us.
    pub fn delay(&mut self, uid: &str, by: Duration) {
        if let Some(entry) = self.objects.get_mut(uid) {
            entry.since += by;
        }
    }

    /// Returns the object with this uid.
    pub fn get(&self, uid: &str) -> Option<&UnfinishedEntry> {
        self.objects.get(uid)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the approximate size of all objects, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns all objects, each with the time of its current head.
    pub fn entries(&self) -> impl Iterator<Item = &UnfinishedEntry> {
        self.objects.values()
    }

    /// Returns at most `max` objects after this uid, in order of uids; from the first one if `uid` is `None`.
    pub fn after(&self, uid: Option<&str>, max: usize) -> Vec<Arc<StoredObject>> {
        let from = uid.map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range::<str, _>((from, Bound::Unbounded));
        objects.take(max).map(|(_, entry)| Arc::clone(&entry.object)).collect()
    }
}

#[cfg(test)]
mod tests;

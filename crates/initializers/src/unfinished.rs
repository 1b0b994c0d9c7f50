//! Unfinished: the stored objects that are not initialized, as one apiserver reports them.
//!
//! Nothing is persisted here: the state of each object is in the object. After a restart the apiserver reports all of them
//! anew, and everything follows again.

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
    /// Namespace; "" where it is in none.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// uid.
    pub uid: Arc<str>,
    /// Resource version: it is changed only while it has this.
    pub resource_version: Box<str>,
    /// `metadata.initializers`.
    pub list: Initializers,
}

/// Approximate bytes of one object besides its texts, with its entries in the map and in an index.
const OBJECT_OVERHEAD: usize = 512;

impl StoredObject {
    /// Approximate size in memory: all its texts, and its uid once more in an index.
    pub fn size(&self) -> usize {
        let Self { group, resource, namespace, name, uid, resource_version, list } = self;
        let pending: usize = list.pending.iter().map(|name| name.len() + 32).sum();
        let result = list.result.as_deref().map_or(0, size_of_result);
        let texts = [group, resource, namespace, name, resource_version].iter().map(|text| text.len()).sum::<usize>();
        OBJECT_OVERHEAD + texts + 2 * uid.len() + pending + result
    }

    /// Result of the object when its head did not act in time and must.
    pub(crate) fn timed_out(&self, head: &str) -> StatusInfo {
        let message = format!("Timeout: initializer \"{head}\" did not act in time; the object is deleted again");
        self.timeout(message, cause(TIMED_OUT, "the object is deleted again", head))
    }

    /// Answer to the creator when the time of the request is over before the object is initialized. It tells the client
    /// from where to watch the object.
    pub fn still_pending(&self) -> StatusInfo {
        let head = self.list.head().unwrap_or_default();
        let message = format!("Timeout: the object waits for initializer \"{head}\", and may still be initialized");
        let why = format!("the object exists at resource version {} and is not initialized", self.resource_version);
        self.timeout(message, cause("InitializationPending", &why, head))
    }

    /// Without `retryAfterSeconds`: client-go would send the CREATE again, and make another object of it.
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

/// Report of an apiserver about its stored objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredEvent {
    /// An object is not initialized.
    Unfinished(StoredObject),
    /// An object is initialized, at that resource version.
    Initialized {
        /// Its uid.
        uid: Arc<str>,
        /// Its resource version.
        resource_version: Box<str>,
    },
    /// An object is gone.
    Gone {
        /// Its uid.
        uid: Arc<str>,
    },
    /// All objects that existed when the report began have been named.
    Synced,
}

/// End of an object's initialization, for the holder of its CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It is initialized, at that resource version.
    Completed(Box<str>),
    /// It has failed, and is deleted: its creator gets this.
    Failed(Box<StatusInfo>),
    /// It is gone.
    Deleted,
}

impl StoredEvent {
    /// The uid of the object, and its end, where this is it.
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

/// An object, and since when its head has been its head, as far as is known here.
#[derive(Clone, Debug)]
pub struct UnfinishedEntry {
    /// The object.
    pub object: Arc<StoredObject>,
    /// First report with this head.
    pub since: Instant,
}

/// Objects of one apiserver that are not initialized, by uid.
#[derive(Debug, Default)]
pub struct Unfinished {
    objects: BTreeMap<Arc<str>, UnfinishedEntry>,
    synced: bool,
    size: usize,
}

impl Unfinished {
    /// Applies a report.
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
            StoredEvent::Synced => self.synced = true,
        }
    }

    /// Forgets an object whose state is not known any more.
    pub fn remove(&mut self, uid: &str) -> Option<UnfinishedEntry> {
        let before = self.objects.remove(uid)?;
        self.size -= before.object.size();
        Some(before)
    }

    /// Gives the object's head so much more time, which it has waited for us.
    pub fn delay(&mut self, uid: &str, by: Duration) {
        if let Some(entry) = self.objects.get_mut(uid) {
            entry.since += by;
        }
    }

    /// One of the objects.
    pub fn get(&self, uid: &str) -> Option<&UnfinishedEntry> {
        self.objects.get(uid)
    }

    /// True once all of them have been named.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Approximate bytes of all objects.
    pub fn size(&self) -> usize {
        self.size
    }

    /// All objects, each with the time since when its head is its head.
    pub fn entries(&self) -> impl Iterator<Item = &UnfinishedEntry> {
        self.objects.values()
    }

    /// At most `max` objects after one in the order of uids; `None`: from the first on.
    pub fn after(&self, uid: Option<&str>, max: usize) -> Vec<Arc<StoredObject>> {
        let from = uid.map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range::<str, _>((from, Bound::Unbounded));
        objects.take(max).map(|(_, entry)| Arc::clone(&entry.object)).collect()
    }
}

#[cfg(test)]
mod tests;

//! Unfinished: the stored objects that are not initialized, as one apiserver reports them.
//!
//! Nothing here is kept: the state of each object is in the object. After a restart the apiserver reports what there is
//! anew, and all that follows from it follows again.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Initializers, Lifecycle, stored_result};
use crate::model::{FailurePolicy, ResourceInitializers, StatusCause, StatusInfo};

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
    /// Resource version: what is done to it is done only while it has this.
    pub resource_version: Box<str>,
    /// `metadata.initializers`.
    pub list: Initializers,
}

/// Bytes of one object besides its texts, about, and of its entries in the map and in an index.
const AROUND: usize = 512;

impl StoredObject {
    /// Bytes that it holds, about: all its texts, and its uid once more in an index.
    pub fn size(&self) -> usize {
        let Self { group, resource, namespace, name, uid, resource_version, list } = self;
        let pending: usize = list.pending.iter().map(|name| name.len() + 32).sum();
        let result = list.result.as_deref().map_or(0, stored_result::size);
        let texts = [group, resource, namespace, name, resource_version].iter().map(|text| text.len()).sum::<usize>();
        AROUND + texts + 2 * uid.len() + pending + result
    }
}

/// StoredEvent of an apiserver about its stored objects.
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
    /// All objects there were when the report began have been named.
    Synced,
}

/// End of an object's initialization, for whoever holds its CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It is initialized, at that resource version.
    Completed(Box<str>),
    /// It has failed, and is deleted: this is what its creator gets.
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
    /// Takes a report.
    pub fn take(&mut self, report: StoredEvent, now: Instant) {
        match report {
            StoredEvent::Unfinished(object) => {
                let before = self.forget(&object.uid);
                let head = |object: &StoredObject| object.list.head().map(str::to_owned);
                let same = before.filter(|before| head(&before.object) == head(&object));
                let since = same.map_or(now, |before| before.since);
                self.size += object.size();
                let uid = Arc::clone(&object.uid);
                self.objects.insert(uid, UnfinishedEntry { object: Arc::new(object), since });
            }
            StoredEvent::Initialized { uid, .. } | StoredEvent::Gone { uid } => _ = self.forget(&uid),
            StoredEvent::Synced => self.synced = true,
        }
    }

    /// Forgets an object of which it is not known any more how it is.
    pub fn forget(&mut self, uid: &str) -> Option<UnfinishedEntry> {
        let before = self.objects.remove(uid)?;
        self.size -= before.object.size();
        Some(before)
    }

    /// Its head has so much more time: it has waited for us, and not we for it.
    pub fn delay(&mut self, uid: &str, by: Duration) {
        if let Some(entry) = self.objects.get_mut(uid) {
            entry.since += by;
        }
    }

    /// One of them.
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

    /// Bytes that they hold, about.
    pub fn size(&self) -> usize {
        self.size
    }

    /// All of them, each with the time since when its head is its head.
    pub fn entries(&self) -> impl Iterator<Item = &UnfinishedEntry> {
        self.objects.values()
    }

    /// The objects behind one in the order of uids, `most` of them, as they are; `None`: from the first on.
    pub fn behind(&self, uid: Option<&str>, most: usize) -> Vec<Arc<StoredObject>> {
        let from = uid.map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range::<str, _>((from, Bound::Unbounded));
        objects.take(most).map(|(_, entry)| Arc::clone(&entry.object)).collect()
    }
}

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
    /// The rule of a name that nobody has configured, or does any more: the object must not wait for ever.
    fn default() -> Self {
        Self { policy: FailurePolicy::Ignore, timeout: Duration::from_secs(30) }
    }
}

/// Change of a stored object that its apiserver is to make, while the object has the resource version.
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
    /// Correction of an object whose head is overdue, or which has failed and is still there. None where nothing is wrong
    /// with it.
    pub fn of(object: &Arc<StoredObject>, rule: HeadRule) -> Option<Self> {
        let remedy = match (Lifecycle::of(Some(&object.list)), object.list.head()) {
            (Lifecycle::Failed, _) => CorrectiveAction::Delete,
            (Lifecycle::Pending(_), Some(head)) => match rule.policy {
                FailurePolicy::Ignore => CorrectiveAction::RemoveHead(head.into()),
                FailurePolicy::Fail | FailurePolicy::Retry => CorrectiveAction::Fail(Box::new(timed_out(object, head))),
            },
            _ => return None,
        };
        Some(Self { object: Arc::clone(object), remedy })
    }
}

/// Reason of the cause by which an object's time-out is told from a refusal by an initializer.
pub const TIMED_OUT: &str = "InitializationTimedOut";

/// Result of an object whose head did not act in time and must.
fn timed_out(object: &StoredObject, head: &str) -> StatusInfo {
    let cause =
        StatusCause { reason: TIMED_OUT.into(), message: "the object is deleted again".into(), field: head.to_owned() };
    StatusInfo {
        causes: vec![cause],
        ..late(object, &format!("Timeout: initializer \"{head}\" did not act in time; the object is deleted again"))
    }
}

/// Answer to the creator of an object that is still on its way when the time of the request is over: with it the client
/// can watch the object.
pub fn still_pending(object: &StoredObject) -> StatusInfo {
    let head = object.list.head().unwrap_or_default();
    let cause = StatusCause {
        reason: "InitializationPending".into(),
        message: format!("the object exists at resource version {} and is not initialized", object.resource_version),
        field: head.to_owned(),
    };
    StatusInfo {
        causes: vec![cause],
        ..late(object, &format!("Timeout: the object waits for initializer \"{head}\", and may still be initialized"))
    }
}

/// Without a time to try again: client-go would send the CREATE again, and make another object of it.
fn late(object: &StoredObject, message: &str) -> StatusInfo {
    StatusInfo {
        code: 504,
        status: "Failure".into(),
        reason: "Timeout".into(),
        message: message.to_owned(),
        metadata: Some(Box::new(crate::model::StatusMetadata {
            resource_version: object.resource_version.to_string(),
            ..Default::default()
        })),
        details_name: object.name.to_string(),
        details_group: object.group.to_string(),
        details_kind: object.resource.to_string(),
        details_uid: object.uid.to_string(),
        ..StatusInfo::default()
    }
}

#[cfg(test)]
#[path = "unfinished/tests.rs"]
mod tests;

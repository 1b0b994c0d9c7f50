//! New object: one task of an initializer, its answer, and recent answers.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use gatepost_wire::pb::{
    gatepost::v1::{Done, InitializerTask, initializer_answer::Outcome},
    k8s::io::{api::admission::v1::AdmissionRequest, apimachinery::pkg::apis::meta::v1::Status},
};

/// An object to initialize.
#[derive(Clone, Debug)]
pub struct NewObject {
    request: AdmissionRequest,
    namespace_labels: HashMap<String, String>,
    attempt: u32,
    time_left: Duration,
}

impl NewObject {
    pub(super) fn of(task: InitializerTask) -> Self {
        Self {
            request: task.review.and_then(|review| review.request).unwrap_or_default(),
            namespace_labels: task.namespace_labels.into_iter().collect(),
            attempt: task.attempt,
            time_left: Duration::from_millis(task.milliseconds.into()),
        }
    }

    /// Returns the request, with its creator (`user_info`), the namespace and the resource.
    pub fn request(&self) -> &AdmissionRequest {
        &self.request
    }

    /// Returns the object in JSON, as the initializers before this one have changed it.
    pub fn json(&self) -> &[u8] {
        self.request.object.as_ref().and_then(|object| object.raw.as_deref()).unwrap_or_default()
    }

    /// Parses the object.
    ///
    /// # Errors
    ///
    /// A refusal if the object is not of that type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ObjectRefusal> {
        serde_json::from_slice(self.json()).map_err(|error| format!("the object cannot be read: {error}").into())
    }

    /// Returns the labels of the request's namespace; empty if they are not known.
    pub fn namespace_labels(&self) -> &HashMap<String, String> {
        &self.namespace_labels
    }

    /// Returns true if another process may have acted on the object already, also on things outside the object.
    pub fn is_repeat(&self) -> bool {
        self.attempt > 1
    }

    /// Returns the time for the answer, from the arrival of the object.
    pub fn time_left(&self) -> Duration {
        self.time_left
    }

    /// Returns a digest of the request's uid and the object.
    pub(super) fn identity(&self) -> [u8; 32] {
        let uid = self.request.uid.as_deref().unwrap_or_default();
        let mut digest = Sha256::new();
        digest.update(u64::try_from(uid.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(uid);
        digest.update(self.json());
        digest.finalize().into()
    }
}

/// A change of an object, which completes the initializer's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectChange {
    patch: Vec<u8>,
    add: Vec<String>,
}

impl ObjectChange {
    /// Creates a change that changes nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a change from a JSON Patch (RFC 6902). An empty patch changes nothing.
    pub fn patch(operations: &serde_json::Value) -> Self {
        Self { patch: operations.to_string().into(), add: Vec::new() }
    }

    /// Adds names of initializers of the resource that must act after this one.
    #[must_use]
    pub fn adding(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.add.extend(names.into_iter().map(Into::into));
        self
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.add.iter().map(String::len).sum::<usize>() + self.patch.len()
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::Done(Done { patch: self.patch.into(), add: self.add })
    }
}

/// A refusal of an object. Its creator gets this Status.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRefusal(Box<Status>);

impl ObjectRefusal {
    /// Creates a refusal with an HTTP code, a reason (`Forbidden`, `Invalid`, …) and a message for the creator.
    pub fn new(code: i32, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let (reason, message) = (Some(reason.into()), Some(message.into()));
        Self(Box::new(Status { code: Some(code), reason, message, ..Status::default() }))
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::Fail(*self.0)
    }
}

/// Creates a refusal with 403 `Forbidden` and this message.
impl From<String> for ObjectRefusal {
    fn from(message: String) -> Self {
        Self::new(403, "Forbidden", message)
    }
}

/// Creates a refusal with 403 `Forbidden` and this message.
impl From<&str> for ObjectRefusal {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

/// Maximum number of recent changes.
const MAX_RECENT_CHANGES: usize = 1024;
/// Maximum size of all recent changes, in bytes.
const MAX_CHANGE_BYTES: usize = 4 << 20;

/// Recent changes, by the identity of their objects, so that a repeated request gets the same answer.
#[derive(Debug, Default)]
pub(super) struct RecentChanges {
    by_identity: HashMap<[u8; 32], ObjectChange>,
    oldest_first: VecDeque<[u8; 32]>,
    bytes: usize,
}

impl RecentChanges {
    pub(super) fn get(&self, identity: [u8; 32]) -> Option<&ObjectChange> {
        self.by_identity.get(&identity)
    }

    /// Stores a change. Drops the oldest changes if there is no room.
    pub(super) fn insert(&mut self, identity: [u8; 32], change: &ObjectChange) {
        let size = change.size();
        if size > MAX_CHANGE_BYTES || self.by_identity.contains_key(&identity) {
            return;
        }
        while self.oldest_first.len() >= MAX_RECENT_CHANGES || self.bytes + size > MAX_CHANGE_BYTES {
            let Some(gone) = self.oldest_first.pop_front().and_then(|oldest| self.by_identity.remove(&oldest)) else {
                break;
            };
            self.bytes -= gone.size();
        }
        self.bytes += size;
        self.oldest_first.push_back(identity);
        self.by_identity.insert(identity, change.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_changes_are_bounded_by_number_and_bytes() {
        let identity = |number: usize| {
            let mut identity = [0; 32];
            identity[..8].copy_from_slice(&number.to_be_bytes());
            identity
        };
        let change = |number: usize| ObjectChange::none().adding([number.to_string()]);
        let mut recent = RecentChanges::default();
        for number in 0..=MAX_RECENT_CHANGES {
            recent.insert(identity(number), &change(number));
        }
        assert_eq!(recent.get(identity(0)), None, "the oldest has made room");
        assert_eq!(recent.get(identity(MAX_RECENT_CHANGES)), Some(&change(MAX_RECENT_CHANGES)));
        let large = ObjectChange::none().adding(["x".repeat(MAX_CHANGE_BYTES)]);
        recent.insert(identity(MAX_RECENT_CHANGES + 1), &large);
        assert_eq!((recent.by_identity.len(), recent.bytes), (1, MAX_CHANGE_BYTES), "all others have made room");
        recent.insert(identity(MAX_RECENT_CHANGES + 2), &large.adding(["y"]));
        assert_eq!(recent.get(identity(MAX_RECENT_CHANGES + 2)), None, "this is more than all may take");
    }
}

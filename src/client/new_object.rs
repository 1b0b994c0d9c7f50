//! New object: one task of an initializer, and its answer.

use std::{collections::HashMap, time::Duration};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::wire::pb::{
    gatepost::v1::{Done, InitializerTask, initializer_answer::Outcome},
    k8s::io::{api::admission::v1::AdmissionRequest, apimachinery::pkg::apis::meta::v1::Status},
};

/// Object that is to be initialized.
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

    /// The request, with its creator (`user_info`), the namespace and the resource.
    pub fn request(&self) -> &AdmissionRequest {
        &self.request
    }

    /// The object in JSON, as the initializers before this one have changed it.
    pub fn json(&self) -> &[u8] {
        self.request.object.as_ref().and_then(|object| object.raw.as_deref()).unwrap_or_default()
    }

    /// The object, read.
    ///
    /// # Errors
    ///
    /// A refusal where the object is not of that type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ObjectRefusal> {
        serde_json::from_slice(self.json()).map_err(|error| format!("the object cannot be read: {error}").into())
    }

    /// Labels of the request's namespace, where they are known.
    pub fn namespace_labels(&self) -> &HashMap<String, String> {
        &self.namespace_labels
    }

    /// Whether another process had the object before, and may have acted. Things outside the object may be there then.
    pub fn is_repeat(&self) -> bool {
        self.attempt > 1
    }

    /// Time for the answer, from the arrival of the object on.
    pub fn time_left(&self) -> Duration {
        self.time_left
    }

    /// Digest of the request's uid and the object.
    pub(super) fn identity(&self) -> [u8; 32] {
        let uid = self.request.uid.as_deref().unwrap_or_default();
        let mut digest = Sha256::new();
        digest.update(u64::try_from(uid.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(uid);
        digest.update(self.json());
        digest.finalize().into()
    }
}

/// Change to an object: the initializer has done its part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectChange {
    patch: Vec<u8>,
    add: Vec<String>,
}

impl ObjectChange {
    /// No change.
    pub fn none() -> Self {
        Self::default()
    }

    /// JSON Patch (RFC 6902); an empty one changes nothing.
    pub fn patch(operations: &serde_json::Value) -> Self {
        Self { patch: operations.to_string().into(), add: Vec::new() }
    }

    /// Names of initializers of the resource that must act behind this one.
    #[must_use]
    pub fn adding(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.add.extend(names.into_iter().map(Into::into));
        self
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        self.add.iter().map(String::len).sum::<usize>() + self.patch.len()
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::Done(Done { patch: self.patch.into(), add: self.add })
    }
}

/// Refusal of an object: its creator gets this Status.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRefusal(Box<Status>);

impl ObjectRefusal {
    /// The HTTP code, the reason (`Forbidden`, `Invalid`, …) and a message for the creator.
    pub fn new(code: i32, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let (reason, message) = (Some(reason.into()), Some(message.into()));
        Self(Box::new(Status { code: Some(code), reason, message, ..Status::default() }))
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::Fail(*self.0)
    }
}

/// 403 `Forbidden`, with this message.
impl From<String> for ObjectRefusal {
    fn from(message: String) -> Self {
        Self::new(403, "Forbidden", message)
    }
}

/// 403 `Forbidden`, with this message.
impl From<&str> for ObjectRefusal {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

//! Turn: one stored object that is to make a step, as it is read and written.

use std::{sync::Arc, time::Instant};

use serde_json::Value;

use super::{follow::marks, resource::ServedResource};
use crate::{
    initialize::{
        label::{Marks, Step, Target},
        unfinished::StoredObject,
    },
    kube::{Client, KubeError},
    live::{Current, Namespaces},
    memory::MemoryBudget,
};

const JSON_PATCH: &str = "application/json-patch+json";

/// Parts of the process that turns need.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) current: Arc<Current>,
    pub(super) namespaces: Option<Arc<Namespaces>>,
    pub(super) memory: Arc<MemoryBudget>,
}

/// One object that is to make a step.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) engine: Arc<Engine>,
    pub(super) client: Client,
    pub(super) resource: Arc<ServedResource>,
    pub(super) stored: Arc<StoredObject>,
    /// Since when its head is its head, as far as is known here.
    pub(super) since: Instant,
}

/// End of a turn.
#[derive(Debug)]
pub(super) enum Ended {
    /// The object is on its way, finished or gone: the watch tells.
    Settled,
    /// A client of the apiserver acts, or nobody is configured to.
    Waits,
    /// It is to be tried again.
    Again(Option<KubeError>),
}

/// An object as it was read, with its marks.
pub(super) struct Read {
    pub(super) object: Value,
    pub(super) marks: Marks,
    pub(super) version: String,
}

/// Outcome of writing one step.
pub(super) enum Written {
    /// It is stored.
    Done,
    /// Somebody else has changed the object meanwhile.
    Outdated,
    /// The apiserver does not take it, and nobody has changed the object.
    Refused(String),
}

impl Turn {
    /// The object as it is stored now; `None` where it is gone, another one, or about to go.
    pub(super) async fn read(&self) -> Result<Option<Read>, KubeError> {
        let found = self.client.find(&self.resource.within(&self.stored.namespace), &self.stored.name).await?;
        let Some(object) = found.filter(|object| object["metadata"]["uid"] == *self.stored.uid) else {
            return Ok(None);
        };
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
        // It can only be deleted now, which somebody does already.
        let leaves = !metadata["deletionTimestamp"].is_null();
        Ok((!leaves).then(|| Read { marks: marks(&object), version, object }))
    }

    /// Deletes the object.
    pub(super) async fn delete(&self) -> Result<Ended, KubeError> {
        self.client.delete_uid(&self.path(), &self.stored.uid).await?;
        Ok(Ended::Settled)
    }

    /// Writes a step, and what an initializer changes at the same time.
    pub(super) async fn write(&self, read: &Read, step: Step<'_>, changes: Vec<Value>) -> Result<Written, KubeError> {
        let target = Target { uid: &self.stored.uid, resource_version: &read.version, marks: &read.marks };
        let patch = match step.patch(target, changes) {
            Ok(patch) => patch,
            Err(why) => return Ok(Written::Refused(why)),
        };
        let (code, why) = match self.client.patch(&self.path(), JSON_PATCH, &patch).await {
            Ok(()) => return Ok(Written::Done),
            Err(KubeError::Unwritten { code: 404, .. }) => return Ok(Written::Outdated),
            Err(KubeError::Unwritten { code, message, .. }) if is_about_the_object(code, &message) => (code, message),
            Err(failure) => return Err(failure),
        };
        // A test that fails, and an object that is wrong, look alike.
        let same = self.read().await?.is_some_and(|now| now.version == read.version);
        Ok(if same && code != 409 { Written::Refused(why) } else { Written::Outdated })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.resource.within(&self.stored.namespace), self.stored.name)
    }
}

impl Written {
    /// End of the turn; `None` where it is to be tried again.
    pub(super) fn settled(self) -> Option<Ended> {
        match self {
            Self::Done => Some(Ended::Settled),
            Self::Outdated => None,
            Self::Refused(_) => Some(Ended::Again(None)),
        }
    }
}

/// Is such an answer about the object as it would be, and not about us, our rights or the apiserver?
fn is_about_the_object(code: u16, message: &str) -> bool {
    // source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters, forbiddenMessage.
    let rights = message.contains(" cannot patch resource ");
    matches!(code, 400 | 409 | 413 | 422) || code == 403 && !rights
}

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

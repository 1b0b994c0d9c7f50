//! Turn: one stored object that is to make a step, as it is read and written.

use std::{sync::Arc, time::Instant};

use http::StatusCode;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{follow::MarkedObject, resource::ServedResource};
use crate::live::{Current, Namespaces};
use gatepost_base::{
    memory::{MemoryBudget, Purpose, Reservation},
    offload,
};
use gatepost_initializers::{
    Marks,
    marks::{MarksStep, PatchTarget as Target},
    unfinished::StoredObject,
};
use gatepost_kube_support::{KubeClient, KubeError, RawAnswer, object_path};

const JSON_PATCH: &str = "application/json-patch+json";
/// Whole objects that are read at once: how large one is shows when it is there.
const READS: usize = 4;
/// Bytes that a byte of an object takes once it is parsed, about.
const PARSED: usize = 8;

/// Parts of the process that turns need.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) current: Arc<Current>,
    pub(super) namespaces: Option<Arc<Namespaces>>,
    pub(super) memory: Arc<MemoryBudget>,
    reads: Semaphore,
}

impl Engine {
    pub(super) fn new(
        current: Arc<Current>,
        (namespaces, memory): (Option<Arc<Namespaces>>, Arc<MemoryBudget>),
    ) -> Self {
        Self { current, namespaces, memory, reads: Semaphore::new(READS) }
    }
}

/// One object that is to make a step.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) engine: Arc<Engine>,
    pub(super) client: KubeClient,
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

/// Marks of an object as they were read.
pub(super) struct Read {
    pub(super) marks: Marks,
    pub(super) version: String,
}

impl Read {
    /// The object's; `None` where it is another one, or about to go.
    fn of(object: &MarkedObject, uid: &str) -> Option<Self> {
        // One that leaves can only be deleted now, which somebody does already.
        object.version(uid).map(|version| Self { marks: object.marks(), version: version.to_owned() })
    }
}

/// A whole object, and its room in the memory budget.
pub(super) struct WholeObject {
    pub(super) object: Value,
    pub(super) room: Reservation,
}

/// An object as it is stored now.
pub(super) enum Found {
    /// It is as it was, or has other marks. Maybe it cannot be read but for these: it is nested too deep, for one.
    There(Read, Result<WholeObject, String>),
    /// It is gone, another one, or about to go.
    Gone,
    /// There is no room for it at the moment.
    NoRoom,
}

/// Outcome of writing one step.
pub(super) enum Written {
    /// It is stored.
    Done,
    /// Somebody else has changed the object meanwhile.
    Outdated,
    /// The apiserver does not take it, and nobody has changed the object.
    Refused(String, Option<KubeError>),
}

impl Turn {
    /// The object as it is stored now.
    pub(super) async fn read(&self) -> Result<Found, KubeError> {
        // It is never closed.
        let _reading = self.engine.reads.acquire().await.ok();
        let collection = self.resource.within(&self.stored.namespace);
        let RawAnswer { status, body, .. } =
            self.client.read_as(&collection, &self.stored.name, "application/json").await?;
        let (server, path) = (self.client.server().to_owned(), self.path());
        if status == StatusCode::NOT_FOUND {
            return Ok(Found::Gone);
        }
        if !status.is_success() {
            let message = status.canonical_reason().unwrap_or("no reason given").to_owned();
            return Err(KubeError::Refused { server, code: status.as_u16(), path, message });
        }
        let size = body.len();
        let Some(room) = self.engine.memory.reserve(Purpose::Queue, PARSED * size) else { return Ok(Found::NoRoom) };
        let parsing = offload::run(2 * size, move || {
            let place = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
            let marked = serde_json::from_slice::<MarkedObject>(&body).map_err(place)?;
            Ok((marked, serde_json::from_slice::<Value>(&body).map_err(place)))
        });
        let (marked, object) = parsing.await.map_err(|at: String| {
            let cause = format!("no JSON ({at})");
            KubeError::Nonsense { server, path, cause }
        })?;
        let Some(read) = Read::of(&marked, &self.stored.uid) else { return Ok(Found::Gone) };
        Ok(Found::There(read, object.map(|object| WholeObject { object, room })))
    }

    /// Its marks as they are stored now; `None` where it is gone, another one, or about to go.
    pub(super) async fn read_marks(&self) -> Result<Option<Read>, KubeError> {
        let collection = self.resource.within(&self.stored.namespace);
        let found = self.client.find_metadata_as::<MarkedObject>(&collection, &self.stored.name).await?;
        Ok(found.and_then(|object| Read::of(&object, &self.stored.uid)))
    }

    /// Deletes the object.
    pub(super) async fn delete(&self) -> Result<Ended, KubeError> {
        self.client.delete_uid(&self.path(), &self.stored.uid).await?;
        Ok(Ended::Settled)
    }

    /// Writes a step, and what an initializer changes at the same time.
    pub(super) async fn write(
        &self,
        read: &Read,
        step: MarksStep<'_>,
        changes: Vec<Value>,
    ) -> Result<Written, KubeError> {
        let target = Target { uid: &self.stored.uid, resource_version: &read.version, marks: &read.marks };
        let marks_alone = changes.is_empty();
        let patch = match step.patch(target, changes) {
            Ok(patch) => patch,
            Err(why) => return Ok(Written::Refused(why, None)),
        };
        let failure = match self.client.patch(&self.path(), JSON_PATCH, &patch).await {
            Ok(()) => return Ok(Written::Done),
            Err(failure) => failure,
        };
        let (code, why) = match &failure {
            KubeError::Unwritten { code: 404, .. } => return Ok(Written::Outdated),
            KubeError::Unwritten { code, message, .. } if judges_the_object(*code, message, marks_alone) => {
                (*code, message.clone())
            }
            _ => return Err(failure),
        };
        // A test that fails, and an object that is wrong, look alike.
        let same = self.read_marks().await?.is_some_and(|now| now.version == read.version);
        if !same || code == 409 {
            return Ok(Written::Outdated);
        }
        // Somebody's policy, and no fault of the object's.
        if marks_alone && !is_invalid(code, &why) {
            return Err(failure);
        }
        Ok(Written::Refused(why, Some(failure)))
    }

    fn path(&self) -> String {
        object_path(&self.resource.within(&self.stored.namespace), &self.stored.name)
    }
}

impl Written {
    /// End of the turn; `None` where it is to be tried again.
    pub(super) fn settled(self) -> Option<Ended> {
        match self {
            Self::Done => Some(Ended::Settled),
            Self::Outdated => None,
            Self::Refused(_, failure) => Some(Ended::Again(failure)),
        }
    }
}

/// Parts of what an apiserver, Gatepost itself or its policy says of missing rights.
// source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters, forbiddenMessage; k8s.io/kubernetes pkg/registry/rbac,
// ConfirmNoEscalation.
const RIGHTS: [&str; 4] = [
    " cannot patch resource ",
    " is attempting to grant RBAC permissions not currently held",
    "may only be changed by users with permission to",
    "only its owner changes the list",
];

/// Is such an answer about the object as it would be, and not about us, our rights or the apiserver? A patch of
/// `marks_alone` that is forbidden is forbidden to us: an object is never deleted for that.
fn judges_the_object(code: u16, message: &str, marks_alone: bool) -> bool {
    let rights = RIGHTS.iter().any(|part| message.contains(part));
    matches!(code, 400 | 409 | 413 | 422) || code == 403 && !rights && !marks_alone
}

/// Says such an answer that the object is not one of its kind, or too large, and not that a policy or a webhook does not
/// want it? These may answer with any code.
// source: k8s.io/apimachinery pkg/api/errors, NewInvalid; k8s.io/apiserver pkg/admission/plugin/policy/validating/
// dispatcher.go and pkg/admission/plugin/webhook/errors/statuserror.go.
fn is_invalid(code: u16, message: &str) -> bool {
    // Behind it there may be anything, as values of the object are quoted there.
    let (said, values) = message.split_once(" is invalid: ").map_or((message, None), |(said, it)| (said, Some(it)));
    let denied = said.contains(" denied request") || said.contains(" denied the request");
    !denied && (code == 413 || code == 422 && values.is_some())
}

/// tokio's clock, so that a test with paused time sees the same clock everywhere.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_initializers::{
        Actor, Initializers, OwnedNames as Owned,
        marks::{InitState as State, judge_update as update},
    };

    #[test]
    fn what_is_forbidden_to_us_is_no_fault_of_the_object() {
        let rbac = "configmaps \"n\" is forbidden: User \"g\" cannot patch resource \"configmaps\"";
        for message in [rbac, "an object that is not initialized may only be changed by users with permission", ""] {
            assert!(!judges_the_object(403, message, true), "{message}");
        }
        // Nor is what Gatepost itself says, wherever these words are written.
        let state = State::new(Initializers::of(["a", "b"]), Value::Null, "");
        let marked = |state: &State| Marks { label: Some("1".into()), state: Some(state.write().unwrap().into()) };
        let (old, new) = (marked(&state), marked(&state.done("a", Vec::new()).unwrap()));
        for may_initialize in [false, true] {
            let refused = update(&old, &new, false, Actor { may_initialize, owns: Owned::Names(&[]) }).unwrap_err();
            let status = refused.into_status();
            assert_eq!(status.code, 403);
            assert!(!judges_the_object(403, &status.message, false), "{}", status.message);
        }
        assert!(!judges_the_object(403, rbac, false));
        assert!(judges_the_object(403, "a webhook does not want that label", false));
        for code in [400, 409, 413, 422] {
            assert!(judges_the_object(code, "", true), "{code}");
        }
        let policy = "configmaps \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let webhook = "admission webhook \"h\" denied the request: ConfigMap \"n\" is invalid: no";
        assert!(is_invalid(422, "Widget \"w\" is invalid: spec.size: Required value") && is_invalid(413, ""));
        assert!(is_invalid(422, "Widget \"w\" is invalid: spec.note: Invalid value: \"it denied the request\": no"));
        let refusals =
            [(422, policy), (413, policy), (400, webhook), (413, webhook), (422, webhook), (422, ""), (400, "")];
        for (code, message) in refusals {
            assert!(!is_invalid(code, message), "{code} {message}");
        }
        for code in [401, 404, 429, 500, 503] {
            assert!(!judges_the_object(code, "", false), "{code}");
        }
    }
}

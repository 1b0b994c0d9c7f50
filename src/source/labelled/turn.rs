//! Turn: the reads and writes of one step of a stored object.

use std::{sync::Arc, time::Instant};

use http::StatusCode;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::follow::{MarkedObject, ServedResource};
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
/// Maximum number of whole objects that are read concurrently. The size of an object is known only after the read.
const MAX_CONCURRENT_READS: usize = 4;
/// Approximate bytes of memory per byte of a parsed object.
const PARSED: usize = 8;

/// State of the process that turns use.
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
        Self { current, namespaces, memory, reads: Semaphore::new(MAX_CONCURRENT_READS) }
    }
}

/// One object whose step is under way.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) engine: Arc<Engine>,
    pub(super) client: KubeClient,
    pub(super) resource: Arc<ServedResource>,
    pub(super) stored: Arc<StoredObject>,
    /// Time since which its head is known to be its head.
    pub(super) since: Instant,
}

/// End of a turn.
#[derive(Debug)]
pub(super) enum TurnEnd {
    /// The object was written, is finished or is deleted; the watch reports it.
    Settled,
    /// A client of the apiserver acts, or no initializer is configured.
    Waiting,
    /// The turn is retried; with the error, if there was one.
    Retry(Option<KubeError>),
}

/// Marks of an object, as read.
pub(super) struct ReadMarks {
    pub(super) marks: Marks,
    pub(super) version: String,
}

impl ReadMarks {
    /// Returns the marks; `None` if the object is another one, or is being deleted.
    fn of(object: &MarkedObject, uid: &str) -> Option<Self> {
        // An object that is being deleted needs nothing more.
        object.version(uid).map(|version| Self { marks: object.marks(), version: version.to_owned() })
    }
}

/// Whole object, with its reservation in the memory budget.
pub(super) struct WholeObject {
    pub(super) object: Value,
    pub(super) room: Reservation,
}

/// Object as it is stored now.
pub(super) enum ReadOutcome {
    /// It exists, perhaps with other marks. `Err` if only its marks can be read, as when it is nested too deep.
    Present(ReadMarks, Result<WholeObject, String>),
    /// The object does not exist, is another one, or is being deleted.
    Gone,
    /// There is no memory for it now.
    NoRoom,
}

/// Outcome of writing one step.
pub(super) enum WriteOutcome {
    /// The step is stored.
    Done,
    /// Someone else has changed the object meanwhile.
    Outdated,
    /// The apiserver rejects the step, and the object is unchanged.
    Refused(String, Option<KubeError>),
}

impl Turn {
    /// Reads the object as it is stored now.
    pub(super) async fn read(&self) -> Result<ReadOutcome, KubeError> {
        // The semaphore is never closed.
        let _reading = self.engine.reads.acquire().await.ok();
        let collection = self.resource.within(&self.stored.namespace);
        let RawAnswer { status, body, .. } =
            self.client.read_as(&collection, &self.stored.name, "application/json").await?;
        let (server, path) = (self.client.server().to_owned(), self.path());
        if status == StatusCode::NOT_FOUND {
            return Ok(ReadOutcome::Gone);
        }
        if !status.is_success() {
            let message = status.canonical_reason().unwrap_or("no reason given").to_owned();
            return Err(KubeError::Refused { server, code: status.as_u16(), path, message });
        }
        let size = body.len();
        let Some(room) = self.engine.memory.reserve(Purpose::Queue, PARSED * size) else {
            return Ok(ReadOutcome::NoRoom);
        };
        let parsing = offload::run(2 * size, move || {
            let place = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
            let marked = serde_json::from_slice::<MarkedObject>(&body).map_err(place)?;
            Ok((marked, serde_json::from_slice::<Value>(&body).map_err(place)))
        });
        let (marked, object) = parsing.await.map_err(|at: String| {
            let cause = format!("no JSON ({at})");
            KubeError::InvalidResponse { server, path, cause }
        })?;
        let Some(read) = ReadMarks::of(&marked, &self.stored.uid) else { return Ok(ReadOutcome::Gone) };
        Ok(ReadOutcome::Present(read, object.map(|object| WholeObject { object, room })))
    }

    /// Reads the marks as they are stored now; `None` if the object is gone, is another one, or is being deleted.
    pub(super) async fn read_marks(&self) -> Result<Option<ReadMarks>, KubeError> {
        let collection = self.resource.within(&self.stored.namespace);
        let found = self.client.find_metadata_as::<MarkedObject>(&collection, &self.stored.name).await?;
        Ok(found.and_then(|object| ReadMarks::of(&object, &self.stored.uid)))
    }

    /// Deletes the object.
    pub(super) async fn delete(&self) -> Result<TurnEnd, KubeError> {
        self.client.delete_uid(&self.path(), &self.stored.uid).await?;
        Ok(TurnEnd::Settled)
    }

    /// Writes a step together with the changes of an initializer.
    pub(super) async fn write(
        &self,
        read: &ReadMarks,
        step: MarksStep<'_>,
        changes: Vec<Value>,
    ) -> Result<WriteOutcome, KubeError> {
        let target = Target { uid: &self.stored.uid, resource_version: &read.version, marks: &read.marks };
        let marks_alone = changes.is_empty();
        let patch = match step.patch(target, changes) {
            Ok(patch) => patch,
            Err(why) => return Ok(WriteOutcome::Refused(why, None)),
        };
        let failure = match self.client.patch(&self.path(), JSON_PATCH, &patch).await {
            Ok(()) => return Ok(WriteOutcome::Done),
            Err(failure) => failure,
        };
        let (code, why) = match &failure {
            KubeError::WriteRefused { code: 404, .. } => return Ok(WriteOutcome::Outdated),
            KubeError::WriteRefused { code, message, .. } if is_about_object(*code, message, marks_alone) => {
                (*code, message.clone())
            }
            _ => return Err(failure),
        };
        // A failed test operation and an invalid object have the same status.
        let same = self.read_marks().await?.is_some_and(|now| now.version == read.version);
        if !same || code == 409 {
            return Ok(WriteOutcome::Outdated);
        }
        // A policy rejects the write; the object has no fault.
        if marks_alone && !is_invalid(code, &why) {
            return Err(failure);
        }
        Ok(WriteOutcome::Refused(why, Some(failure)))
    }

    fn path(&self) -> String {
        object_path(&self.resource.within(&self.stored.namespace), &self.stored.name)
    }
}

impl WriteOutcome {
    /// Returns the end of the turn; `None` if it must be retried immediately.
    pub(super) fn turn_end(self) -> Option<TurnEnd> {
        match self {
            Self::Done => Some(TurnEnd::Settled),
            Self::Outdated => None,
            Self::Refused(_, failure) => Some(TurnEnd::Retry(failure)),
        }
    }
}

/// Parts of the messages of an apiserver, of Gatepost itself or of its policy about missing rights.
// source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters, forbiddenMessage; k8s.io/kubernetes
// pkg/registry/rbac, ConfirmNoEscalation.
const MISSING_RIGHTS: [&str; 4] = [
    " cannot patch resource ",
    " is attempting to grant RBAC permissions not currently held",
    "may only be changed by users with permission to",
    "only its owner changes the list",
];

/// Returns true if the answer rejects the object, and not our rights or the request. A forbidden patch of `marks_alone`
/// is about our rights: it never deletes an object.
fn is_about_object(code: u16, message: &str, marks_alone: bool) -> bool {
    let rights = MISSING_RIGHTS.iter().any(|part| message.contains(part));
    matches!(code, 400 | 409 | 413 | 422) || code == 403 && !rights && !marks_alone
}

/// Returns true if the answer says that the object is invalid or too large, and not that a policy or a webhook rejects
/// it. Those may answer with any code.
// source: k8s.io/apimachinery pkg/api/errors, NewInvalid; k8s.io/apiserver pkg/admission/plugin/policy/validating/
// dispatcher.go and pkg/admission/plugin/webhook/errors/statuserror.go.
fn is_invalid(code: u16, message: &str) -> bool {
    // Values of the object are quoted after this part, with any text.
    let (said, values) = message.split_once(" is invalid: ").map_or((message, None), |(said, it)| (said, Some(it)));
    let denied = said.contains(" denied request") || said.contains(" denied the request");
    !denied && (code == 413 || code == 422 && values.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_initializers::{
        Actor, Initializers, OwnedNames as Owned,
        marks::{InitState as State, judge_update as update},
    };

    #[test]
    fn missing_rbac_permission_is_not_about_the_object() {
        let rbac = "configmaps \"n\" is forbidden: User \"g\" cannot patch resource \"configmaps\"";
        for message in [rbac, "an object that is not initialized may only be changed by users with permission", ""] {
            assert!(!is_about_object(403, message, true), "{message}");
        }
        // Gatepost's own rejections are not about the object either.
        let state = State::new(Initializers::of(["a", "b"]), Value::Null, "");
        let marked = |state: &State| Marks { label: Some("1".into()), state: Some(state.write().unwrap().into()) };
        let (old, new) = (marked(&state), marked(&state.done("a", Vec::new()).unwrap()));
        for may_initialize in [false, true] {
            let refused = update(&old, &new, false, Actor { may_initialize, owns: Owned::Names(&[]) }).unwrap_err();
            let status = refused.into_status();
            assert_eq!(status.code, 403);
            assert!(!is_about_object(403, &status.message, false), "{}", status.message);
        }
        assert!(!is_about_object(403, rbac, false));
        assert!(is_about_object(403, "a webhook does not want that label", false));
        for code in [400, 409, 413, 422] {
            assert!(is_about_object(code, "", true), "{code}");
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
            assert!(!is_about_object(code, "", false), "{code}");
        }
    }
}

//! Marks of objects that are stored before they are initialized, by an apiserver without support for initializers.
//!
//! Such an object carries two marks. Reads select by the label [`PENDING_LABEL`]: an object with the label is hidden.
//! The annotation [`STATE_ANNOTATION`] has the list, the creator and, after a failure, the result ([`InitState`]).
//! Gatepost sets both when the object is created. The update that removes the label and sets the annotation to
//! [`Completed`](InitPhase::Completed) completes the object. An update that omits both marks, such as a PUT from a
//! manifest, completes nothing. `Completed` without the label is not a mark, as a user may create a finished object
//! again from its manifest.
//!
//! ```text
//! {"state":"Pending","pending":["a.example.com","b.example.com"],"started":"2026-11-23T08:00:00Z",
//!  "creator":{"extra":{},"groups":["dev"],"uid":"","username":"ann"}}
//! {"state":"Failed","pending":["b.example.com"],"done":["a.example.com"],…,"result":{"status":"Failure","code":403,…}}
//! {"state":"Completed","pending":[]}
//! ```
//!
//! The policy for apiservers compares the beginning and the end of the first form with a request. So the order of the
//! fields is fixed, and the fields of the creator are sorted by name, with the username last.
//!
//! ```text
//!   label, Pending [a, b] ── a's owner removes a ──> label, Pending [b] ── b's owner ──> no label, Completed
//!          │                                              │
//!          ├── the owner of the head sets the result ──> label, Failed (deleted)
//!          └── both marks omitted ──> both restored
//! ```

use gatepost_api::{
    StatusInfo,
    initialization::{MAX_PENDING, PENDING_LABEL, STATE_ANNOTATION},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Actor, Initialization, Initializers, ListError, built_in::member_path, failure::stored_result,
    lifecycle::StepError, list::StatusJson, transition,
};

/// Maximum length of a state, in bytes: all annotations of an object together may have 256 KiB.
// source: k8s.io/apimachinery pkg/api/validation, TotalAnnotationSizeLimitB.
const MAX_STATE_BYTES: usize = 128 << 10;

/// Marks of one object, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Value of the label.
    pub label: Option<Box<str>>,
    /// Text of the annotation.
    pub state: Option<Box<str>>,
}

/// An object as described by its marks.
#[derive(Clone, Debug, PartialEq)]
pub enum MarkedObject {
    /// It has no label: it is initialized, or needs no initialization. Everybody sees it.
    Visible,
    /// It is hidden, and has this state.
    Unfinished(InitState),
    /// It is hidden, and its annotation is missing, unreadable or `Completed`. No pending work is known, so it becomes
    /// visible.
    Unreadable,
}

impl Marks {
    /// Returns the object that these marks describe.
    pub fn object(&self) -> MarkedObject {
        if self.label.is_none() {
            return MarkedObject::Visible;
        }
        match self.state.as_deref().map(InitState::read) {
            Some(Ok(state)) if state.phase() != InitPhase::Completed => MarkedObject::Unfinished(state),
            _ => MarkedObject::Unreadable,
        }
    }

    /// Returns true if there is no label, and no annotation or a `Completed` one, which remains from an earlier
    /// initialization.
    pub fn is_finished(&self) -> bool {
        let is_completed = |text: &str| InitState::read(text).is_ok_and(|state| state.phase() == InitPhase::Completed);
        self.label.is_none() && self.state.as_deref().is_none_or(is_completed)
    }
}

/// Phase of an object's initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitPhase {
    /// Initializers must still act.
    Pending,
    /// It is initialized.
    Completed,
    /// It has a result, and is deleted.
    Failed,
}

/// State of an unfinished object: the contents of its annotation.
#[derive(Clone, Debug, PartialEq)]
pub struct InitState {
    /// Names that must still act, and the result.
    pub list: Initializers,
    /// Names that have had their turn, in order. They cannot be added again.
    pub done: Vec<Box<str>>,
    /// User who created the object: username, uid, groups, extra.
    pub creator: Value,
    /// Time at which it was marked, in RFC 3339.
    pub started: Box<str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateJson {
    state: InitPhase,
    pending: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    started: Box<str>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    creator: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<StatusJson>,
}

impl InitState {
    /// Creates the state of a new object.
    pub fn new(list: Initializers, creator: Value, started: &str) -> Self {
        Self { list, done: Vec::new(), creator, started: started.into() }
    }

    /// Creates the state of an initialized object.
    pub fn completed() -> Self {
        Self::new(Initializers::default(), Value::Null, "")
    }

    /// Parses an annotation.
    ///
    /// # Errors
    /// Message if Gatepost cannot have written it. The message does not quote it.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_STATE_BYTES {
            return Err(format!("is longer than {MAX_STATE_BYTES} bytes"));
        }
        let json: StateJson = serde_json::from_str(text)
            .map_err(|error| format!("cannot be read at line {}, column {}", error.line(), error.column()))?;
        let StateJson { state, pending, done, started, creator, result } = json;
        if pending.len() + done.len() > MAX_PENDING {
            return Err(format!("has more than {MAX_PENDING} entries"));
        }
        let list = Initializers { pending, result: result.map(|result| Box::new(result.into())) };
        let this = Self { list, done, creator, started };
        match this.phase() == state {
            true => Ok(this),
            false => Err("says another state than its pending names and its result".to_owned()),
        }
    }

    /// Returns the annotation. It has no details for a finished object, as everybody may read it.
    ///
    /// # Errors
    /// Message if it would be too long.
    pub fn write(&self) -> Result<String, String> {
        if self.phase() == InitPhase::Completed {
            return Ok(r#"{"state":"Completed","pending":[]}"#.to_owned());
        }
        let Self { list, done, creator, started } = self.clone();
        let (state, pending) = (self.phase(), list.pending);
        let result = list.result.map(|result| (*result).into());
        let text = serde_json::to_string(&StateJson { state, pending, done, started, creator, result })
            .map_err(|error| error.to_string())?;
        match text.len() <= MAX_STATE_BYTES {
            true => Ok(text),
            false => Err(format!("the creator's groups and extra fields have more than {MAX_STATE_BYTES} bytes")),
        }
    }

    /// Returns the phase of the object.
    pub fn phase(&self) -> InitPhase {
        match &self.list {
            Initializers { result: Some(_), .. } => InitPhase::Failed,
            Initializers { pending, .. } if pending.is_empty() => InitPhase::Completed,
            _ => InitPhase::Pending,
        }
    }

    /// Returns the name of the creator, if known.
    pub fn username(&self) -> Option<&str> {
        self.creator.get("username")?.as_str()
    }

    /// Returns the state after the head has done its part. `adds` must act after it.
    ///
    /// # Errors
    /// Returns a [`StepError`] if it is not the turn of `head`, or these names cannot be added.
    pub fn done(&self, head: &str, adds: Vec<Box<str>>) -> Result<Self, StepError> {
        let mut way = Initialization::resumed(self.list.clone(), self.done.clone());
        way.done(head, adds)?;
        let (list, done) = (Initializers::of(way.pending()), way.done_names().to_vec());
        Ok(Self { list, done, ..self.clone() })
    }

    /// Returns the state after the object has failed.
    pub fn failed(&self, result: StatusInfo) -> Self {
        let result = StatusInfo { status: "Failure".into(), ..stored_result(result) };
        let mut failed = self.clone();
        failed.list.result = Some(Box::new(result));
        failed
    }
}

/// Effect of an update on the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksOutcome {
    /// The update's marks are stored unchanged.
    Keep,
    /// The former marks are restored, because the update has omitted them.
    Restore,
    /// The update's marks are stored, but with the former `done`, to which the initializer whose turn ends is added:
    /// [`with_turn_recorded`].
    Record,
}

/// Checks the marks that a client, or an earlier webhook, has written into a new object. Marks of an earlier call for
/// the same request name the same creator. The caller replaces them, or removes them if no initializer must act after
/// the changes of other webhooks.
///
/// # Errors
/// Returns an error if the marks are not ours.
pub fn check_new(written: &Marks, creator: &Value) -> Result<(), ListError> {
    let place = "; the list of a new object is written in the annotation gatepost.dev/initializers";
    check_marks(written, |state| state.creator == *creator, place)
}

/// Checks that an object to be created is marked for this user, or not at all.
///
/// # Errors
/// Returns an error if it is marked in another way.
pub fn check_marked_for(marks: &Marks, username: &str) -> Result<(), ListError> {
    check_marks(marks, |state| state.username() == Some(username), ", for the user who creates the object")
}

fn check_marks(marks: &Marks, is_ours: impl FnOnce(&InitState) -> bool, more: &str) -> Result<(), ListError> {
    match marks.object() {
        _ if marks.is_finished() => Ok(()),
        MarkedObject::Unfinished(state) if state.phase() == InitPhase::Pending && is_ours(&state) => Ok(()),
        _ => Err(ListError::Forbidden(format!(
            "the label {PENDING_LABEL} and the annotation {STATE_ANNOTATION} are set by Gatepost alone{more}"
        ))),
    }
}

/// Checks an update of the marks by this actor, and returns its effect.
///
/// On a visible object, the label cannot be added, and the annotation can only be removed or become `Completed`. An
/// unfinished object is changed only by users who may `initialize`, and its marks only by steps of [`transition`].
/// While it is being deleted (`deleting`), others may make updates that keep the marks, such as removing finalizers.
///
/// # Errors
/// Returns an error if the update is not allowed.
pub fn judge_update(old: &Marks, new: &Marks, deleting: bool, actor: Actor<'_>) -> Result<MarksOutcome, ListError> {
    let before = match old.object() {
        MarkedObject::Visible if new.label.is_some() => {
            return Err(mark_error(PENDING_LABEL, "is set by Gatepost alone, when an object is created"));
        }
        MarkedObject::Visible if new.state == old.state || new.is_finished() => return Ok(MarksOutcome::Keep),
        MarkedObject::Visible => return Err(mark_error(STATE_ANNOTATION, "is set by Gatepost alone")),
        MarkedObject::Unfinished(state) => Some(state),
        MarkedObject::Unreadable => None,
    };
    if deleting && new == old {
        return Ok(MarksOutcome::Keep);
    }
    actor.check_permission()?;
    let is_omitted = new.state.is_none() || new.state == old.state;
    let Some(before) = before else {
        // No pending work is known.
        return match &new.label {
            None => Ok(MarksOutcome::Keep),
            Some(_) if is_omitted && new.label == old.label => Ok(MarksOutcome::Keep),
            Some(_) => Err(mark_error(PENDING_LABEL, "says that an object waits that has no list; remove it")),
        };
    };
    if new == old {
        return Ok(MarksOutcome::Keep);
    }
    if is_omitted {
        return Ok(MarksOutcome::Restore);
    }
    let after =
        InitState::read(new.state.as_deref().unwrap_or_default()).map_err(|why| mark_error(STATE_ANNOTATION, &why))?;
    // The state of a completed object may omit the creator and the start.
    let completes = after.phase() == InitPhase::Completed;
    let same_creator = after.creator == before.creator || completes && after.creator.is_null();
    let same_start = after.started == before.started || completes && after.started.is_empty();
    if !same_creator || !same_start {
        return Err(mark_error(STATE_ANNOTATION, "the creator and the start of an initialization do not change"));
    }
    if completes && new.label.is_some() {
        return Err(mark_error(PENDING_LABEL, "is removed in the update that says Completed"));
    }
    if !completes && new.label != old.label {
        return Err(mark_error(PENDING_LABEL, "stays as it is until the update that says Completed"));
    }
    let outcome = check_done_names(&before, &after)?;
    transition(Some(before.list), after.list.normalized(), actor).map(|_| outcome)
}

/// Checks the names that have had their turn in the state after an update. Clients may omit them.
fn check_done_names(before: &InitState, after: &InitState) -> Result<MarksOutcome, ListError> {
    if after.phase() == InitPhase::Completed {
        return Ok(MarksOutcome::Keep);
    }
    if after.list.pending.iter().any(|name| before.done.contains(name)) {
        return Err(mark_error(STATE_ANNOTATION, "names an initializer again that has had its turn"));
    }
    let done = done_names(before, after);
    if done.len() + after.list.pending.len() > MAX_PENDING {
        return Err(mark_error(STATE_ANNOTATION, "would have too many entries"));
    }
    if after.done == done {
        return Ok(MarksOutcome::Keep);
    }
    match after.done == before.done || after.done.is_empty() {
        true => Ok(MarksOutcome::Record),
        false => Err(mark_error(STATE_ANNOTATION, "names those who have had their turn in `done`, in order")),
    }
}

/// Returns the names that have had their turn after an update.
fn done_names(before: &InitState, after: &InitState) -> Vec<Box<str>> {
    let head = before.list.pending.first().filter(|head| !after.list.pending.contains(head));
    before.done.iter().chain(head).cloned().collect()
}

/// Returns the marks of an update with the former `done`, to which the initializer whose turn ends is added.
///
/// # Errors
/// Message if the marks cannot be written.
pub fn with_turn_recorded(old: &Marks, new: &Marks) -> Result<Marks, String> {
    let (MarkedObject::Unfinished(before), MarkedObject::Unfinished(after)) = (old.object(), new.object()) else {
        return Ok(new.clone());
    };
    let done = done_names(&before, &after);
    let state = InitState { done, ..after }.write()?;
    Ok(Marks { state: Some(state.into()), ..new.clone() })
}

/// Returns the error for an update that omits the marks of an object that is not initialized.
pub fn omitted_marks() -> ListError {
    let why = "and the annotation are removed by completing the initialization alone; leave them as they are";
    mark_error(PENDING_LABEL, why)
}

fn mark_error(mark: &str, why: &str) -> ListError {
    let map = if mark == PENDING_LABEL { "labels" } else { "annotations" };
    ListError::Invalid { field: format!("metadata.{map}[{mark}]"), why: why.to_owned() }
}

/// Object to patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchTarget<'a> {
    /// uid.
    pub uid: &'a str,
    /// Resource version.
    pub resource_version: &'a str,
    /// Its marks.
    pub marks: &'a Marks,
}

/// Change of a marked object by Gatepost itself.
///
/// Its patch begins with tests of the object's uid, resource version and state. If a test fails, the apiserver changes
/// nothing. So a step may be sent twice, by two replicas, or long after it was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MarksStep<'a> {
    /// The object continues with this state, which is not `Completed`.
    Continue(&'a InitState),
    /// The object is initialized.
    Complete,
    /// The object becomes visible, because it is [`MarkedObject::Unreadable`].
    Uncover,
}

impl<'a> MarksStep<'a> {
    /// Returns the step to that state.
    pub fn to(state: &'a InitState) -> Self {
        if state.phase() == InitPhase::Completed { Self::Complete } else { Self::Continue(state) }
    }

    /// Returns the patch, with the `changes` that an initializer makes to the object.
    ///
    /// # Errors
    /// Message if the state cannot be written.
    pub fn patch(self, target: PatchTarget<'_>, changes: Vec<Value>) -> Result<Value, String> {
        let state_path = path("annotations", STATE_ANNOTATION);
        let mut patch = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": target.uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": target.resource_version}),
        ];
        if let Some(before) = &target.marks.state {
            patch.push(json!({"op": "test", "path": state_path, "value": before}));
        }
        patch.extend(changes);
        let state = match self {
            Self::Continue(state) => state.write(),
            Self::Complete | Self::Uncover => InitState::completed().write(),
        }?;
        // An object without the annotation loses only its label.
        if self != Self::Uncover || target.marks.state.is_some() {
            patch.push(json!({"op": "replace", "path": state_path, "value": state}));
        }
        if !matches!(self, Self::Continue(_)) {
            patch.push(json!({"op": "remove", "path": path("labels", PENDING_LABEL)}));
        }
        Ok(patch.into())
    }
}

/// Returns the patch that marks a new object, or restores marks that an update has omitted. `has_maps` is whether the
/// object has labels, and whether it has annotations.
pub fn marking_patch(has_maps: (bool, bool), marks: &Marks) -> Value {
    let mut patch = Vec::new();
    let maps = [
        ("labels", has_maps.0, PENDING_LABEL, &marks.label),
        ("annotations", has_maps.1, STATE_ANNOTATION, &marks.state),
    ];
    for (map, exists, key, value) in maps {
        let Some(value) = value else { continue };
        patch.push(match exists {
            true => json!({"op": "add", "path": path(map, key), "value": value}),
            false => json!({"op": "add", "path": format!("/metadata/{map}"), "value": {key: value}}),
        });
    }
    patch.into()
}

/// Returns the patch that removes both marks of a new object.
pub fn unmarking_patch() -> Value {
    let remove = |map: &str, key: &str| json!({"op": "remove", "path": path(map, key)});
    json!([remove("labels", PENDING_LABEL), remove("annotations", STATE_ANNOTATION)])
}

/// Returns true if a patch changes the marks, the identity of the object, or a parent of these. No initializer may.
pub fn touches_reserved(changes: &[Value]) -> bool {
    let marks = [path("labels", PENDING_LABEL), path("annotations", STATE_ANNOTATION)];
    let identity = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/metadata/uid"];
    let is_reserved = |path: &Value| {
        // Apiservers ignore everything before the first slash.
        let path = path.as_str().unwrap_or_default();
        let path = path.find('/').map_or("", |at| &path[at..]);
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let reserved = marks.iter().map(String::as_str).chain(identity).chain(["/metadata/resourceVersion"]);
        reserved.into_iter().any(|reserved| within(reserved, path) || within(path, reserved))
    };
    changes.iter().any(|change| match change["op"].as_str() {
        Some("test") => false,
        // A `move` also changes the path that it reads; any other operation may read any path.
        Some("move") => is_reserved(&change["path"]) || is_reserved(&change["from"]),
        _ => is_reserved(&change["path"]),
    })
}

/// Returns the JSON Pointer to one label or annotation.
fn path(map: &str, key: &str) -> String {
    member_path(&format!("/metadata/{map}"), key)
}

#[cfg(test)]
mod tests;

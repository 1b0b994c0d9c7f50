//! List of an object's pending initializers in upstream's JSON, the list of a new object, and changes of it by updates.
//!
//! ```text
//!             ┌────────────── same list, others behind the head ───────────────┐
//!             v                                                                │
//!   create ──> [a, b, c] ── a's owner removes a, may add ──> [b, c] ──> … ──> [c] ── c's owner ──> none
//!                  │                                                                              (initialized;
//!                  └── the head's owner sets the result ──> [a, b, c] + result (deleted)           stays so)
//! ```

use std::collections::HashSet;

use gatepost_api::{
    StatusCause, StatusInfo,
    initialization::{MAX_PENDING, VERB},
    names::is_dns_subdomain,
};
use serde::{Deserialize, Serialize};

/// `metadata.initializers`: the names that must still act, in order, and the failure. An object without it is
/// initialized, and its optional list is [`None`].
// source: k8s.io/apimachinery v1.13 meta/v1 Initializers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Names that must still act. Only the first may act.
    pub pending: Vec<Box<str>>,
    /// Reason why the object has failed. The object is then deleted.
    pub result: Option<Box<StatusInfo>>,
}

impl Initializers {
    /// Creates a list of these names without a result.
    pub fn of<S: Into<Box<str>>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { pending: names.into_iter().map(Into::into).collect(), result: None }
    }

    /// Returns the name whose turn it is.
    pub fn head(&self) -> Option<&str> {
        self.pending.first().map(AsRef::as_ref)
    }

    /// Returns `None` for a list without names and result, which is equivalent.
    pub fn normalized(self) -> Option<Self> {
        (!self.pending.is_empty() || self.result.is_some()).then_some(self)
    }

    /// Checks the names and the result.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), ListError> {
        self.check_after(&Self::default())
    }

    /// Checks the names and the result of a list that follows `before`. A faulty name that `before` also has is
    /// allowed: otherwise nobody could ever finish the object.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_after(&self, before: &Self) -> Result<(), ListError> {
        if self.pending.len() > before.pending.len().max(MAX_PENDING) {
            return Err(ListError::invalid("pending", format!("has more than {MAX_PENDING} entries")));
        }
        let before: HashSet<&str> = before.pending.iter().map(AsRef::as_ref).collect();
        let mut seen = HashSet::new();
        for (at, name) in self.pending.iter().enumerate() {
            let invalid = |why: &str| Err(ListError::invalid(&format!("pending[{at}].name"), why));
            if !before.contains(&**name) && !is_dns_subdomain(name) {
                return invalid("is not a DNS name of lower-case letters, digits, - and dots");
            }
            if !seen.insert(&**name) {
                return invalid("is listed twice");
            }
        }
        match &self.result {
            Some(result) if result.status != "Failure" => {
                Err(ListError::invalid("result.status", "must be Failure; an object without a failure has no result"))
            }
            _ => Ok(()),
        }
    }

    /// Parses upstream's JSON; `null` is no list. Unknown fields are ignored, as by upstream.
    ///
    /// # Errors
    /// Message with the position if the JSON is not a list. It does not quote the JSON.
    pub fn read(json: &[u8]) -> Result<Option<Self>, String> {
        let list: Option<ListJson> = serde_json::from_slice(json).map_err(|error| {
            format!("metadata.initializers cannot be read at line {}, column {}", error.line(), error.column())
        })?;
        Ok(list.map(|ListJson { pending, result }| Self {
            pending: pending.unwrap_or_default().into_iter().map(|entry| entry.name).collect(),
            result: result.map(|status| Box::new(status.into())),
        }))
    }

    /// Returns the list as upstream's JSON.
    pub fn write(&self) -> String {
        let list = ListJson {
            pending: Some(self.pending.iter().map(|name| PendingJson { name: name.clone() }).collect()),
            result: self.result.as_deref().cloned().map(StatusJson::from),
        };
        // Plain data can always be serialized.
        serde_json::to_string(&list).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
struct ListJson {
    pending: Option<Vec<PendingJson>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<StatusJson>,
}

#[derive(Serialize, Deserialize)]
struct PendingJson {
    name: Box<str>,
}

/// Fields of `metav1.Status` in a result.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StatusJson {
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<DetailsJson>,
    #[serde(skip_serializing_if = "is_zero")]
    code: i32,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DetailsJson {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: i32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl From<StatusInfo> for StatusJson {
    fn from(info: StatusInfo) -> Self {
        let details = DetailsJson {
            name: info.details_name,
            group: info.details_group,
            kind: info.details_kind,
            uid: info.details_uid,
            causes: info.causes,
            retry_after_seconds: info.retry_after_seconds,
        };
        let details = (info.has_details || details != DetailsJson::default()).then_some(details);
        Self { status: info.status, message: info.message, reason: info.reason, details, code: info.code }
    }
}

impl From<StatusJson> for StatusInfo {
    fn from(StatusJson { status, message, reason, details, code }: StatusJson) -> Self {
        let has_details = details.is_some();
        let details = details.unwrap_or_default();
        Self {
            code,
            status,
            reason,
            message,
            metadata: None,
            has_details,
            details_name: details.name,
            details_group: details.group,
            details_kind: details.kind,
            details_uid: details.uid,
            causes: details.causes,
            retry_after_seconds: details.retry_after_seconds,
        }
    }
}

/// Error of a list, or of a change of a list, that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// No user may do it. Upstream: 422.
    Invalid {
        /// The field at fault, from the object's root.
        field: String,
        /// Fault of the field.
        why: String,
    },
    /// Another user may do it. Upstream: 403.
    Forbidden(String),
}

/// Field of an object with its list.
const FIELD: &str = "metadata.initializers";

impl ListError {
    /// Returns the error for a field of `metadata.initializers`; "" is the list itself.
    fn invalid(field: &str, why: impl Into<String>) -> Self {
        let dot = if field.is_empty() { "" } else { "." };
        Self::Invalid { field: format!("{FIELD}{dot}{field}"), why: why.into() }
    }

    /// Returns this error for a list that the client wrote at `place` instead.
    pub fn written_at(self, place: &str) -> Self {
        match self {
            Self::Invalid { field, why } => {
                let entry = field.strip_prefix(FIELD).map(|entry| entry.trim_start_matches('.')).unwrap_or_default();
                Self::Invalid { field: place.to_owned(), why: format!("{entry} {why}").trim_start().to_owned() }
            }
            Self::Forbidden(why) => Self::Forbidden(why.replacen(FIELD, place, 1)),
        }
    }

    /// Returns the HTTP status code.
    pub fn code(&self) -> i32 {
        match self {
            Self::Invalid { .. } => 422,
            Self::Forbidden(_) => 403,
        }
    }

    /// Returns the Status for the client.
    pub fn into_status(self) -> StatusInfo {
        let code = self.code();
        match self {
            Self::Invalid { field, why } => {
                let message = format!("{field}: Invalid value: {why}");
                let causes = vec![StatusCause { reason: "FieldValueInvalid".into(), message: why, field }];
                StatusInfo { causes, ..StatusInfo::failure(code, "Invalid", message) }
            }
            Self::Forbidden(why) => StatusInfo::failure(code, "Forbidden", why),
        }
    }
}

/// Returns true if creating the object with this list needs the verb `initialize`: if the client `written` a list. An
/// empty list counts, too, as it bypasses every initializer.
pub fn needs_permission(written: Option<&Initializers>) -> bool {
    written.is_some()
}

/// Returns the list of a new object: the client's own list, if it wrote one and is `permitted` to, otherwise the
/// `configured` names in order. `None` if no initializer must act: the object is initialized.
///
/// # Errors
/// The client's list is invalid, or the client is not permitted to write one.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, Admit on Create. There any list of the client
// is kept; here a duplicate name, and a result that is not a failure, are invalid.
pub fn create<'a>(
    written: Option<Initializers>,
    configured: impl IntoIterator<Item = &'a str>,
    permitted: bool,
) -> Result<Option<Initializers>, ListError> {
    let Some(written) = written else { return Ok(Initializers::of(configured).normalized()) };
    if !permitted {
        return Err(ListError::Forbidden(format!(
            "{FIELD} may only be written by users with permission to {VERB:?} this resource"
        )));
    }
    written.check()?;
    Ok(written.normalized())
}

/// Checks that each name of a client's own list is one of `known`. A misspelt name would never act, and the intended
/// initializer would be bypassed.
///
/// # Errors
/// The first unknown name.
pub fn check_known<'a>(list: &Initializers, known: impl Iterator<Item = &'a str> + Clone) -> Result<(), ListError> {
    match list.pending.iter().position(|name| !known.clone().any(|known| *known == **name)) {
        None => Ok(()),
        Some(at) => {
            let (name, known) = (&list.pending[at], known.collect::<Vec<_>>().join(", "));
            let why = format!("{name:?} is no initializer of this resource; it has: {known}");
            Err(ListError::invalid(&format!("pending[{at}].name"), why))
        }
    }
}

/// User or process that changes a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The user holds the verb `initialize` for this object.
    pub may_initialize: bool,
    /// Names that the user owns.
    pub owns: OwnedNames<'a>,
}

impl Actor<'_> {
    /// Checks that the user may change an object that is not initialized.
    pub(crate) fn check_permission(self) -> Result<(), ListError> {
        match self.may_initialize {
            true => Ok(()),
            false => Err(ListError::Forbidden(format!(
                "an object that is not initialized may only be changed by users with permission to {VERB:?} this resource"
            ))),
        }
    }
}

/// Names that one user owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedNames<'a> {
    /// These names.
    Names(&'a [&'a str]),
    /// All names: for Gatepost itself, which removes heads that time out, and for users who complete objects by hand.
    Any,
}

/// Returns the list of the object after an update from `old` to `new`.
///
/// Everybody may update an initialized object, and no object is initialized twice. Before that, only a user who may
/// `initialize` changes the object, and only the owner of the head changes the list. Faults for every user are reported
/// before missing permissions of this user, as by upstream.
///
/// # Errors
/// The change is not allowed.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, Admit on Update; kubernetes/apimachinery 1.13
// pkg/api/validation/objectmeta.go ValidateInitializersUpdate. There pending entries could be removed, added and
// reordered anywhere by any holder of `initialize`, and a list could be cleared although a result was set.
pub fn transition(
    old: Option<Initializers>,
    new: Option<Initializers>,
    actor: Actor<'_>,
) -> Result<Option<Initializers>, ListError> {
    let (old, new) = (old.and_then(Initializers::normalized), new.and_then(Initializers::normalized));
    let old = match (old, &new) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(ListError::invalid("", "field is immutable once initialization has completed"));
        }
        (Some(old), _) => old,
    };
    if let Some(new) = &new {
        new.check_after(&old)?;
    }
    let changes = new.as_ref() != Some(&old);
    check_step(&old, new.as_ref())?;
    actor.check_permission()?;
    let owns = |head: &str| match actor.owns {
        OwnedNames::Names(names) => names.contains(&head),
        OwnedNames::Any => true,
    };
    match old.head() {
        Some(head) if changes && !owns(head) => Err(ListError::Forbidden(format!(
            "it is the turn of initializer {head:?}; only its owner changes the list"
        ))),
        _ => Ok(new),
    }
}

/// Checks a step from one list to the other, for any user.
fn check_step(old: &Initializers, new: Option<&Initializers>) -> Result<(), ListError> {
    let invalid = |field, why: &str| Err(ListError::invalid(field, why));
    let none = Initializers::default();
    let new = new.unwrap_or(&none);
    if old.result.is_some() {
        if new.result != old.result {
            return invalid("result", "field is immutable once it is set");
        }
        if new.pending != old.pending {
            return invalid("pending", "the object has failed; it can only be deleted");
        }
        return Ok(());
    }
    let Some((head, rest)) = old.pending.split_first() else { return Ok(()) };
    let stays = new.pending.first() == Some(head);
    if new.result.is_some() && !stays {
        return invalid("pending", "an initializer that has failed stays first in the list");
    }
    // All names of `rest` must follow the head, or start the list once the head is removed, in this order.
    let mut others = new.pending[usize::from(stays)..].iter();
    if !stays && new.pending.contains(head) || !rest.iter().all(|name| others.any(|other| other == name)) {
        return invalid("pending", "only the first entry is removed, and none is moved");
    }
    Ok(())
}

/// Returns the list after the head has timed out and is removed by its failure policy. `None` if nothing is removed,
/// because another name is the head by now, or the object has failed.
#[allow(clippy::option_option, reason = "whether it is removed, and what is left then")]
pub fn without_late_head(list: &Initializers, head: &str) -> Option<Option<Initializers>> {
    if list.result.is_some() || list.head() != Some(head) {
        return None;
    }
    Some(Initializers::of(list.pending[1..].iter().cloned()).normalized())
}

//! List: an object's pending initializers in upstream's JSON, the list of a new object, and changes of it by updates.
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
};
use serde::{Deserialize, Serialize};

/// `metadata.initializers`: the names that must still act, in order, and the failure. An object without it is
/// initialized; [`None`] means that wherever a list is optional.
// source: k8s.io/apimachinery v1.13 meta/v1 Initializers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Names that must still act; only the first may, at any time.
    pub pending: Vec<Box<str>>,
    /// Reason why the object is not created after all. It is deleted then.
    pub result: Option<Box<StatusInfo>>,
}

impl Initializers {
    /// A list of these names without a result.
    pub fn of<S: Into<Box<str>>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { pending: names.into_iter().map(Into::into).collect(), result: None }
    }

    /// The name whose turn it is.
    pub fn head(&self) -> Option<&str> {
        self.pending.first().map(AsRef::as_ref)
    }

    /// `None` for an empty list: both mean the same.
    pub fn normalized(self) -> Option<Self> {
        (!self.pending.is_empty() || self.result.is_some()).then_some(self)
    }

    /// Checks the names and the result by themselves.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), RefusedList> {
        self.check_after(&Self::default())
    }

    /// The same for a list that follows another. A fault that the other had as well is no fault of the update: otherwise
    /// nobody could ever finish the object.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_after(&self, before: &Self) -> Result<(), RefusedList> {
        if self.pending.len() > before.pending.len().max(MAX_PENDING) {
            return Err(RefusedList::invalid("pending", format!("has more than {MAX_PENDING} entries")));
        }
        let before: HashSet<&str> = before.pending.iter().map(AsRef::as_ref).collect();
        let mut seen = HashSet::new();
        for (at, name) in self.pending.iter().enumerate() {
            let invalid = |why: &str| Err(RefusedList::invalid(&format!("pending[{at}].name"), why));
            if !before.contains(&**name) && !is_dns_name(name) {
                return invalid("is not a DNS name of lower-case letters, digits, - and dots");
            }
            if !seen.insert(&**name) {
                return invalid("is listed twice");
            }
        }
        match &self.result {
            Some(result) if result.status != "Failure" => {
                Err(RefusedList::invalid("result.status", "must be Failure; an object without a failure has no result"))
            }
            _ => Ok(()),
        }
    }

    /// Reads upstream's JSON; `null` is no list. Unknown fields are ignored, as upstream does.
    ///
    /// # Errors
    /// It is no list; the text says where, and quotes nothing of it.
    pub fn read(json: &[u8]) -> Result<Option<Self>, String> {
        let list: Option<ListJson> = serde_json::from_slice(json).map_err(|error| {
            format!("metadata.initializers cannot be read at line {}, column {}", error.line(), error.column())
        })?;
        Ok(list.map(|ListJson { pending, result }| Self {
            pending: pending.unwrap_or_default().into_iter().map(|entry| entry.name).collect(),
            result: result.map(|status| Box::new(status.into())),
        }))
    }

    /// The same as JSON.
    pub fn write(&self) -> String {
        let list = ListJson {
            pending: Some(self.pending.iter().map(|name| PendingJson { name: name.clone() }).collect()),
            result: self.result.as_deref().cloned().map(StatusJson::from),
        };
        // Plain data in memory can always be written.
        serde_json::to_string(&list).unwrap_or_default()
    }
}

/// A DNS-1123 subdomain, as the configuration requires.
// source: k8s.io/apimachinery/pkg/util/validation IsDNS1123Subdomain.
fn is_dns_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let part = |part: &[u8]| edge(part.first()) && edge(part.last()) && part.iter().all(inner);
    name.len() <= 253 && name.as_bytes().split(|byte| *byte == b'.').all(part)
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

/// The fields of `metav1.Status` that a result has.
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

/// Reason why a list, or a change of one, is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedList {
    /// It is wrong for every user. Upstream: 422.
    Invalid {
        /// The field at fault, from the object's root.
        field: String,
        /// Fault of the list.
        why: String,
    },
    /// Another user may do it. Upstream: 403.
    Forbidden(String),
}

/// Field with an object's list.
const FIELD: &str = "metadata.initializers";

impl RefusedList {
    /// A fault of a field of `metadata.initializers`; "" is the whole.
    fn invalid(field: &str, why: impl Into<String>) -> Self {
        let dot = if field.is_empty() { "" } else { "." };
        Self::Invalid { field: format!("{FIELD}{dot}{field}"), why: why.into() }
    }

    /// The same for a list that the client wrote at this place instead.
    pub fn written_at(self, place: &str) -> Self {
        match self {
            Self::Invalid { field, why } => {
                let entry = field.strip_prefix(FIELD).map(|entry| entry.trim_start_matches('.')).unwrap_or_default();
                Self::Invalid { field: place.to_owned(), why: format!("{entry} {why}").trim_start().to_owned() }
            }
            Self::Forbidden(why) => Self::Forbidden(why.replacen(FIELD, place, 1)),
        }
    }

    /// HTTP status code.
    pub fn code(&self) -> i32 {
        match self {
            Self::Invalid { .. } => 422,
            Self::Forbidden(_) => 403,
        }
    }

    /// The answer to the client.
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

/// Must the user hold the verb `initialize` for the object to be created with this list? Only where the client wrote
/// one. An empty list counts as well, as it bypasses every initializer.
pub fn needs_permission(written: Option<&Initializers>) -> bool {
    written.is_some()
}

/// The list of a new object: the client's own, where it wrote one and is `permitted` to; else the `configured` names,
/// in order. `None` where nothing has to act: the object is initialized.
///
/// # Errors
/// The client's list is wrong, or it may not write one.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, Admit on Create. There any list of the client is
// kept; here a duplicate name, and a result that is no failure, are wrong.
pub fn create<'a>(
    written: Option<Initializers>,
    configured: impl IntoIterator<Item = &'a str>,
    permitted: bool,
) -> Result<Option<Initializers>, RefusedList> {
    let Some(written) = written else { return Ok(Initializers::of(configured).normalized()) };
    if !permitted {
        return Err(RefusedList::Forbidden(format!(
            "{FIELD} may only be written by users with permission to {VERB:?} this resource"
        )));
    }
    written.check()?;
    Ok(written.normalized())
}

/// Checks that each name of a client's own list is one of `known`. A misspelt name would never act, and would bypass the
/// initializer that is meant.
///
/// # Errors
/// The first unknown name.
pub fn check_known<'a>(list: &Initializers, known: impl Iterator<Item = &'a str> + Clone) -> Result<(), RefusedList> {
    match list.pending.iter().position(|name| !known.clone().any(|known| *known == **name)) {
        None => Ok(()),
        Some(at) => {
            let (name, known) = (&list.pending[at], known.collect::<Vec<_>>().join(", "));
            let why = format!("{name:?} is no initializer of this resource; it has: {known}");
            Err(RefusedList::invalid(&format!("pending[{at}].name"), why))
        }
    }
}

/// User or process that changes a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The user holds the verb `initialize` for this object.
    pub may_initialize: bool,
    /// Names that are the user's.
    pub owns: OwnedNames<'a>,
}

impl Actor<'_> {
    /// Checks that the user may change anything of an object that is not initialized.
    pub(crate) fn check_permission(self) -> Result<(), RefusedList> {
        match self.may_initialize {
            true => Ok(()),
            false => Err(RefusedList::Forbidden(format!(
                "an object that is not initialized may only be changed by users with permission to {VERB:?} this resource"
            ))),
        }
    }
}

/// Names that one user owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedNames<'a> {
    /// These.
    Names(&'a [&'a str]),
    /// All: for Gatepost itself, which removes heads that time out, and for users who free objects by hand.
    Any,
}

/// The list that the object has after an update from `old` to `new`.
///
/// Everybody may update an initialized object, and nothing is initialized twice. Before that, only a user who may
/// `initialize` changes the object, and only the owner of the head changes the list. Faults for everybody are reported
/// before missing rights of this user, as upstream does.
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
) -> Result<Option<Initializers>, RefusedList> {
    let (old, new) = (old.and_then(Initializers::normalized), new.and_then(Initializers::normalized));
    let old = match (old, &new) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(RefusedList::invalid("", "field is immutable once initialization has completed"));
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
        Some(head) if changes && !owns(head) => Err(RefusedList::Forbidden(format!(
            "it is the turn of initializer {head:?}; only its owner changes the list"
        ))),
        _ => Ok(new),
    }
}

/// Checks a step from one list to the other, whoever makes it.
fn check_step(old: &Initializers, new: Option<&Initializers>) -> Result<(), RefusedList> {
    let invalid = |field, why: &str| Err(RefusedList::invalid(field, why));
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
    // All of `rest` stand behind the head, or at the front once it is gone, in this order.
    let mut others = new.pending[usize::from(stays)..].iter();
    if !stays && new.pending.contains(head) || !rest.iter().all(|name| others.any(|other| other == name)) {
        return invalid("pending", "only the first entry is removed, and none is moved");
    }
    Ok(())
}

/// The list after the head has timed out and its failure policy removes it. `None` where another name is at the head by
/// now, or the object has failed: then nothing is removed.
#[allow(clippy::option_option, reason = "whether it is removed, and what is left then")]
pub fn without_late_head(list: &Initializers, head: &str) -> Option<Option<Initializers>> {
    if list.result.is_some() || list.head() != Some(head) {
        return None;
    }
    Some(Initializers::of(list.pending[1..].iter().cloned()).normalized())
}

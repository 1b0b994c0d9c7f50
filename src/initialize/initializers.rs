//! Initializers: list of an object's pending initializers, in upstream's JSON.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{MOST_PENDING, RefusedList};
use crate::model::{StatusCause, StatusInfo};

/// `metadata.initializers`: the names that must still act, in order, and what has failed. An object without it is
/// initialized; [`None`] stands for that wherever this is optional.
// source: k8s.io/apimachinery v1.13 meta/v1 Initializers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Names that must still act; only the first may, at any time.
    pub pending: Vec<Box<str>>,
    /// Reason why the object is not created after all. It is deleted then.
    pub result: Option<Box<StatusInfo>>,
}

impl Initializers {
    /// A list of these names, and no result.
    pub fn of<S: Into<Box<str>>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { pending: names.into_iter().map(Into::into).collect(), result: None }
    }

    /// The name whose turn it is.
    pub fn head(&self) -> Option<&str> {
        self.pending.first().map(AsRef::as_ref)
    }

    /// The same, or nothing where it says nothing: an empty struct and none at all mean the same.
    pub fn normalized(self) -> Option<Self> {
        (!self.pending.is_empty() || self.result.is_some()).then_some(self)
    }

    /// Checks the names and the result by themselves.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), RefusedList> {
        self.check_after(&Self::default())
    }

    /// The same for a list that follows another. An error that was in that one is no fault of an update: nobody could
    /// ever bring the object to an end.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_after(&self, before: &Self) -> Result<(), RefusedList> {
        if self.pending.len() > before.pending.len().max(MOST_PENDING) {
            return Err(RefusedList::invalid("pending", format!("has more than {MOST_PENDING} entries")));
        }
        let before: HashSet<&str> = before.pending.iter().map(AsRef::as_ref).collect();
        let mut seen = HashSet::new();
        for (at, name) in self.pending.iter().enumerate() {
            if !before.contains(&**name) && !is_name(name) {
                return Err(RefusedList::invalid(
                    &format!("pending[{at}].name"),
                    "is not a DNS name of lower-case letters, digits, - and dots",
                ));
            }
            if !seen.insert(&**name) {
                return Err(RefusedList::invalid(&format!("pending[{at}].name"), "is listed twice"));
            }
        }
        match &self.result {
            Some(result) if result.status != "Failure" => {
                Err(RefusedList::invalid("result.status", "must be Failure; an object without a failure has no result"))
            }
            _ => Ok(()),
        }
    }

    /// Reads upstream's JSON; `null` is none. Unknown fields are passed by, as upstream does.
    ///
    /// # Errors
    /// It is something else; the text says where, and repeats nothing of it.
    pub fn read(json: &[u8]) -> Result<Option<Self>, String> {
        let written: Option<Written> = serde_json::from_slice(json).map_err(|error| {
            format!("metadata.initializers cannot be read at line {}, column {}", error.line(), error.column())
        })?;
        Ok(written.map(|Written { pending, result }| Self {
            pending: pending.unwrap_or_default().into_iter().map(|entry| entry.name.into()).collect(),
            result: result.map(|status| Box::new(status.into())),
        }))
    }

    /// The same as JSON.
    pub fn write(&self) -> String {
        let written = Written {
            pending: Some(self.pending.iter().map(|name| Entry { name: name.to_string() }).collect()),
            result: self.result.as_deref().map(Status::from),
        };
        // Plain data in memory can always be written.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

/// A DNS-1123 subdomain, as the configuration wants it.
// source: k8s.io/apimachinery/pkg/util/validation IsDNS1123Subdomain.
fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let part = |part: &[u8]| edge(part.first()) && edge(part.last()) && part.iter().all(inner);
    name.len() <= 253 && name.as_bytes().split(|byte| *byte == b'.').all(part)
}

#[derive(Serialize, Deserialize)]
struct Written {
    pending: Option<Vec<Entry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Status>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
}

/// `metav1.Status`, as far as a result has any use for it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "is_zero")]
    code: i32,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: i32,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl From<&StatusInfo> for Status {
    fn from(info: &StatusInfo) -> Self {
        let info = info.clone();
        let cause = |StatusCause { reason, message, field }| Cause { reason, message, field };
        let details = Details {
            name: info.details_name,
            group: info.details_group,
            kind: info.details_kind,
            uid: info.details_uid,
            causes: info.causes.into_iter().map(cause).collect(),
            retry_after_seconds: info.retry_after_seconds,
        };
        let details = (info.has_details || details != Details::default()).then_some(details);
        Self { status: info.status, message: info.message, reason: info.reason, details, code: info.code }
    }
}

impl From<Status> for StatusInfo {
    fn from(Status { status, message, reason, details, code }: Status) -> Self {
        let has_details = details.is_some();
        let Details { name, group, kind, uid, causes, retry_after_seconds } = details.unwrap_or_default();
        let cause = |Cause { reason, message, field }| StatusCause { reason, message, field };
        Self {
            code,
            status,
            reason,
            message,
            metadata: None,
            has_details,
            details_name: name,
            details_group: group,
            details_kind: kind,
            details_uid: uid,
            causes: causes.into_iter().map(cause).collect(),
            retry_after_seconds,
        }
    }
}

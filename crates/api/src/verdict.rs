//! Verdict: the one answer to the caller.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Prefix of our own audit annotations' keys, before the slash.
pub const OWN: &str = "gatepost.dev";
/// The audit annotation that says which state of the configuration decided: a [`Revision`](super::Revision).
pub const REVISION: &str = "gatepost.dev/revision";

/// One of several reasons of a [`StatusInfo`]. Upstream: `metav1.StatusCause`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// One CamelCase word, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field at fault, or the hook that gave the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Metadata of a [`StatusInfo`]. Upstream: `metav1.ListMeta`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusMetadata {
    /// No longer in use; may be empty.
    pub self_link: String,
    /// May be empty.
    pub resource_version: String,
    /// Token at which a list goes on; may be empty.
    pub continue_token: String,
    /// Number of further items of a list, where it was given.
    pub remaining_item_count: Option<i64>,
}

/// Status of a rejected request. Upstream: `metav1.Status`; `status` is "Failure" unless a hook chose another word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusInfo {
    /// HTTP status code.
    pub code: i32,
    /// "Failure", or what a hook said instead.
    pub status: String,
    /// One CamelCase word, for programs; may be empty.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Metadata that a hook gave, where it says anything.
    pub metadata: Option<Box<StatusMetadata>>,
    /// A hook gave details, empty ones too.
    pub has_details: bool,
    /// The object's name, as a hook's details gave it.
    pub details_name: String,
    /// The object's group, as a hook's details gave it.
    pub details_group: String,
    /// The object's kind, as a hook's details gave it.
    pub details_kind: String,
    /// The object's uid, as a hook's details gave it.
    pub details_uid: String,
    /// Every single reason, where there are several.
    pub causes: Vec<StatusCause>,
    /// Seconds after which trying again makes sense; 0 when not said.
    pub retry_after_seconds: i32,
}

impl StatusInfo {
    /// A failure with this code, reason and message.
    pub fn failure(code: i32, reason: &str, message: impl Into<String>) -> Self {
        let (status, reason, message) = ("Failure".into(), reason.into(), message.into());
        Self { code, status, reason, message, ..Self::default() }
    }
}

/// The one answer to the caller: may this write happen?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Reason of a rejection; `None` means allowed.
    pub refusal: Option<StatusInfo>,
    /// The change of the object that mutating hooks ask for, all of it in one JSON Patch; `None` where they change
    /// nothing. Only of an allowed request.
    pub patch: Option<Bytes>,
    /// For the client's eyes, in order, within upstream's limits.
    pub warnings: Vec<String>,
    /// For the audit log: key and value, the key being `<hook>/<key>`, or [`OWN`]`/<key>`.
    pub audit_annotations: Vec<(String, String)>,
}

impl Verdict {
    /// True when the write may happen.
    pub fn allowed(&self) -> bool {
        self.refusal.is_none()
    }
}

//! Verdict: the answer to the caller.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Prefix of the keys of our own audit annotations, before the slash.
pub const ANNOTATION_PREFIX: &str = "gatepost.dev";
/// Key of the audit annotation with the [`Revision`](super::Revision) of the configuration that decided.
pub const REVISION_ANNOTATION: &str = "gatepost.dev/revision";
/// Key of the audit annotation that names the further versions in which the caller must send the request. The caller
/// reads it and does not log it.
pub const OTHER_VERSIONS_ANNOTATION: &str = "gatepost.dev/other-versions";
/// Key of the audit annotation that says in which encoding the caller must send the objects of a request that is rejected
/// because it has another one. The caller reads it and does not log it.
pub const OBJECT_ENCODING_ANNOTATION: &str = "gatepost.dev/object-encoding";

/// A cause of a [`StatusInfo`]. Upstream: `metav1.StatusCause`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// Machine-readable reason, one CamelCase word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The faulty field, or the hook that gave the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Metadata of a [`StatusInfo`]. Upstream: `metav1.ListMeta`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusMetadata {
    /// Deprecated in upstream; may be empty.
    pub self_link: String,
    /// Resource version; may be empty.
    pub resource_version: String,
    /// Token with which a list continues; may be empty.
    pub continue_token: String,
    /// Number of further items of a list, if known.
    pub remaining_item_count: Option<i64>,
}

/// Status of a rejected request. Upstream: `metav1.Status`; `status` is "Failure" unless a hook sent another value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusInfo {
    /// HTTP status code.
    pub code: i32,
    /// "Failure", or the value that a hook sent.
    pub status: String,
    /// Machine-readable reason, one CamelCase word; may be empty.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Metadata that a hook sent, if any.
    pub metadata: Option<Box<StatusMetadata>>,
    /// True if a hook sent details, also empty ones.
    pub has_details: bool,
    /// The object's name, from a hook's details.
    pub details_name: String,
    /// The object's group, from a hook's details.
    pub details_group: String,
    /// The object's kind, from a hook's details.
    pub details_kind: String,
    /// The object's uid, from a hook's details.
    pub details_uid: String,
    /// Causes; may be empty.
    pub causes: Vec<StatusCause>,
    /// Seconds after which a retry makes sense; 0 if not given.
    pub retry_after_seconds: i32,
}

impl StatusInfo {
    /// Creates a failure with this code, reason and message.
    pub fn failure(code: i32, reason: &str, message: impl Into<String>) -> Self {
        let (status, reason, message) = ("Failure".into(), reason.into(), message.into());
        Self { code, status, reason, message, ..Self::default() }
    }
}

/// The answer to the caller: whether the request is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Reason for a rejection; `None` if the request is allowed.
    pub refusal: Option<StatusInfo>,
    /// All changes by mutating hooks in one JSON Patch; `None` if nothing changes. Only an allowed request has one.
    pub patch: Option<Bytes>,
    /// Warnings for the client, in order, within upstream's limits.
    pub warnings: Vec<String>,
    /// Audit annotations: keys `<hook>/<key>` or [`ANNOTATION_PREFIX`]`/<key>`, and values.
    pub audit_annotations: Vec<(String, String)>,
}

impl Verdict {
    /// Returns true if the request is allowed.
    pub fn allowed(&self) -> bool {
        self.refusal.is_none()
    }
}

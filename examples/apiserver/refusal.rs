//! Refusal: an answer that is no object, as a `metav1.Status`.

use gatepost_api::StatusInfo;
use gatepost_wire::{initializers, pb::k8s::io::apimachinery::pkg::apis::meta::v1 as meta};
use serde_json::{Value, json};

use crate::etcd::Failure;

/// The Status of a request that is not done.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<StatusInfo>);

impl Refusal {
    pub(crate) fn new(code: i32, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(StatusInfo {
            code,
            status: "Failure".into(),
            reason: reason.into(),
            message: message.into(),
            ..StatusInfo::default()
        }))
    }

    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {name:?} not found"))
    }

    pub(crate) fn conflict(resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} {name:?}: {why}"))
    }

    /// As the body of an answer.
    pub(crate) fn json(&self) -> Value {
        let StatusInfo { code, status, reason, message, metadata, causes, .. } = &*self.0;
        let version = metadata.as_ref().map(|metadata| metadata.resource_version.clone()).unwrap_or_default();
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "status": status,
            "code": code, "reason": reason, "message": message,
            "details": {
                "name": self.0.details_name, "group": self.0.details_group, "kind": self.0.details_kind,
                "uid": self.0.details_uid, "causes": causes, "retryAfterSeconds": self.0.retry_after_seconds,
            },
        })
    }
}

impl From<meta::Status> for Refusal {
    fn from(status: meta::Status) -> Self {
        Self(Box::new(initializers::status_info(status)))
    }
}

/// The storage does not do what it should.
impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {failure}"))
    }
}

//! A minimal AdmissionRequest in protobuf, for canned probes, tests and load generators.

use bytes::Bytes;

use super::pb::k8s::io::{
    api::admission::v1::AdmissionRequest,
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};

/// Returns a CREATE of an object of the core group's `v1`, without a user and a name.
pub fn create(uid: &str, kind: &str, resource: &str, object: Bytes) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    AdmissionRequest {
        uid: text(uid),
        kind: Some(GroupVersionKind { group: text(""), version: text("v1"), kind: text(kind) }),
        resource: Some(GroupVersionResource { group: text(""), version: text("v1"), resource: text(resource) }),
        operation: text("CREATE"),
        object: Some(RawExtension { raw: Some(object) }),
        ..Default::default()
    }
}

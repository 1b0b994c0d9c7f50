//! Reviews: the requests of the cases, as a caller would send them.

use bytes::Bytes;
use gatepost_api::{Review, Rope};
use gatepost_wire::{
    inbound::view,
    outbound::framed,
    pb::k8s::io::{
        api::admission::v1::{AdmissionRequest, AdmissionReview},
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
};
use serde_json::Value;

/// Group, version and kind, or group, version and resource.
pub(crate) type Three = [String; 3];

pub(crate) fn kind([group, version, kind]: &Three) -> Option<GroupVersionKind> {
    Some(GroupVersionKind { group: text(group), version: text(version), kind: text(kind) })
}

pub(crate) fn resource([group, version, resource]: &Three) -> Option<GroupVersionResource> {
    Some(GroupVersionResource { group: text(group), version: text(version), resource: text(resource) })
}

pub(crate) fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// An object as JSON; null is none.
pub(crate) fn object(object: &Value) -> Option<RawExtension> {
    (!object.is_null()).then(|| RawExtension { raw: Some(Bytes::from(object.to_string())) })
}

/// The review of this request, as a caller over gRPC sends it.
pub(crate) fn review(request: AdmissionRequest) -> Result<Review, String> {
    let any_kind = || kind(&["".into(), "v1".into(), "Thing".into()]);
    let request =
        AdmissionRequest { uid: request.uid.or(text("vectors")), kind: request.kind.or_else(any_kind), ..request };
    let message = framed(&AdmissionReview { request: Some(request), response: None });
    view(Rope::new([message])).map_err(|error| format!("not understood: {error}"))
}

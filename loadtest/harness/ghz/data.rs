//! The review as ghz takes it: protobuf's JSON, bytes in base64.

use base64::{Engine, engine::general_purpose::STANDARD};
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::AdmissionRequest,
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};
use serde_json::{Value, json};

use crate::{
    review::{Subject, review},
    size::Size,
};

/// The same review the generator sends, as a document for `ghz --data-file`.
pub(super) fn json(subject: Subject, size: Size) -> String {
    let request = review(subject, size).request.unwrap_or_default();
    json!({ "request": fields(&request) }).to_string()
}

fn fields(request: &AdmissionRequest) -> Value {
    let user = request.user_info.clone().unwrap_or_default();
    let extra: serde_json::Map<String, Value> =
        user.extra.into_iter().map(|(key, value)| (key, json!({"items": value.items}))).collect();
    json!({
        "uid": request.uid,
        "kind": kind(request.kind.as_ref()),
        "resource": resource(request.resource.as_ref()),
        "requestKind": kind(request.request_kind.as_ref()),
        "requestResource": resource(request.request_resource.as_ref()),
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": {"username": user.username, "uid": user.uid, "groups": user.groups, "extra": extra},
        "object": raw(request.object.as_ref()),
        "dryRun": request.dry_run,
        "options": raw(request.options.as_ref()),
    })
}

fn kind(kind: Option<&GroupVersionKind>) -> Value {
    kind.map_or(Value::Null, |kind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind}))
}

fn resource(resource: Option<&GroupVersionResource>) -> Value {
    resource.map_or(
        Value::Null,
        |resource| json!({"group": resource.group, "version": resource.version, "resource": resource.resource}),
    )
}

fn raw(extension: Option<&RawExtension>) -> Value {
    let raw = extension.and_then(|extension| extension.raw.as_ref());
    raw.map_or(Value::Null, |raw| json!({"raw": STANDARD.encode(raw)}))
}

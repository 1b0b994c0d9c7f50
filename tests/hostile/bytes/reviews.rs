//! Reviews, as protobuf and as JSON.

use gatepost_wire::pb::k8s::io::{
    api::{
        admission::v1::{AdmissionRequest, AdmissionReview},
        authentication::v1::UserInfo,
    },
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};
use prost::Message;

/// The kind of each resource that is sent here.
fn kind(resource: &str) -> &'static str {
    match resource {
        "pods" => "Pod",
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        _ => "Service",
    }
}

/// An object of about that many bytes.
fn object(resource: &str, size: usize) -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"v1","kind":"{}","metadata":{{"name":"web","namespace":"shop","annotations":{{"pad":""#,
        kind(resource)
    );
    let tail = r#""}}}"#;
    let mut object = head.into_bytes();
    object.resize(size.saturating_sub(tail.len()).max(object.len()), b'a');
    object.extend_from_slice(tail.as_bytes());
    object
}

/// CREATE of an object of that resource.
pub fn request(uid: &str, resource: &str, size: usize) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    AdmissionRequest {
        uid: text(uid),
        kind: Some(GroupVersionKind { group: text(""), version: text("v1"), kind: text(kind(resource)) }),
        resource: Some(GroupVersionResource { group: text(""), version: text("v1"), resource: text(resource) }),
        name: text("web"),
        namespace: text("shop"),
        operation: text("CREATE"),
        user_info: Some(UserInfo { username: text("ann"), ..Default::default() }),
        object: Some(RawExtension { raw: Some(object(resource, size).into()) }),
        dry_run: Some(false),
        ..Default::default()
    }
}

/// The review as one gRPC message with its head.
pub fn review(uid: &str, resource: &str, size: usize) -> Vec<u8> {
    grpc_message(&AdmissionReview { request: Some(request(uid, resource, size)), response: None }.encode_to_vec())
}

/// A message with its head.
pub fn grpc_message(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(5 + message.len());
    framed.push(0);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// The review as JSON.
pub fn json(uid: &str, resource: &str, size: usize) -> Vec<u8> {
    let mut text = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{uid}","kind":{{"group":"","version":"v1","kind":"{}"}},"resource":{{"group":"","version":"v1","resource":"{resource}"}},"name":"web","namespace":"shop","operation":"CREATE","userInfo":{{"username":"ann"}},"dryRun":false,"object":"#,
        kind(resource)
    )
    .into_bytes();
    text.extend(object(resource, size));
    text.extend_from_slice(b"}}");
    text
}

/// A protobuf field of bytes.
pub fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(bytes.len() + 8);
    varint(u64::from(number << 3 | 2), &mut field);
    varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

pub fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

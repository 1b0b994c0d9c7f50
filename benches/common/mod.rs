//! Shared parts of the benches: a review of a given size, and the sides compared with ours.
#![allow(dead_code, reason = "each bench uses its own part")]

mod allocator;

use bytes::Bytes;
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::{
        api::{
            admission::v1::{AdmissionRequest, AdmissionReview},
            authentication::v1::UserInfo,
        },
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
};

/// The naive reference's messages: `Vec<u8>` where ours have `Bytes`.
#[path = "../../loadtest/naive/pb/mod.rs"]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
pub(crate) mod naive_pb;

/// Object sizes in bytes, and what they are called.
pub(crate) const SIZES: [(usize, &str); 4] =
    [(2 << 10, "2KiB"), (32 << 10, "32KiB"), (256 << 10, "256KiB"), (1 << 20, "1MiB")];

/// A CREATE of a ConfigMap whose object takes about so many bytes, as one gRPC message with its frame head.
pub(crate) fn message(size: usize) -> Bytes {
    let text = |text: &str| Some(text.to_owned());
    let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big","namespace":"shop"},"data":{"text":""#;
    let mut object = head.as_bytes().to_vec();
    object.extend("the quick brown fox ".bytes().cycle().take(size.saturating_sub(head.len() + 3)));
    object.extend(br#""}}"#);
    let request = AdmissionRequest {
        uid: text("3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11"),
        kind: Some(GroupVersionKind { group: text(""), version: text("v1"), kind: text("ConfigMap") }),
        resource: Some(GroupVersionResource { group: text(""), version: text("v1"), resource: text("configmaps") }),
        name: text("big"),
        namespace: text("shop"),
        operation: text("CREATE"),
        user_info: Some(UserInfo {
            username: text("ann"),
            groups: vec!["system:authenticated".into()],
            ..Default::default()
        }),
        object: Some(RawExtension { raw: Some(object.into()) }),
        dry_run: Some(false),
        options: Some(RawExtension {
            raw: Some(Bytes::from_static(br#"{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}"#)),
        }),
        ..Default::default()
    };
    framed(&AdmissionReview { request: Some(request), response: None })
}

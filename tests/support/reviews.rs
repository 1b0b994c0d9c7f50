//! Reviews as callers send them.

use bytes::Bytes;
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::api::{
        admission::v1::{AdmissionRequest, AdmissionReview},
        authentication::v1::UserInfo,
    },
    request,
};

/// An object of about `size` bytes, as JSON.
pub fn pod(size: usize) -> Bytes {
    let head = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"},"annotations":{"pad":""#;
    let tail = r#""}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}"#;
    let pad = size.saturating_sub(head.len() + tail.len());
    let text: String = head.chars().chain("abcdefghij".chars().cycle().take(pad)).chain(tail.chars()).collect();
    text.into()
}

/// CREATE of a Pod in namespace `shop`.
pub fn create_pod(uid: &str, size: usize) -> AdmissionRequest {
    let text = |text: &str| Some(text.to_owned());
    AdmissionRequest {
        name: text("web"),
        namespace: text("shop"),
        user_info: Some(UserInfo { username: text("ann"), ..Default::default() }),
        dry_run: Some(false),
        ..request::create(uid, "Pod", "pods", pod(size))
    }
}

/// The request in its review.
pub fn review(request: AdmissionRequest) -> AdmissionReview {
    AdmissionReview { request: Some(request), response: None }
}

/// The request as one gRPC message, frame head included.
pub fn message(request: AdmissionRequest) -> Bytes {
    framed(&review(request))
}

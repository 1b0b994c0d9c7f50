//! A [`Verdict`] to the answer the caller is sent: a gRPC message, an envelope or JSON.
//!
//! A caller over HTTP is kube-apiserver, which puts our own name before each audit key: there the keys are flat.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use serde_json::{Map, Value, json};

use super::{
    answer::JSON_PATCH,
    envelope, flat_key,
    inbound::FRAME_HEAD,
    json_view::KIND,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1 as meta,
    },
};
use gatepost_api::{ReviewVersion, Rope, StatusInfo, Verdict};

/// Encodes the verdict as the gRPC answer to the review of that uid, frame head included.
pub fn encode(uid: &str, verdict: &Verdict) -> Bytes {
    framed(&review(uid, verdict, verdict.audit_annotations.iter().cloned().collect()))
}

/// Encodes the verdict as an AdmissionReview in Kubernetes' protobuf envelope.
pub fn envelope(version: ReviewVersion, uid: &str, verdict: &Verdict) -> Bytes {
    let message = Rope::new([review(uid, verdict, flat(verdict)).encode_to_vec().into()]);
    let enveloped = envelope::wrap(version, &message, 0..message.len());
    enveloped.copy_of(0..enveloped.len())
}

/// Encodes the verdict as an AdmissionReview in JSON.
pub fn json(version: ReviewVersion, uid: &str, verdict: &Verdict) -> Bytes {
    let mut response = Map::new();
    response.insert("uid".into(), uid.into());
    response.insert("allowed".into(), verdict.allowed().into());
    if let Some(refusal) = &verdict.refusal {
        response.insert("status".into(), json_status(refusal));
    }
    if !verdict.warnings.is_empty() {
        response.insert("warnings".into(), verdict.warnings.clone().into());
    }
    if let Some(patch) = &verdict.patch {
        response.insert("patchType".into(), JSON_PATCH.into());
        response.insert("patch".into(), STANDARD.encode(patch).into());
    }
    let annotations = flat(verdict);
    if !annotations.is_empty() {
        response.insert("auditAnnotations".into(), json!(annotations));
    }
    json!({ "apiVersion": version.api_version(), "kind": KIND, "response": response }).to_string().into()
}

fn review(uid: &str, verdict: &Verdict, audit_annotations: BTreeMap<String, String>) -> AdmissionReview {
    AdmissionReview {
        request: None,
        response: Some(AdmissionResponse {
            uid: Some(uid.to_owned()),
            allowed: Some(verdict.allowed()),
            status: verdict.refusal.as_ref().map(status),
            patch: verdict.patch.clone(),
            patch_type: verdict.patch.as_ref().map(|_| JSON_PATCH.to_owned()),
            audit_annotations,
            warnings: verdict.warnings.clone(),
        }),
    }
}

fn flat(verdict: &Verdict) -> BTreeMap<String, String> {
    verdict.audit_annotations.iter().map(|(key, value)| (flat_key::of(key), value.clone())).collect()
}

/// A protobuf message as one gRPC message: head and body.
pub fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(FRAME_HEAD + len);
    out.put_u8(0);
    // A message of 4 GiB cannot be built: every part of it is bounded far below.
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    message.encode_raw(&mut out);
    out.freeze()
}

/// A status as protobuf has it.
pub(super) fn status(info: &StatusInfo) -> meta::Status {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let causes: Vec<meta::StatusCause> = info
        .causes
        .iter()
        .map(|cause| meta::StatusCause {
            reason: text(&cause.reason),
            message: text(&cause.message),
            field: text(&cause.field),
        })
        .collect();
    let details = meta::StatusDetails {
        name: text(&info.details_name),
        group: text(&info.details_group),
        kind: text(&info.details_kind),
        causes,
        retry_after_seconds: (info.retry_after_seconds != 0).then_some(info.retry_after_seconds),
        uid: text(&info.details_uid),
    };
    let metadata = info.metadata.as_ref().map(|metadata| meta::ListMeta {
        self_link: text(&metadata.self_link),
        resource_version: text(&metadata.resource_version),
        r#continue: text(&metadata.continue_token),
        remaining_item_count: metadata.remaining_item_count,
    });
    meta::Status {
        metadata,
        status: text(&info.status),
        message: text(&info.message),
        reason: text(&info.reason),
        details: (info.has_details || details != meta::StatusDetails::default()).then_some(details),
        code: Some(info.code),
    }
}

/// Status in JSON. Empty fields are left out, but for details that a hook gave.
pub fn json_status(info: &StatusInfo) -> Value {
    let texts = |texts: &[(&str, &String)]| -> Map<String, Value> {
        let said = texts.iter().filter(|(_, text)| !text.is_empty());
        said.map(|(key, text)| ((*key).to_owned(), (*text).clone().into())).collect()
    };
    let mut details = texts(&[
        ("name", &info.details_name),
        ("group", &info.details_group),
        ("kind", &info.details_kind),
        ("uid", &info.details_uid),
    ]);
    if !info.causes.is_empty() {
        let causes = info
            .causes
            .iter()
            .map(|cause| texts(&[("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)]));
        details.insert("causes".into(), causes.collect());
    }
    if info.retry_after_seconds != 0 {
        details.insert("retryAfterSeconds".into(), info.retry_after_seconds.into());
    }
    let mut status = texts(&[("status", &info.status), ("reason", &info.reason), ("message", &info.message)]);
    status.insert("code".into(), info.code.into());
    if info.has_details || !details.is_empty() {
        status.insert("details".into(), details.into());
    }
    if let Some(given) = &info.metadata {
        let mut metadata = texts(&[
            ("selfLink", &given.self_link),
            ("resourceVersion", &given.resource_version),
            ("continue", &given.continue_token),
        ]);
        if let Some(count) = given.remaining_item_count {
            metadata.insert("remainingItemCount".into(), count.into());
        }
        status.insert("metadata".into(), metadata.into());
    }
    status.into()
}

#[cfg(test)]
mod tests;

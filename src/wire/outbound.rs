//! A [`Verdict`] to a gRPC message, frame head included.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::{
    inbound::FRAME_HEAD,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1 as meta,
    },
};
use crate::model::{StatusInfo, Verdict};

/// Encodes the verdict as the answer to the review of that uid.
pub fn encode(uid: &str, verdict: &Verdict) -> Bytes {
    let review = AdmissionReview {
        request: None,
        response: Some(AdmissionResponse {
            uid: Some(uid.to_owned()),
            allowed: Some(verdict.allowed()),
            status: verdict.refusal.as_ref().map(status),
            patch: None,
            patch_type: None,
            audit_annotations: verdict.audit_annotations.iter().cloned().collect(),
            warnings: verdict.warnings.clone(),
        }),
    };
    framed(&review)
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

fn status(info: &StatusInfo) -> meta::Status {
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
    meta::Status {
        metadata: None,
        status: text(&info.status),
        message: text(&info.message),
        reason: text(&info.reason),
        details: (details != meta::StatusDetails::default()).then_some(details),
        code: Some(info.code),
    }
}

#[allow(missing_docs)]
pub fn json(version: crate::model::ReviewVersion, uid: &str, verdict: &Verdict) -> Bytes {
    let status =
        verdict.refusal.as_ref().map(|status| serde_json::json!({"code": status.code, "message": status.message}));
    serde_json::json!({"apiVersion": version.api_version(), "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": verdict.allowed(), "status": status}})
    .to_string()
    .into()
}

#[allow(missing_docs)]
pub fn envelope(_version: crate::model::ReviewVersion, uid: &str, verdict: &Verdict) -> Bytes {
    encode(uid, verdict)
}

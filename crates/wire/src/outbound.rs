//! Encodes a [`Verdict`] as the answer to the caller: a gRPC message, a protobuf envelope or JSON.
//!
//! A caller over HTTP is kube-apiserver, which prefixes each audit key with our name and a slash. A key may have only
//! one slash, so `<hook>/<key>` is flattened for callers over HTTP. Source: `docs/reference/webhook-semantics.md` §10.3
//! and §17.

use std::{collections::BTreeMap, fmt::Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use gatepost_api::{ReviewVersion, Rope, StatusInfo, Verdict, verdict::ANNOTATION_PREFIX};
use prost::Message;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    answer::JSON_PATCH,
    envelope,
    inbound::FRAME_HEAD,
    json_view::KIND,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1 as meta,
    },
};

/// Encodes the verdict as the gRPC answer to the review with this uid, including the frame header.
pub fn encode(uid: &str, verdict: &Verdict) -> Bytes {
    framed(&review(uid, verdict, verdict.audit_annotations.iter().cloned().collect()))
}

/// Encodes the verdict as an AdmissionReview in Kubernetes' protobuf envelope.
pub fn envelope(version: ReviewVersion, uid: &str, verdict: &Verdict) -> Bytes {
    let message = Rope::new([review(uid, verdict, flat(verdict)).encode_to_vec().into()]);
    let enveloped = envelope::wrap(version, &message, 0..message.len());
    enveloped.to_bytes()
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
    verdict.audit_annotations.iter().map(|(key, value)| (of(key), value.clone())).collect()
}

/// Encodes a protobuf message as one gRPC message, including the frame header.
pub fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(FRAME_HEAD + len);
    out.put_u8(0);
    // The parts of a message are limited to far less than 4 GiB.
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    message.encode_raw(&mut out);
    out.freeze()
}

/// Converts a status to protobuf.
pub fn status(info: &StatusInfo) -> meta::Status {
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

/// Converts a status to JSON. Omits empty fields, except `code` and the `details` that a hook has given.
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

/// Maximum length of the name part of a qualified name.
const MAX_NAME_CHARS: usize = 63;
/// Length always available to the part after the hook's name if a key must be cut.
const MIN_KEY_CHARS: usize = 32;
/// Length of the hash that keeps cut keys distinct, in hexadecimal digits.
const HASH_CHARS: usize = 8;

/// Returns the key as one name part: `<hook>_<key>` if that is valid and short enough, otherwise the beginnings of both
/// around a hash of the whole key. A hook's name has no underscore, so the first underscore ends it. Our own keys get
/// no prefix: the apiserver adds our name.
pub fn of(key: &str) -> String {
    let (hook, name) = match key.split_once('/') {
        None | Some((ANNOTATION_PREFIX, _)) => ("", key.rsplit('/').next().unwrap_or(key)),
        Some(of_hook) => of_hook,
    };
    let plain = if hook.is_empty() { name.to_owned() } else { format!("{hook}_{name}") };
    if plain.len() <= MAX_NAME_CHARS && is_name(&plain) && !hook.contains('_') {
        return plain;
    }
    let mut flat = String::with_capacity(MAX_NAME_CHARS);
    let name = cut(name, MIN_KEY_CHARS.max((MAX_NAME_CHARS - HASH_CHARS - 2).saturating_sub(hook.len())));
    let hook = cut(hook, MAX_NAME_CHARS - HASH_CHARS - 2 - name.len());
    if !hook.is_empty() {
        flat.push_str(&hook);
        flat.push('-');
    }
    for byte in &Sha256::digest(key)[..HASH_CHARS / 2] {
        // Writing to a String cannot fail.
        let _ = write!(flat, "{byte:02x}");
    }
    if !name.is_empty() {
        flat.push('_');
        flat.push_str(&name);
    }
    flat
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.bytes().all(in_name) && edge(text.as_bytes().first()) && edge(text.as_bytes().last())
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Returns at most `longest` characters of a text. Replaces characters that are invalid in names by hyphens, and trims
/// both ends to a letter or digit.
fn cut(text: &str, longest: usize) -> String {
    let legal = text.chars().map(|sign| if sign.is_ascii() && in_name(sign as u8) { sign } else { '-' });
    let cut: String = legal.take(longest).collect();
    cut.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()).to_owned()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod flat_key_tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_keys_are_bare() {
        assert_eq!(of(gatepost_api::verdict::REVISION_ANNOTATION), "revision");
        assert_eq!(of("gatepost.dev.example.com/revision"), "gatepost.dev.example.com_revision");
    }

    #[test]
    fn what_fits_stays_readable() {
        assert_eq!(of("quota.example.com/team"), "quota.example.com_team");
        assert_eq!(
            of("failed-open.validating.webhook.admission.k8s.io/round_0_index_0"),
            "failed-open.validating.webhook.admission.k8s.io_round_0_index_0"
        );
        let cut = of("failed-open.validating.webhook.admission.k8s.io/round_0_index_10");
        assert!(cut.starts_with("failed-open.validating.webhook.admi") && cut.ends_with("_round_0_index_10"), "{cut}");
        assert_eq!(of("alone"), "alone");
    }

    #[test]
    fn what_is_cut_stays_apart() {
        let hook = |end: &str| format!("{}.{end}.example.com/decision", "a".repeat(60));
        let keys: BTreeSet<_> = (0..1000).map(|n| of(&hook(&format!("h{n}")))).collect();
        assert_eq!(keys.len(), 1000);
        assert_eq!(of(&hook("x")), of(&hook("x")));
        assert_ne!(of("a.b/c d"), of("a.b/c-d"));
        assert_ne!(of("a_b/c"), of("a/b_c"));
    }

    proptest! {
        #[test]
        fn every_key_becomes_a_name(hook in "[a-z.-]{0,120}", key in "[ -~é]{0,120}", slash: bool) {
            let key = if slash { format!("{hook}/{key}") } else { format!("{hook}{key}") };
            let flat = of(&key);
            prop_assert!(flat.len() <= MAX_NAME_CHARS && is_name(&flat), "{} of {}", flat, key);
        }
    }
}

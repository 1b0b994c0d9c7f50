//! What a hook sent back over HTTP, beside serde and prost: the same answer, or the same kind of failure.

use bytes::Bytes;
use gatepost::{
    model::{Answer, CallFailure, Denial, HttpForm, ReviewVersion, StatusCause, StatusInfo},
    wire::{
        http_answer::decode,
        pb::k8s::io::{api::admission::v1::AdmissionResponse, apimachinery::pkg::apis::meta::v1 as meta},
    },
};
use prost::Message;
use serde_json::value::RawValue;

use super::{
    fields::{Fields, Read, integer, plain, string},
    json, unknown,
};

/// The uid that upstream's table of answers has, and so the seeds.
const UID: &str = "123";
const MAX_DEPTH: usize = 10_000;

const FORMS: [HttpForm; 5] = [
    HttpForm::Json(ReviewVersion::V1),
    HttpForm::Json(ReviewVersion::V1beta1),
    HttpForm::Protobuf(ReviewVersion::V1),
    HttpForm::Protobuf(ReviewVersion::V1beta1),
    HttpForm::Legacy,
];

/// `wire::http_answer::decode`, for a body in every form with every kind of status.
pub(crate) fn check(body: &[u8]) {
    let yaml = is_yaml(body);
    for form in FORMS {
        for status in [200, 204, 400, 500] {
            let ours = decode(form, UID, status, Bytes::copy_from_slice(body));
            if let Err(failure) = &ours {
                let told = failure.to_string();
                assert!(told.len() < 1000, "{} bytes are told of a failure", told.len());
                assert!(!told.contains(char::is_control), "{told:?} is not one line");
            }
            match (ours, wanted(form, status, body)) {
                (Ok(ours), Ok(wanted)) => assert_eq!(ours, wanted, "{form:?} with status {status}"),
                // The product's limits for YAML are narrower.
                (Err(CallFailure::Undecodable(_)), _) if yaml => {}
                (Err(ours), Err(wanted)) => assert_eq!(ours.kind(), wanted, "{form:?} with status {status}: {ours}"),
                (Err(CallFailure::Http { .. }), Ok(_)) if yaml && status == 400 => {}
                (ours, wanted) => panic!("{form:?} with status {status}: {ours:?}, wanted {wanted:?}"),
            }
        }
    }
}

/// The answer, or the kind of failure.
fn wanted(form: HttpForm, status: u16, body: &[u8]) -> Result<Answer, &'static str> {
    let version = match (form, status) {
        (HttpForm::Legacy, 200 | 204) => return Ok(Answer::default()),
        (HttpForm::Legacy, 400) => {
            let said = text(body).map_err(|_| "http_status")?;
            return match said.status {
                Some(status) if said.kind.is_empty() || said.kind == "AdmissionReview" => Ok(denied(status)),
                _ => Err("http_status"),
            };
        }
        (HttpForm::Protobuf(_), 204) if body.is_empty() => return Ok(Answer::default()),
        (HttpForm::Json(version) | HttpForm::Protobuf(version), 200 | 204) => version,
        _ => return Err("http_status"),
    };
    let said = if body.starts_with(b"k8s\0") { enveloped(body) } else { text(body) }.map_err(|_| "undecodable")?;
    let wrong = |got: &str, wanted: &str| !got.is_empty() && got != wanted;
    if wrong(&said.api_version, version.api_version()) || wrong(&said.kind, "AdmissionReview") {
        return Err("invalid");
    }
    let response = said.response.ok_or("no_response")?;
    if version == ReviewVersion::V1 {
        if response.uid != UID {
            return Err("wrong_uid");
        }
        if response.patch.is_some_and(|patch| !patch.is_empty()) || response.patch_type.is_some() {
            return Err("patch_from_validating");
        }
        if said.api_version.is_empty() || said.kind.is_empty() {
            return Err("invalid");
        }
    }
    let mut answer = if response.allowed { Answer::default() } else { denied(response.status) };
    answer.warnings = response.warnings;
    answer.audit_annotations = response.audit_annotations;
    answer.audit_annotations.sort();
    Ok(answer)
}

fn denied(status: StatusInfo) -> Answer {
    Answer { denial: Some(Denial(Box::new(status))), ..Answer::default() }
}

#[derive(Default)]
struct Said {
    api_version: String,
    kind: String,
    response: Option<Response>,
    status: Option<StatusInfo>,
}

#[derive(Default)]
struct Response {
    uid: String,
    allowed: bool,
    status: StatusInfo,
    patch: Option<Vec<u8>>,
    patch_type: Option<String>,
    warnings: Vec<String>,
    audit_annotations: Vec<(String, String)>,
}

/// AdmissionReview without a look into its request.
#[derive(Clone, PartialEq, Message)]
struct Review {
    #[prost(bytes = "bytes", tag = "1")]
    request: Bytes,
    #[prost(message, optional, tag = "2")]
    response: Option<AdmissionResponse>,
}

fn enveloped(body: &[u8]) -> Result<Said, String> {
    let opened = unknown::open(body)?;
    let review = Review::decode(opened.message).map_err(|error| error.to_string())?;
    let response = review.response.map(|response| Response {
        uid: response.uid().to_owned(),
        allowed: response.allowed(),
        status: response.status.map(status_in_protobuf).unwrap_or_default(),
        patch: response.patch.map(Vec::from),
        patch_type: response.patch_type,
        warnings: response.warnings,
        audit_annotations: response.audit_annotations.into_iter().collect(),
    });
    Ok(Said { api_version: opened.api_version, kind: opened.kind, response, status: None })
}

fn status_in_protobuf(status: meta::Status) -> StatusInfo {
    let details = status.details.clone().unwrap_or_default();
    let cause = |cause: &meta::StatusCause| StatusCause {
        reason: cause.reason().to_owned(),
        message: cause.message().to_owned(),
        field: cause.field().to_owned(),
    };
    StatusInfo {
        code: status.code(),
        status: status.status().to_owned(),
        reason: status.reason().to_owned(),
        message: status.message().to_owned(),
        details_name: details.name().to_owned(),
        details_group: details.group().to_owned(),
        details_kind: details.kind().to_owned(),
        details_uid: details.uid().to_owned(),
        causes: details.causes.iter().map(cause).collect(),
        retry_after_seconds: details.retry_after_seconds(),
    }
}

/// Upstream's rule: JSON begins with a brace.
fn is_yaml(body: &[u8]) -> bool {
    !body.starts_with(b"k8s\0") && !body.trim_ascii_start().starts_with(b"{")
}

fn text(body: &[u8]) -> Result<Said, String> {
    let text = String::from_utf8_lossy(body);
    if !is_yaml(body) {
        return in_json(&text);
    }
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let value: serde_json::Value =
        serde_saphyr::from_str_with_options(&text, options).map_err(|error| error.to_string())?;
    in_json(&value.to_string())
}

fn in_json(text: &str) -> Result<Said, String> {
    if json::deepest(text) > MAX_DEPTH {
        return Err("it is nested too deep".into());
    }
    let text = json::as_go_reads(text);
    let review = Fields::of(serde_json::from_str(&text).map_err(|error| error.to_string())?)?.ok_or("it is null")?;
    Ok(Said {
        api_version: review.last("apiVersion", string)?.unwrap_or_default(),
        kind: review.last("kind", string)?.unwrap_or_default(),
        response: review.last("response", response)?,
        status: review.last("status", status)?,
    })
}

fn response(raw: &RawValue) -> Read<Response> {
    let Some(fields) = Fields::of(raw)? else { return Ok(None) };
    let pairs = |raw: &RawValue| {
        let Some(fields) = Fields::of(raw)? else { return Ok(None) };
        let mut pairs = std::collections::BTreeMap::new();
        for (key, value) in fields.0 {
            pairs.insert(key, string(value)?.unwrap_or_default());
        }
        Ok(Some(pairs.into_iter().collect()))
    };
    Ok(Some(Response {
        uid: fields.last("uid", string)?.unwrap_or_default(),
        allowed: fields.last("allowed", plain)?.unwrap_or_default(),
        status: fields.last("status", status)?.unwrap_or_default(),
        patch: fields.last("patch", string)?.map(String::into_bytes),
        patch_type: fields.last("patchType", string)?,
        warnings: fields
            .last("warnings", plain::<Vec<Option<String>>>)?
            .unwrap_or_default()
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect(),
        audit_annotations: fields.last("auditAnnotations", pairs)?.unwrap_or_default(),
    }))
}

fn status(raw: &RawValue) -> Read<StatusInfo> {
    let Some(fields) = Fields::of(raw)? else { return Ok(None) };
    let mut status = fields.last("details", details)?.unwrap_or_default();
    status.code = fields.last("code", integer)?.unwrap_or_default();
    status.status = fields.last("status", string)?.unwrap_or_default();
    status.reason = fields.last("reason", string)?.unwrap_or_default();
    status.message = fields.last("message", string)?.unwrap_or_default();
    Ok(Some(status))
}

fn details(raw: &RawValue) -> Read<StatusInfo> {
    let Some(fields) = Fields::of(raw)? else { return Ok(None) };
    let causes = |raw: &RawValue| {
        let Some(items) = plain::<Vec<&RawValue>>(raw)? else { return Ok(None) };
        let causes = items.into_iter().map(|raw| cause(raw).map(Option::unwrap_or_default));
        causes.collect::<Result<Vec<_>, _>>().map(Some)
    };
    Ok(Some(StatusInfo {
        details_name: fields.last("name", string)?.unwrap_or_default(),
        details_group: fields.last("group", string)?.unwrap_or_default(),
        details_kind: fields.last("kind", string)?.unwrap_or_default(),
        details_uid: fields.last("uid", string)?.unwrap_or_default(),
        causes: fields.last("causes", causes)?.unwrap_or_default(),
        retry_after_seconds: fields.last("retryAfterSeconds", integer)?.unwrap_or_default(),
        ..StatusInfo::default()
    }))
}

fn cause(raw: &RawValue) -> Read<StatusCause> {
    let Some(fields) = Fields::of(raw)? else { return Ok(None) };
    Ok(Some(StatusCause {
        reason: fields.last("reason", string)?.unwrap_or_default(),
        message: fields.last("message", string)?.unwrap_or_default(),
        field: fields.last("field", string)?.unwrap_or_default(),
    }))
}

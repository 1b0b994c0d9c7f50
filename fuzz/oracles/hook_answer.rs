//! Answer of a hook over HTTP, beside serde and prost: the same answer, or the same kind of failure.

use bytes::Bytes;
use gatepost_api::{
    Answer, CallFailure, Denial, HookType, HttpForm, ReviewVersion, StatusCause, StatusInfo, StatusMetadata,
};
use gatepost_wire::{
    http_answer::decode,
    pb::k8s::io::{api::admission::v1::AdmissionResponse, apimachinery::pkg::apis::meta::v1 as meta},
};
use prost::Message;
use serde_json::value::RawValue;

use super::{
    fields::Fields,
    go::{BYTE, INT32, INT64, Type, Value},
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
            let ours = decode(HookType::Validating, form, UID, status, Bytes::copy_from_slice(body));
            if let Err(failure) = &ours {
                let shown = failure.to_string();
                assert!(shown.len() < 1000, "{} bytes are shown of a failure", shown.len());
                assert!(!shown.contains(char::is_control), "{shown:?} is not one line");
            }
            match (ours, wanted(form, status, body)) {
                (Ok(ours), Ok(wanted)) => assert_eq!(ours, wanted, "{form:?} with status {status}"),
                // The product's limits for YAML are narrower.
                (Err(CallFailure::Undecodable(_)), _) if yaml => {}
                (Err(ours), Err(wanted)) => {
                    assert_eq!(ours.kind().as_str(), wanted, "{form:?} with status {status}: {ours}")
                }
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
                Ok(Some(status)) if ["", "AdmissionReview"].contains(&&*said.stated.1) => Ok(denied(status)),
                _ => Err("http_status"),
            };
        }
        (HttpForm::Protobuf(_), 204) if body.is_empty() => return Ok(Answer::default()),
        (HttpForm::Json(version) | HttpForm::Protobuf(version), 200 | 204) => version,
        _ => return Err("http_status"),
    };
    let said = if body.starts_with(b"k8s\0") { enveloped(body) } else { text(body) }.map_err(|_| "undecodable")?;
    let (declared, kind) = &said.declared;
    if declared.matches('/').count() > 1 {
        return Err("undecodable");
    }
    if !["", "/", "admission.k8s.io/", version.api_version()].contains(&&**declared)
        || !["", "AdmissionReview"].contains(&&**kind)
    {
        return Err("invalid");
    }
    said.request.map_err(|_| "undecodable")?;
    let response = said.response.ok_or("no_response")?;
    if version == ReviewVersion::V1 {
        if response.uid != UID {
            return Err("wrong_uid");
        }
        if response.patch.is_some_and(|patch| !patch.is_empty()) || response.patch_type.is_some() {
            return Err("patch_from_validating");
        }
        if said.stated != (version.api_version().to_owned(), "AdmissionReview".to_owned()) {
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

struct Said {
    /// Version and kind, as they are found without regard to case, and as they are written.
    declared: (String, String),
    stated: (String, String),
    request: Result<(), String>,
    response: Option<Response>,
    /// Fields of the seeds' contract.
    status: Result<Option<StatusInfo>, String>,
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
    let stated = (opened.api_version, opened.kind);
    Ok(Said { declared: stated.clone(), stated, request: Ok(()), response, status: Ok(None) })
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
        metadata: status.metadata.and_then(|metadata| {
            metadata_of(
                [metadata.self_link(), metadata.resource_version(), metadata.r#continue()].map(str::to_owned),
                metadata.remaining_item_count,
            )
        }),
        has_details: status.details.is_some(),
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
    !body.starts_with(b"k8s\0") && !String::from_utf8_lossy(body).trim_start().starts_with('{')
}

fn text(body: &[u8]) -> Result<Said, String> {
    let text = String::from_utf8_lossy(body);
    if !is_yaml(body) {
        return in_json(&text);
    }
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let mut rest = text.as_bytes();
    // Others are not looked at.
    let first = serde_saphyr::read_with_options::<_, serde_json::Value>(&mut rest, options).next();
    let value = first.transpose().map_err(|error| error.to_string())?;
    in_json(&value.unwrap_or_default().to_string())
}

const TEXTS: Type = Type::Slice(&Type::Text);
const KIND: Type = Type::Struct(&[("group", Type::Text), ("version", Type::Text), ("kind", Type::Text)]);
const RESOURCE: Type = Type::Struct(&[("group", Type::Text), ("version", Type::Text), ("resource", Type::Text)]);
const USER: Type =
    Type::Struct(&[("username", Type::Text), ("uid", Type::Text), ("groups", TEXTS), ("extra", Type::Map(&TEXTS))]);
const REQUEST: Type = Type::Pointer(&Type::Struct(&[
    ("uid", Type::Text),
    ("kind", KIND),
    ("resource", RESOURCE),
    ("subResource", Type::Text),
    ("requestKind", Type::Pointer(&KIND)),
    ("requestResource", Type::Pointer(&RESOURCE)),
    ("requestSubResource", Type::Text),
    ("name", Type::Text),
    ("namespace", Type::Text),
    ("operation", Type::Text),
    ("userInfo", USER),
    ("object", Type::Raw),
    ("oldObject", Type::Raw),
    ("dryRun", Type::Pointer(&Type::Flag)),
    ("options", Type::Raw),
]));
const CAUSE: Type = Type::Struct(&[("reason", Type::Text), ("message", Type::Text), ("field", Type::Text)]);
const STATUS: Type = Type::Pointer(&Type::Struct(&[
    ("kind", Type::Text),
    ("apiVersion", Type::Text),
    (
        "metadata",
        Type::Struct(&[
            ("selfLink", Type::Text),
            ("resourceVersion", Type::Text),
            ("continue", Type::Text),
            ("remainingItemCount", Type::Pointer(&INT64)),
        ]),
    ),
    ("status", Type::Text),
    ("message", Type::Text),
    ("reason", Type::Text),
    ("code", INT32),
    (
        "details",
        Type::Pointer(&Type::Struct(&[
            ("name", Type::Text),
            ("group", Type::Text),
            ("kind", Type::Text),
            ("uid", Type::Text),
            ("causes", Type::Slice(&CAUSE)),
            ("retryAfterSeconds", INT32),
        ])),
    ),
]));
const RESPONSE: Type = Type::Pointer(&Type::Struct(&[
    ("uid", Type::Text),
    ("allowed", Type::Flag),
    ("status", STATUS),
    ("patch", Type::Slice(&BYTE)),
    ("patchType", Type::Pointer(&Type::Text)),
    ("auditAnnotations", Type::Map(&Type::Text)),
    ("warnings", TEXTS),
]));

fn in_json(text: &str) -> Result<Said, String> {
    if json::deepest(text) > MAX_DEPTH {
        return Err("it is nested too deep".into());
    }
    let text = json::as_go_reads(text);
    let review: &RawValue = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let review = Fields::of(review)?.ok_or("it is null")?;
    let all = |named: &dyn Fn(&str) -> bool, of: &Type| {
        let mut value = of.zero();
        let mut raws = review.0.iter().filter(|(key, _)| named(key));
        raws.try_for_each(|(_, raw)| of.read(raw, &mut value)).map(|()| value)
    };
    let under = |wanted: &'static str, of: &Type| all(&|key| key == wanted, of);
    let folded = |wanted: &'static str| all(&|key| key.replace('ſ', "s").to_lowercase() == wanted, &Type::Text);
    Ok(Said {
        declared: (folded("apiversion")?.text(), folded("kind")?.text()),
        stated: (under("apiVersion", &Type::Text)?.text(), under("kind", &Type::Text)?.text()),
        request: under("request", &REQUEST).map(|_| ()),
        response: under("response", &RESPONSE)?.pointed().map(response),
        status: under("status", &STATUS).map(|status| status.pointed().map(status_of)),
    })
}

fn response(value: &Value) -> Response {
    Response {
        uid: value.field("uid").text(),
        allowed: value.field("allowed").flag(),
        status: value.field("status").pointed().map(status_of).unwrap_or_default(),
        patch: Some(vec![0; value.field("patch").items().len()]),
        patch_type: value.field("patchType").pointed().map(Value::text),
        warnings: value.field("warnings").items().iter().map(Value::text).collect(),
        audit_annotations: value
            .field("auditAnnotations")
            .entries()
            .map(|(key, value)| (key.clone(), value.text()))
            .collect(),
    }
}

fn status_of(value: &Value) -> StatusInfo {
    let text = |key: &str| value.field(key).text();
    let metadata = value.field("metadata");
    let mut status = StatusInfo {
        code: value.field("code").number() as i32,
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        metadata: metadata_of(
            ["selfLink", "resourceVersion", "continue"].map(|key| metadata.field(key).text()),
            metadata.field("remainingItemCount").pointed().map(Value::number),
        ),
        ..StatusInfo::default()
    };
    let Some(details) = value.field("details").pointed() else { return status };
    let text = |key: &str| details.field(key).text();
    status.has_details = true;
    status.details_name = text("name");
    status.details_group = text("group");
    status.details_kind = text("kind");
    status.details_uid = text("uid");
    status.retry_after_seconds = details.field("retryAfterSeconds").number() as i32;
    let cause = |cause: &Value| StatusCause {
        reason: cause.field("reason").text(),
        message: cause.field("message").text(),
        field: cause.field("field").text(),
    };
    status.causes = details.field("causes").items().iter().map(cause).collect();
    status
}

/// Metadata, where it says anything.
fn metadata_of(
    [self_link, resource_version, continue_token]: [String; 3],
    count: Option<i64>,
) -> Option<Box<StatusMetadata>> {
    let metadata = StatusMetadata { self_link, resource_version, continue_token, remaining_item_count: count };
    (metadata != StatusMetadata::default()).then(|| Box::new(metadata))
}

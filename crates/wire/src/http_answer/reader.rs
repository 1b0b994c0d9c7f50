//! Reads the fields of an answer in JSON as Go's decoder fills kube-apiserver's own types.
//!
//! A repeated key is read into the value that its first occurrence has set: objects are merged, the last scalar counts,
//! and `null` clears nullable fields and leaves the others unchanged. Unknown keys are skipped; a known key with a
//! value of another type is an error. Source: `sigs.k8s.io/json`, `internal/golang/encoding/json/decode.go`.
//!
//! The request that an answer may repeat is not used. But kube-apiserver decodes it, so an answer whose request has a
//! field of another type is invalid.

use std::collections::BTreeMap;

use Shape::{Fields, Flag, List, Map, Raw, Text};
use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;

use super::{
    go_values::{Slice, set, string},
    status_reader::{PartialStatus, status},
};
use crate::{
    json::{Cursor, JsonReadError},
    pb::k8s::io::{api::admission::v1::AdmissionResponse, apimachinery::pkg::apis::meta::v1::Status},
};

/// Fields of an answer.
pub(super) struct AnswerFields {
    /// Type by which upstream chooses how to decode the answer. Its keys are case-insensitive, because upstream reads
    /// it with another decoder.
    pub(super) declared: TypeMeta,
    /// Type in the decoded answer. Its keys are case-sensitive.
    pub(super) stated: TypeMeta,
    pub(super) response: Option<AdmissionResponse>,
    /// Status of the `legacy` contract; ignored in Kubernetes' contract.
    pub(super) status: Result<Option<Status>, JsonReadError>,
    /// Result of checking the request that an answer may repeat.
    pub(super) request: Result<(), JsonReadError>,
}

/// `apiVersion` and `kind`, as written.
#[derive(Clone, Default)]
pub(super) struct TypeMeta {
    pub(super) api_version: String,
    pub(super) kind: String,
}

/// Reads an AdmissionReview with a response.
pub(super) fn read(text: &str) -> Result<AnswerFields, JsonReadError> {
    let mut cursor = Cursor::new(text);
    let (mut declared, mut stated) = (TypeMeta::default(), TypeMeta::default());
    let (mut response, mut legacy_status) = (None, Ok(None));
    let mut request = Ok(());
    if !cursor.object("the answer")? {
        return Err(JsonReadError::Type { field: "the answer", wanted: "an object" });
    }
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "apiVersion" => {
                set(&mut cursor, "apiVersion", |text| {
                    declared.api_version.clone_from(&text);
                    stated.api_version = text;
                })?;
            }
            "kind" => {
                set(&mut cursor, "kind", |text| {
                    declared.kind.clone_from(&text);
                    stated.kind = text;
                })?;
            }
            "response" => read_response(&mut cursor, &mut response)?,
            // Invalid JSON fails here; a value of the wrong type only if the caller uses `request`.
            "request" => {
                let place = cursor.value_range()?;
                request = request.and(check_request(&mut Cursor::new(&text[place])));
            }
            "status" => {
                let place = cursor.value_range()?;
                legacy_status = legacy_status.and_then(|mut read: Option<PartialStatus>| {
                    status(&mut Cursor::new(&text[place]), "status", &mut read).map(|()| read)
                });
            }
            other if folds_to(other, "apiversion") => {
                set(&mut cursor, "apiVersion", |text| declared.api_version = text)?;
            }
            other if folds_to(other, "kind") => set(&mut cursor, "kind", |text| declared.kind = text)?,
            _ => cursor.skip()?,
        }
    }
    cursor.end()?;
    let status = legacy_status.map(|read| read.map(Into::into));
    Ok(AnswerFields { declared, stated, response: response.map(Into::into), status, request })
}

/// Returns the message of a `metav1.Status`; `None` if the text is something else or the message is empty.
pub(super) fn message_of_status(text: &str) -> Option<String> {
    let mut cursor = Cursor::new(text);
    let (mut api_version, mut kind, mut message) = (None, None, None);
    cursor.object("the body").ok().filter(|entered| *entered)?;
    while let Some(key) = cursor.key().ok()? {
        match &*key.plain() {
            "apiVersion" => api_version = string(&mut cursor, "apiVersion").ok()?,
            "kind" => kind = string(&mut cursor, "kind").ok()?,
            "message" => message = string(&mut cursor, "message").ok()?,
            _ => cursor.skip().ok()?,
        }
    }
    // Other groups may have a kind `Status`.
    let is_status = matches!(api_version.as_deref(), None | Some("" | "v1")) && kind.as_deref() == Some("Status");
    message.filter(|message| is_status && !message.is_empty())
}

/// Returns true if `key` equals `wanted`, which is lowercase, apart from case. Go's decoder folds only these two
/// characters outside ASCII to an ASCII letter.
fn folds_to(key: &str, wanted: &str) -> bool {
    let folded = key.chars().map(|sign| match sign {
        '\u{212a}' => 'k',
        'ſ' => 's',
        sign => sign.to_ascii_lowercase(),
    });
    folded.eq(wanted.chars())
}

/// Response that is being read.
#[derive(Default)]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<PartialStatus>,
    patch: Option<Slice<u8>>,
    patch_type: Option<String>,
    audit_annotations: BTreeMap<String, String>,
    warnings: Slice<String>,
}

impl From<Response> for AdmissionResponse {
    fn from(read: Response) -> Self {
        Self {
            uid: read.uid,
            allowed: read.allowed,
            status: read.status.map(Into::into),
            patch: read.patch.map(|patch| Bytes::from(patch.into_vec())),
            patch_type: read.patch_type,
            audit_annotations: read.audit_annotations,
            warnings: read.warnings.into_vec(),
        }
    }
}

fn read_response(cursor: &mut Cursor<'_>, into: &mut Option<Response>) -> Result<(), JsonReadError> {
    if !cursor.object("response")? {
        *into = None;
        return Ok(());
    }
    let response = into.get_or_insert_default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "uid" => set(cursor, "response.uid", |text| response.uid = Some(text))?,
            "allowed" => response.allowed = cursor.boolean("response.allowed")?.or(response.allowed),
            "status" => status(cursor, "response.status", &mut response.status)?,
            "patch" => patch(cursor, &mut response.patch)?,
            "patchType" => response.patch_type = string(cursor, "response.patchType")?,
            "auditAnnotations" => {
                if !cursor.object("response.auditAnnotations")? {
                    response.audit_annotations.clear();
                    continue;
                }
                while let Some(key) = cursor.key()? {
                    let value = string(cursor, "response.auditAnnotations")?.unwrap_or_default();
                    response.audit_annotations.insert(key.plain().into_owned(), value);
                }
            }
            "warnings" => response.warnings.read(cursor, "response.warnings", |cursor, warning| {
                set(cursor, "response.warnings", |text| *warning = text)
            })?,
            _ => cursor.skip()?,
        }
    }
    Ok(())
}

/// Reads bytes in base64 or as an array of numbers.
fn patch(cursor: &mut Cursor<'_>, into: &mut Option<Slice<u8>>) -> Result<(), JsonReadError> {
    const FIELD: &str = "response.patch";
    if cursor.is_at_array() {
        return into.get_or_insert_default().read(cursor, FIELD, |cursor, byte| {
            *byte = cursor.byte(FIELD)?.unwrap_or(*byte);
            Ok(())
        });
    }
    *into = match string(cursor, FIELD)? {
        None => None,
        Some(text) => {
            let bytes = unbase64(text).ok_or(JsonReadError::Type { field: FIELD, wanted: "base64" })?;
            Some(Slice::of(bytes))
        }
    };
    Ok(())
}

/// Decodes base64 like Go's `base64.StdEncoding`: requires padding, and ignores line breaks and trailing bits.
fn unbase64(mut text: String) -> Option<Vec<u8>> {
    const STANDARD: GeneralPurpose =
        GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));
    text.retain(|sign| !matches!(sign, '\r' | '\n'));
    STANDARD.decode(text).ok()
}

/// Type of a value. `null` has every type, as in Go's decoder.
enum Shape {
    Text,
    Flag,
    /// Any JSON.
    Raw,
    List(&'static Shape),
    Map(&'static Shape),
    /// Fields by name. Other fields may have any type.
    Fields(&'static [(&'static str, Shape)]),
}

const TEXTS: Shape = List(&Text);
const KIND: Shape = Fields(&[("group", Text), ("version", Text), ("kind", Text)]);
const RESOURCE: Shape = Fields(&[("group", Text), ("version", Text), ("resource", Text)]);
const USER: Shape = Fields(&[("username", Text), ("uid", Text), ("groups", TEXTS), ("extra", Map(&TEXTS))]);
/// AdmissionRequest of `admission.k8s.io/v1` and `v1beta1`. Source: k8s.io/api, `admission/v1/types.go`.
const REQUEST: Shape = Fields(&[
    ("uid", Text),
    ("kind", KIND),
    ("resource", RESOURCE),
    ("subResource", Text),
    ("requestKind", KIND),
    ("requestResource", RESOURCE),
    ("requestSubResource", Text),
    ("name", Text),
    ("namespace", Text),
    ("operation", Text),
    ("userInfo", USER),
    ("object", Raw),
    ("oldObject", Raw),
    ("dryRun", Flag),
    ("options", Raw),
]);

/// Checks the types in the request at the cursor.
pub(super) fn check_request(cursor: &mut Cursor<'_>) -> Result<(), JsonReadError> {
    REQUEST.check(cursor).map_err(|error| match error {
        JsonReadError::Type { .. } => {
            JsonReadError::Type { field: "request", wanted: "of the types that a request has" }
        }
        error => error,
    })
}

impl Shape {
    fn check(&self, cursor: &mut Cursor<'_>) -> Result<(), JsonReadError> {
        const FIELD: &str = "request";
        match self {
            Text => cursor.string(FIELD).map(drop),
            Flag => cursor.boolean(FIELD).map(drop),
            Raw => cursor.skip(),
            List(item) => {
                if cursor.array(FIELD)? {
                    while cursor.item()? {
                        item.check(cursor)?;
                    }
                }
                Ok(())
            }
            Map(value) => {
                if cursor.object(FIELD)? {
                    while cursor.key()?.is_some() {
                        value.check(cursor)?;
                    }
                }
                Ok(())
            }
            Fields(known) => {
                if cursor.object(FIELD)? {
                    while let Some(key) = cursor.key()? {
                        let key = key.plain();
                        let field = known.iter().find(|(name, _)| *name == key);
                        field.map_or(&Raw, |(_, shape)| shape).check(cursor)?;
                    }
                }
                Ok(())
            }
        }
    }
}

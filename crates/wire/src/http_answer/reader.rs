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

use crate::{
    json::{Cursor, JsonReadError},
    pb::k8s::io::{
        api::admission::v1::AdmissionResponse,
        apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusCause, StatusDetails},
    },
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
    let (mut response, mut legacy_status, mut request) = (None, Ok(None), Ok(()));
    if !cursor.object("the answer")? {
        return Err(JsonReadError::Type { field: "the answer", wanted: "an object" });
    }
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "apiVersion" => {
                if let Some(text) = string(&mut cursor, "apiVersion")? {
                    declared.api_version.clone_from(&text);
                    stated.api_version = text;
                }
            }
            "kind" => {
                if let Some(text) = string(&mut cursor, "kind")? {
                    declared.kind.clone_from(&text);
                    stated.kind = text;
                }
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
                    read_status(&mut Cursor::new(&text[place]), "status", &mut read).map(|()| read)
                });
            }
            other if folds_to(other, "apiversion") => set(&mut cursor, "apiVersion", &mut declared.api_version)?,
            other if folds_to(other, "kind") => set(&mut cursor, "kind", &mut declared.kind)?,
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
    let read = cursor.read_object("the body", |cursor, key| {
        match key {
            "apiVersion" => api_version = string(cursor, "apiVersion")?,
            "kind" => kind = string(cursor, "kind")?,
            "message" => message = string(cursor, "message")?,
            _ => cursor.skip()?,
        }
        Ok::<_, JsonReadError>(())
    });
    read.ok()?;
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
    let mut response = into.take().unwrap_or_default();
    let is_object = cursor.read_object("response", |cursor, key| match key {
        "uid" => set(cursor, "response.uid", &mut response.uid),
        "allowed" => set_to(cursor.boolean("response.allowed")?, &mut response.allowed),
        "status" => read_status(cursor, "response.status", &mut response.status),
        "patch" => read_patch(cursor, &mut response.patch),
        "patchType" => string(cursor, "response.patchType").map(|text| response.patch_type = text),
        "auditAnnotations" => {
            let annotations = &mut response.audit_annotations;
            let is_object = cursor.read_object("response.auditAnnotations", |cursor, key| {
                let value = string(cursor, "response.auditAnnotations")?.unwrap_or_default();
                annotations.insert(key.to_owned(), value);
                Ok::<_, JsonReadError>(())
            })?;
            if !is_object {
                annotations.clear();
            }
            Ok(())
        }
        "warnings" => response
            .warnings
            .read(cursor, "response.warnings", |cursor, warning| set(cursor, "response.warnings", warning)),
        _ => cursor.skip(),
    })?;
    *into = is_object.then_some(response);
    Ok(())
}

/// Reads bytes in base64 or as an array of numbers.
fn read_patch(cursor: &mut Cursor<'_>, into: &mut Option<Slice<u8>>) -> Result<(), JsonReadError> {
    const FIELD: &str = "response.patch";
    if cursor.is_at_array() {
        return into.get_or_insert_default().read(cursor, FIELD, |cursor, byte| {
            *byte = cursor.byte(FIELD)?.unwrap_or(*byte);
            Ok(())
        });
    }
    let decode = |text| unbase64(text).map(Slice::of).ok_or(JsonReadError::Type { field: FIELD, wanted: "base64" });
    *into = string(cursor, FIELD)?.map(decode).transpose()?;
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
fn check_request(cursor: &mut Cursor<'_>) -> Result<(), JsonReadError> {
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
            List(item) => cursor.read_array(FIELD, |cursor| item.check(cursor)).map(drop),
            Map(value) => cursor.read_object(FIELD, |cursor, _| value.check(cursor)).map(drop),
            Fields(known) => {
                let field = |key: &str| known.iter().find(|(name, _)| *name == key).map_or(&Raw, |(_, shape)| shape);
                cursor.read_object(FIELD, |cursor, key| field(key).check(cursor)).map(drop)
            }
        }
    }
}

/// A `metav1.Status` that is being read.
#[derive(Default)]
struct PartialStatus {
    metadata: ListMeta,
    /// All fields except `metadata` and `details`, which are set at the end.
    plain: Status,
    details: Option<PartialDetails>,
}

/// Details that are being read.
#[derive(Default)]
struct PartialDetails {
    /// All fields except `causes`.
    plain: StatusDetails,
    causes: Slice<StatusCause>,
}

impl From<PartialStatus> for Status {
    fn from(read: PartialStatus) -> Self {
        let details = read.details.map(|details| StatusDetails { causes: details.causes.into_vec(), ..details.plain });
        let metadata = Some(read.metadata).filter(|metadata| *metadata != ListMeta::default());
        Self { metadata, details, ..read.plain }
    }
}

/// Reads an object over an earlier one with the same key; `null` clears it.
fn read_status(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    into: &mut Option<PartialStatus>,
) -> Result<(), JsonReadError> {
    let mut read = into.take().unwrap_or_default();
    let PartialStatus { metadata, plain, details } = &mut read;
    let is_object = cursor.read_object(field, |cursor, key| match key {
        "status" => set(cursor, "status.status", &mut plain.status),
        "message" => set(cursor, "status.message", &mut plain.message),
        "reason" => set(cursor, "status.reason", &mut plain.reason),
        "code" => set_to(cursor.integer("status.code")?, &mut plain.code),
        "details" => read_details(cursor, details),
        "metadata" => read_metadata(cursor, metadata),
        // kube-apiserver overwrites these two.
        "kind" => string(cursor, "status.kind").map(drop),
        "apiVersion" => string(cursor, "status.apiVersion").map(drop),
        _ => cursor.skip(),
    })?;
    *into = is_object.then_some(read);
    Ok(())
}

/// Reads `metadata`. It is not a pointer in Go, so `null` changes nothing.
fn read_metadata(cursor: &mut Cursor<'_>, into: &mut ListMeta) -> Result<(), JsonReadError> {
    let read = cursor.read_object("status.metadata", |cursor, key| match key {
        "selfLink" => set(cursor, "status.metadata.selfLink", &mut into.self_link),
        "resourceVersion" => set(cursor, "status.metadata.resourceVersion", &mut into.resource_version),
        "continue" => set(cursor, "status.metadata.continue", &mut into.r#continue),
        "remainingItemCount" => {
            into.remaining_item_count = cursor.long_integer("status.metadata.remainingItemCount")?;
            Ok(())
        }
        _ => cursor.skip(),
    });
    read.map(drop)
}

fn read_details(cursor: &mut Cursor<'_>, into: &mut Option<PartialDetails>) -> Result<(), JsonReadError> {
    let mut read = into.take().unwrap_or_default();
    let PartialDetails { plain, causes } = &mut read;
    let is_object = cursor.read_object("status.details", |cursor, key| match key {
        "name" => set(cursor, "status.details.name", &mut plain.name),
        "group" => set(cursor, "status.details.group", &mut plain.group),
        "kind" => set(cursor, "status.details.kind", &mut plain.kind),
        "uid" => set(cursor, "status.details.uid", &mut plain.uid),
        "retryAfterSeconds" => {
            set_to(cursor.integer("status.details.retryAfterSeconds")?, &mut plain.retry_after_seconds)
        }
        "causes" => causes.read(cursor, "status.details.causes", read_cause),
        _ => cursor.skip(),
    })?;
    *into = is_object.then_some(read);
    Ok(())
}

fn read_cause(cursor: &mut Cursor<'_>, into: &mut StatusCause) -> Result<(), JsonReadError> {
    let read = cursor.read_object("status.details.causes", |cursor, key| match key {
        "reason" => set(cursor, "status.details.causes.reason", &mut into.reason),
        "message" => set(cursor, "status.details.causes.message", &mut into.message),
        "field" => set(cursor, "status.details.causes.field", &mut into.field),
        _ => cursor.skip(),
    });
    read.map(drop)
}

/// A list as Go's decoder fills it: over the elements of an earlier list with the same key, including those past its
/// end. An empty list or `null` discards them.
#[derive(Debug, Default)]
struct Slice<T> {
    elements: Vec<T>,
    len: usize,
}

impl<T: Default> Slice<T> {
    /// Creates a list of these elements.
    fn of(elements: Vec<T>) -> Self {
        let len = elements.len();
        Self { elements, len }
    }

    /// Reads the array or `null` at the cursor, each element over the earlier one at its index.
    fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        field: &'static str,
        mut element: impl FnMut(&mut Cursor<'_>, &mut T) -> Result<(), JsonReadError>,
    ) -> Result<(), JsonReadError> {
        self.len = 0;
        cursor.read_array(field, |cursor| {
            if self.len == self.elements.len() {
                self.elements.push(T::default());
            }
            self.len += 1;
            element(cursor, &mut self.elements[self.len - 1])
        })?;
        if self.len == 0 {
            self.elements.clear();
        }
        Ok(())
    }

    /// Returns the elements up to the end of the list.
    fn into_vec(mut self) -> Vec<T> {
        self.elements.truncate(self.len);
        self.elements
    }
}

/// Reads the string at the cursor into `into`; `null` leaves it unchanged.
fn set<T: From<String>>(cursor: &mut Cursor<'_>, field: &'static str, into: &mut T) -> Result<(), JsonReadError> {
    string(cursor, field).map(|text| text.map(|text| *into = text.into())).map(drop)
}

/// Sets `into` to the value that was read; `null` leaves it unchanged.
fn set_to<T>(read: Option<T>, into: &mut Option<T>) -> Result<(), JsonReadError> {
    if read.is_some() {
        *into = read;
    }
    Ok(())
}

/// Reads the string at the cursor; `None` for `null`.
fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<String>, JsonReadError> {
    Ok(cursor.string(field)?.map(|text| text.plain().into_owned()))
}

//! Parses an AdmissionReview in JSON or YAML into the protobuf message.
//!
//! From JSON, `object`, `oldObject` and `options` keep their bytes, white space included, and share the text's buffer.
//! From YAML they are serialized again, with sorted keys.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::pb::k8s::io::{
    api::{
        admission::v1::{AdmissionRequest, AdmissionReview},
        authentication::v1::{ExtraValue, UserInfo},
    },
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};
use gatepost_api::Operation;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Reason why a text is not a review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is not JSON or YAML, or its fields are not those of a review.
    #[error("line {line}, column {column}: {what}")]
    At {
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// Fault at that position.
        what: String,
    },
    /// A fault without a position: the text is not UTF-8, or the fields of a YAML document are not those of a review.
    #[error("{0}")]
    Shape(String),
    /// The text is another kind of document.
    #[error("apiVersion is {api_version:?} and kind is {kind:?}; a review is {KIND} of {API_VERSION}")]
    NotAReview {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// A field has an invalid value.
    #[error("{field}: {what}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// Fault of the value.
        what: &'static str,
    },
}

/// Reads a review from the text of a file: JSON if `name` ends in `.json`, otherwise YAML.
///
/// # Errors
/// As [`from_json`] and [`from_yaml`].
pub fn from_file(name: &str, text: &Bytes) -> Result<AdmissionReview, TextError> {
    if name.to_ascii_lowercase().ends_with(".json") {
        return from_json(text);
    }
    let text = std::str::from_utf8(text)
        .map_err(|error| TextError::Shape(format!("is not UTF-8 text from byte {} on", error.valid_up_to())))?;
    from_yaml(text)
}

/// Reads a review in JSON.
///
/// # Errors
/// [`TextError`] with the position. Unknown fields are rejected: they are mistakes, because the format is final.
pub fn from_json(text: &Bytes) -> Result<AdmissionReview, TextError> {
    let review: Review<'_> = serde_json::from_slice(text).map_err(|error| TextError::At {
        line: error.line() as u64,
        column: error.column() as u64,
        what: without_place(&error.to_string()),
    })?;
    review.message(text)
}

/// Reads a review in YAML, one document.
///
/// # Errors
/// As [`from_json`], but with a position only if the text is not YAML.
pub fn from_yaml(text: &str) -> Result<AdmissionReview, TextError> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let value: serde_json::Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let what = without_place(&error.to_string());
        match error.location() {
            Some(at) => TextError::At { line: at.line(), column: at.column(), what },
            None => TextError::Shape(what),
        }
    })?;
    from_json(&value.to_string().into()).map_err(|error| match error {
        // The position is in the generated JSON, not in the YAML.
        TextError::At { what, .. } => TextError::Shape(what),
        other => other,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
    /// Ignored: a recorded review may contain its response.
    #[serde(default, rename = "response")]
    _response: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request<'a> {
    uid: String,
    kind: Option<Kind>,
    resource: Resource,
    sub_resource: Option<String>,
    request_kind: Option<Kind>,
    request_resource: Option<Resource>,
    request_sub_resource: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    operation: String,
    user_info: Option<User>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    dry_run: Option<bool>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    #[serde(default)]
    group: String,
    version: String,
    resource: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl Review<'_> {
    fn message(self, text: &Bytes) -> Result<AdmissionReview, TextError> {
        if self.api_version != API_VERSION || self.kind != KIND {
            return Err(TextError::NotAReview { api_version: self.api_version, kind: self.kind });
        }
        let request = self.request.ok_or(TextError::Field { field: "request", what: "is missing" })?;
        Ok(AdmissionReview { request: Some(request.message(text)?), response: None })
    }
}

impl Request<'_> {
    fn message(self, text: &Bytes) -> Result<AdmissionRequest, TextError> {
        if self.uid.is_empty() {
            return Err(TextError::Field { field: "request.uid", what: "is empty; answers repeat it" });
        }
        if Operation::from_name(&self.operation).is_none() {
            let what = "is not CREATE, UPDATE, DELETE or CONNECT";
            return Err(TextError::Field { field: "request.operation", what });
        }
        Ok(AdmissionRequest {
            uid: Some(self.uid),
            kind: self.kind.map(Into::into),
            resource: Some(self.resource.into()),
            sub_resource: self.sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation: Some(self.operation),
            user_info: self.user_info.map(Into::into),
            object: raw(text, self.object, "request.object")?,
            old_object: raw(text, self.old_object, "request.oldObject")?,
            dry_run: self.dry_run,
            options: raw(text, self.options, "request.options")?,
            request_kind: self.request_kind.map(Into::into),
            request_resource: self.request_resource.map(Into::into),
            request_sub_resource: self.request_sub_resource,
        })
    }
}

/// Returns the value's bytes as a slice of the text's buffer.
fn raw(text: &Bytes, value: Option<&RawValue>, field: &'static str) -> Result<Option<RawExtension>, TextError> {
    let Some(value) = value else { return Ok(None) };
    if !value.get().starts_with('{') {
        return Err(TextError::Field { field, what: "is not a JSON object" });
    }
    Ok(Some(RawExtension { raw: Some(text.slice_ref(value.get().as_bytes())) }))
}

impl From<Kind> for GroupVersionKind {
    fn from(Kind { group, version, kind }: Kind) -> Self {
        Self { group: Some(group), version: Some(version), kind: Some(kind) }
    }
}

impl From<Resource> for GroupVersionResource {
    fn from(Resource { group, version, resource }: Resource) -> Self {
        Self { group: Some(group), version: Some(version), resource: Some(resource) }
    }
}

impl From<User> for UserInfo {
    fn from(user: User) -> Self {
        let extra = user.extra.unwrap_or_default().into_iter();
        Self {
            username: user.username,
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: extra.map(|(key, items)| (key, ExtraValue { items })).collect(),
        }
    }
}

/// Removes the position at the end of a parser's message, because our messages begin with it.
fn without_place(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let end = line.find(" at line ").or_else(|| line.find(" (line ")).unwrap_or(line.len());
    line[..end].trim_end_matches([',', ':', ' ']).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVIEW: &str = r#"{
  "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
  "request": {
    "uid": "u-1", "operation": "UPDATE", "name": "web", "namespace": "shop", "subResource": "scale", "dryRun": true,
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    "userInfo": {"username": "ann", "groups": ["dev"], "extra": {"a": ["b"]}},
    "object": { "n" : 1.50,   "s": "\u00e9" }, "oldObject": null, "options": {"kind":"UpdateOptions"}
  }
}"#;

    fn error_of(text: String) -> String {
        from_json(&text.into()).unwrap_err().to_string()
    }

    fn object(extension: &Option<RawExtension>) -> &[u8] {
        extension.as_ref().unwrap().raw.as_ref().unwrap()
    }

    #[test]
    fn json_objects_keep_their_bytes_in_the_same_buffer() {
        let text = Bytes::from_static(REVIEW.as_bytes());
        let request = from_json(&text).unwrap().request.unwrap();
        assert_eq!(object(&request.object), br#"{ "n" : 1.50,   "s": "\u00e9" }"#);
        assert!(text.as_ptr_range().contains(&object(&request.object).as_ptr()), "shared, not copied");
        assert_eq!(object(&request.options), br#"{"kind":"UpdateOptions"}"#);
        assert_eq!((request.old_object.is_none(), request.dry_run()), (true, true));
        assert_eq!((request.uid(), request.operation(), request.sub_resource()), ("u-1", "UPDATE", "scale"));
        assert_eq!((request.name(), request.namespace()), ("web", "shop"));
        assert_eq!(request.resource.unwrap().resource(), "deployments");
        assert_eq!(request.kind.unwrap().kind(), "Deployment");
        let user = request.user_info.unwrap();
        assert_eq!(
            (user.username(), user.groups.join(","), user.extra["a"].items.join(",")),
            ("ann", "dev".into(), "b".into())
        );
    }

    #[test]
    fn yaml_says_the_same() {
        let yaml = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest:\n  uid: u-1\n  operation: CREATE\n  \
                    resource: {group: '', version: v1, resource: pods}\n  object: {spec: {on: yes, n: 3}, at: 2026-01-01T00:00:00Z}\n";
        let request = from_yaml(yaml).unwrap().request.unwrap();
        assert_eq!(object(&request.object), br#"{"at":"2026-01-01T00:00:00Z","spec":{"n":3,"on":"yes"}}"#);
        assert_eq!(from_yaml(REVIEW).unwrap().request.unwrap().uid(), "u-1", "JSON is YAML");

        let shown = |yaml: &str| from_yaml(yaml).unwrap_err().to_string();
        assert!(shown("a: [\n").starts_with("line "), "{}", shown("a: [\n"));
        assert!(shown(&yaml.replace("uid:", "uuid:")).starts_with("unknown field `uuid`"));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place() {
        let cases = [
            (REVIEW.replace("\"name\"", "\"nome\""), "line 4, column 47: unknown field `nome`"),
            (REVIEW.replace("\"uid\": \"u-1\", ", ""), "missing field `uid`"),
            (REVIEW.replace("u-1", ""), "request.uid: is empty; answers repeat it"),
            (REVIEW.replace("UPDATE", "Update"), "request.operation: is not CREATE, UPDATE, DELETE or CONNECT"),
            (REVIEW.replace("null", "[1]"), "request.oldObject: is not a JSON object"),
            (REVIEW.replace("dryRun\": true", "dryRun\": 1"), "line 4, column 112: invalid type: integer `1`"),
            (REVIEW.replace("io/v1", "io/v1beta1"), "apiVersion is \"admission.k8s.io/v1beta1\""),
            (REVIEW.replace("AdmissionReview", "Pod"), "kind is \"Pod\"; a review is AdmissionReview of"),
            (REVIEW[..40].to_owned(), "line 2, column"),
            (r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.into(), "request: is missing"),
        ];
        for (text, wanted) in cases {
            let shown = error_of(text);
            assert!(shown.contains(wanted), "{shown:?} should say {wanted:?}");
        }
    }
}

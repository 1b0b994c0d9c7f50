//! Decodes a hook's answer over HTTP into an [`Answer`] or a [`CallFailure`].
//!
//! Source: `docs/reference/webhook-semantics.md` §9 and §9.1; for the `legacy` contract `docs/writing-a-hook.md`.

mod reader;

use std::borrow::Cow;

use bytes::Bytes;

use self::reader::{AnswerFields, TypeMeta};
use super::{
    answer::{self, shortened, shortened_to},
    envelope::{MAGIC, Unknown},
    json_view::KIND,
};
use gatepost_api::{Answer, CallFailure, Denial, HookType, HttpForm, ReviewVersion, Rope};

/// Maximum length of the text of a hook's error page in a message, in bytes.
const MAX_ERROR_PAGE_BYTES: usize = 200;

/// Decodes and checks the answer of a hook of this type to the review with this uid.
///
/// # Errors
/// `Http`: the status is not that of an answer. `Undecodable`, `Invalid`, `NoResponse`, `WrongUid`,
/// `PatchFromValidating`: the body is invalid.
pub fn decode(hook_type: HookType, form: HttpForm, uid: &str, status: u16, body: Bytes) -> Result<Answer, CallFailure> {
    match (form, status) {
        (HttpForm::Legacy, 200 | 204) => Ok(Answer::default()),
        (HttpForm::Legacy, 400) => decode_denial(&body),
        // 204 without a body allows, as in the `legacy` contract.
        (HttpForm::Protobuf(_), 204) if body.is_empty() => Ok(Answer::default()),
        (HttpForm::Json(version) | HttpForm::Protobuf(version), 200..=206) => {
            decode_review(hook_type, version, uid, body)
        }
        _ => Err(http_failure(status, &body)),
    }
}

/// Decodes an AdmissionReview in the protobuf envelope, JSON or YAML, and checks it.
fn decode_review(hook_type: HookType, version: ReviewVersion, uid: &str, body: Bytes) -> Result<Answer, CallFailure> {
    let mut reading = if body.starts_with(MAGIC) { decode_envelope(body)? } else { text(&body)? };
    if !is_of_type(&reading.declared, version)? {
        return Err(other_type(version, &reading.declared));
    }
    reading.request.map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    let answer = answer::check_response(hook_type, version, uid, reading.response.take())?;
    let TypeMeta { api_version, kind } = &reading.stated;
    if version == ReviewVersion::V1 && (api_version != version.api_version() || kind != KIND) {
        return Err(other_type(version, &reading.stated));
    }
    Ok(answer)
}

/// Returns true if an answer of that type is decoded as a review of this version. Fields that it omits default to those
/// of the request.
fn is_of_type(declared: &TypeMeta, version: ReviewVersion) -> Result<bool, CallFailure> {
    let wanted = version.api_version();
    let same_version = match declared.api_version.as_str() {
        "" | "/" => true,
        written if written.matches('/').count() > 1 => {
            return Err(CallFailure::Undecodable("its apiVersion is not a group and version".into()));
        }
        // A group and no version.
        written => written == wanted || wanted.strip_prefix(written).is_some_and(|_| written.ends_with('/')),
    };
    Ok(same_version && (declared.kind.is_empty() || declared.kind == KIND))
}

fn other_type(version: ReviewVersion, said: &TypeMeta) -> CallFailure {
    // Go formats a type with an empty group and version as "/".
    let got = if said.api_version.is_empty() { "/" } else { &said.api_version };
    CallFailure::Invalid(format!(
        "expected webhook response of {}, Kind={KIND}, got {}, Kind={}",
        version.api_version(),
        shortened(got),
        shortened(&said.kind)
    ))
}

fn decode_envelope(body: Bytes) -> Result<AnswerFields, CallFailure> {
    let rope = Rope::new([body]);
    let unknown = Unknown::read(&rope).map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    if !unknown.encoding.is_empty() {
        return Err(CallFailure::Undecodable("the message in the envelope is encoded once more".into()));
    }
    let stated = TypeMeta { api_version: unknown.api_version, kind: unknown.kind };
    let response = answer::response(rope.copy_of(unknown.raw))?;
    Ok(AnswerFields { declared: stated.clone(), stated, response, status: Ok(None), request: Ok(()) })
}

/// Decodes JSON if the first character is a brace, otherwise YAML, as upstream does.
fn text(body: &[u8]) -> Result<AnswerFields, CallFailure> {
    // Invalid UTF-8 becomes U+FFFD, as in Go's decoder.
    let text = String::from_utf8_lossy(body);
    if text.trim_ascii().is_empty() {
        return Err(CallFailure::Undecodable("the body is empty".into()));
    }
    let json = if text.trim_start().starts_with('{') { text } else { Cow::Owned(json_of_yaml(&text)?) };
    reader::read(&json).map_err(|error| CallFailure::Undecodable(error.to_string()))
}

/// Converts the first YAML document to JSON. Upstream ignores the others.
fn json_of_yaml(text: &str) -> Result<String, CallFailure> {
    // Limits for small answers that expand to huge ones, and for deep nesting.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 100_000, max_nodes: 50_000, max_depth: 64, max_aliases: 100 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let mut rest = text.as_bytes();
    let first = serde_saphyr::read_with_options::<_, serde_json::Value>(&mut rest, options).next();
    let value = first.transpose().map_err(|error| {
        let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
        CallFailure::Undecodable(format!("it is neither JSON nor YAML{}", place.unwrap_or_default()))
    })?;
    Ok(value.unwrap_or_default().to_string())
}

/// Decodes a denial of the `legacy` contract: a review with a `status`. All other fields may be missing.
fn decode_denial(body: &[u8]) -> Result<Answer, CallFailure> {
    let reading = text(body).map_err(|_| http_failure(400, body))?;
    let kind = &reading.stated.kind;
    match reading.status {
        Ok(Some(status)) if kind.is_empty() || kind == KIND => {
            Ok(Answer { denial: Some(Denial(Box::new(answer::status(status)))), ..Answer::default() })
        }
        _ => Err(http_failure(400, body)),
    }
}

/// Returns the failure for a status that is not that of an answer, with the message of a `metav1.Status` or the text of
/// the body. For a redirect, the message is instead that redirects are not followed (`docs/decisions.md`).
fn http_failure(status: u16, body: &[u8]) -> CallFailure {
    if matches!(status, 301..=303 | 307 | 308) {
        let message = "a redirect, and redirects are not followed: write where it leads into the hook's clientConfig";
        return CallFailure::Http { status, message: message.into() };
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(64 << 10)]);
    let message = reader::message_of_status(&text).unwrap_or_else(|| text.trim().to_owned());
    CallFailure::Http { status, message: shortened_to(MAX_ERROR_PAGE_BYTES, &message) }
}

#[cfg(test)]
mod tests;

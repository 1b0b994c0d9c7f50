//! Decoder of a hook's answer over HTTP: an [`Answer`], or the CallFailure it amounts to.
//!
//! Source: `docs/reference/webhook-semantics.md` §9 and §9.1; for the seeds' contract `docs/writing-a-hook.md`.

mod go_values;
mod reader;
mod status_reader;

use std::borrow::Cow;

use bytes::Bytes;

use self::reader::{AnswerFields, TypeMeta};
use super::{
    answer::{self, shortened, shortened_to},
    envelope::{MAGIC, Unknown},
    json_view::KIND,
};
use gatepost_api::{Answer, CallFailure, Denial, HookType, HttpForm, ReviewVersion, Rope};

/// Longest text of a hook's error page that is shown, in bytes.
const SHOWN: usize = 200;

/// Reads and checks the answer of a hook of that type to the review of that uid.
///
/// # Errors
/// `Http`: the status is no answer. `Undecodable`, `Invalid`, `NoResponse`, `WrongUid`, `PatchFromValidating`: the body
/// is no valid one.
pub fn decode(hook_type: HookType, form: HttpForm, uid: &str, status: u16, body: Bytes) -> Result<Answer, CallFailure> {
    match (form, status) {
        (HttpForm::Legacy, 200 | 204) => Ok(Answer::default()),
        (HttpForm::Legacy, 400) => denied(&body),
        // The seeds' shortest yes.
        (HttpForm::Protobuf(_), 204) if body.is_empty() => Ok(Answer::default()),
        (HttpForm::Json(version) | HttpForm::Protobuf(version), 200..=206) => answered(hook_type, version, uid, body),
        _ => Err(no_answer(status, &body)),
    }
}

/// An AdmissionReview, in whichever of the three ways it is written.
fn answered(hook_type: HookType, version: ReviewVersion, uid: &str, body: Bytes) -> Result<Answer, CallFailure> {
    let mut reading = if body.starts_with(MAGIC) { enveloped(body)? } else { text(&body)? };
    if !is_of_type(&reading.declared, version)? {
        return Err(other_type(version, &reading.declared));
    }
    reading.request.map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    let answer = answer::judged(hook_type, version, uid, reading.response.take())?;
    let TypeMeta { api_version, kind } = &reading.stated;
    if version == ReviewVersion::V1 && (api_version != version.api_version() || kind != KIND) {
        return Err(other_type(version, &reading.stated));
    }
    Ok(answer)
}

/// Is an answer of that type read as a review of this version? Fields that it leaves out default to those of the
/// request.
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
    // As Go writes a type: "/" stands for a group and a version that are both empty.
    let got = if said.api_version.is_empty() { "/" } else { &said.api_version };
    CallFailure::Invalid(format!(
        "expected webhook response of {}, Kind={KIND}, got {}, Kind={}",
        version.api_version(),
        shortened(got),
        shortened(&said.kind)
    ))
}

fn enveloped(body: Bytes) -> Result<AnswerFields, CallFailure> {
    let rope = Rope::new([body]);
    let unknown = Unknown::read(&rope).map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    if !unknown.encoding.is_empty() {
        return Err(CallFailure::Undecodable("the message in the envelope is encoded once more".into()));
    }
    let stated = TypeMeta { api_version: unknown.api_version, kind: unknown.kind };
    let response = answer::response(rope.copy_of(unknown.raw))?;
    Ok(AnswerFields { declared: stated.clone(), stated, response, status: Ok(None), request: Ok(()) })
}

/// JSON where the first sign is a brace, else YAML: so upstream does.
fn text(body: &[u8]) -> Result<AnswerFields, CallFailure> {
    // Invalid UTF-8 becomes U+FFFD, as in Go's decoder.
    let text = String::from_utf8_lossy(body);
    if text.trim_ascii().is_empty() {
        return Err(CallFailure::Undecodable("the body is empty".into()));
    }
    let json = if text.trim_start().starts_with('{') { text } else { Cow::Owned(json_of_yaml(&text)?) };
    reader::read(&json).map_err(|error| CallFailure::Undecodable(error.to_string()))
}

/// The first document; upstream looks at no other.
fn json_of_yaml(text: &str) -> Result<String, CallFailure> {
    // Against answers that are small as written and huge as meant, and against deep nesting.
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

/// The seeds' no: a review whose `status` says why; the rest of it may be missing.
fn denied(body: &[u8]) -> Result<Answer, CallFailure> {
    let reading = text(body).map_err(|_| no_answer(400, body))?;
    let kind = &reading.stated.kind;
    match reading.status {
        Ok(Some(status)) if kind.is_empty() || kind == KIND => {
            Ok(Answer { denial: Some(Denial(Box::new(answer::status(status)))), ..Answer::default() })
        }
        _ => Err(no_answer(400, body)),
    }
}

/// A status that is no answer, with what the hook said: the message of a `metav1.Status`, or the text. A redirect's
/// text is that of some server; that it is not followed is more to the point (`docs/decisions.md`).
fn no_answer(status: u16, body: &[u8]) -> CallFailure {
    if matches!(status, 301..=303 | 307 | 308) {
        let message = "a redirect, and redirects are not followed: write where it leads into the hook's clientConfig";
        return CallFailure::Http { status, message: message.into() };
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(64 << 10)]);
    let message = reader::message_of_status(&text).unwrap_or_else(|| text.trim().to_owned());
    CallFailure::Http { status, message: shortened_to(SHOWN, &message) }
}

#[cfg(test)]
mod tests;

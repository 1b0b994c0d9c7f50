//! What a hook sent back over HTTP to an [`Answer`], or to the CallFailure it amounts to.
//!
//! Source: `docs/reference/webhook-semantics.md` §9 and §9.1; for the seeds' contract `docs/writing-a-hook.md`.

mod reader;

use std::borrow::Cow;

use bytes::Bytes;

use self::reader::Reading;
use super::{
    answer::{self, shortened, shortened_to},
    envelope::{MAGIC, Unknown},
    json_view::KIND,
};
use crate::model::{Answer, CallFailure, Denial, HttpForm, ReviewVersion, Rope};

/// Longest text of a hook's error page that is shown, in bytes.
const SHOWN: usize = 200;

/// Reads and checks a validating hook's answer to the review of that uid.
///
/// # Errors
/// `Http`: the status is no answer. `Undecodable`, `Invalid`, `NoResponse`, `WrongUid`, `PatchFromValidating`: the body is
/// no valid one.
pub fn decode(form: HttpForm, uid: &str, status: u16, body: Bytes) -> Result<Answer, CallFailure> {
    match (form, status) {
        (HttpForm::Legacy, 200 | 204) => Ok(Answer::default()),
        (HttpForm::Legacy, 400) => denied(&body),
        // The seeds' shortest yes.
        (HttpForm::Protobuf(_), 204) if body.is_empty() => Ok(Answer::default()),
        (HttpForm::Json(version) | HttpForm::Protobuf(version), 200..=206) => answered(version, uid, body),
        _ => Err(no_answer(status, &body)),
    }
}

/// An AdmissionReview, in whichever of the three ways it is written.
fn answered(version: ReviewVersion, uid: &str, body: Bytes) -> Result<Answer, CallFailure> {
    let mut reading = if body.starts_with(MAGIC) { enveloped(body)? } else { text(&body)? };
    let declared = |got: &str, wanted: &str| got.is_empty() || got == wanted;
    if !declared(&reading.api_version, version.api_version()) || !declared(&reading.kind, KIND) {
        return Err(other_type(version, &reading));
    }
    let stated = !reading.api_version.is_empty() && !reading.kind.is_empty();
    let answer = answer::judged(version, uid, reading.response.take())?;
    if version == ReviewVersion::V1 && !stated {
        return Err(other_type(version, &reading));
    }
    Ok(answer)
}

fn other_type(version: ReviewVersion, reading: &Reading) -> CallFailure {
    // As Go writes a type: "/" stands for a group and a version that are both empty.
    let got = if reading.api_version.is_empty() { "/" } else { &reading.api_version };
    CallFailure::Invalid(format!(
        "expected webhook response of {}, Kind={KIND}, got {}, Kind={}",
        version.api_version(),
        shortened(got),
        shortened(&reading.kind)
    ))
}

fn enveloped(body: Bytes) -> Result<Reading, CallFailure> {
    let rope = Rope::new([body]);
    let unknown = Unknown::read(&rope).map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    if !unknown.encoding.is_empty() {
        return Err(CallFailure::Undecodable("the message in the envelope is encoded once more".into()));
    }
    Ok(Reading {
        api_version: unknown.api_version,
        kind: unknown.kind,
        response: answer::response(rope.copy_of(unknown.raw))?,
        ..Reading::default()
    })
}

/// JSON where the first sign is a brace, else YAML: so upstream tells them apart.
fn text(body: &[u8]) -> Result<Reading, CallFailure> {
    // What is not UTF-8 becomes U+FFFD, as in Go's decoder.
    let text = String::from_utf8_lossy(body);
    if text.trim_ascii().is_empty() {
        return Err(CallFailure::Undecodable("the body is empty".into()));
    }
    let json = if text.trim_ascii_start().starts_with('{') { text } else { Cow::Owned(json_of_yaml(&text)?) };
    reader::read(&json).map_err(|error| CallFailure::Undecodable(error.to_string()))
}

fn json_of_yaml(text: &str) -> Result<String, CallFailure> {
    // Against answers that are small as written and huge as meant, and against deep nesting.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 100_000, max_nodes: 50_000, max_depth: 64, max_aliases: 100 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let value: serde_json::Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
        CallFailure::Undecodable(format!("it is neither JSON nor YAML{}", place.unwrap_or_default()))
    })?;
    Ok(value.to_string())
}

/// The seeds' no: a review whose `status` says why; the rest of it may be missing.
fn denied(body: &[u8]) -> Result<Answer, CallFailure> {
    let reading = text(body).map_err(|_| no_answer(400, body))?;
    match reading.status {
        Some(status) if reading.kind.is_empty() || reading.kind == KIND => {
            Ok(Answer { denial: Some(Denial(Box::new(answer::status(status)))), ..Answer::default() })
        }
        _ => Err(no_answer(400, body)),
    }
}

/// A status that is no answer, with what the hook said: the message of a `metav1.Status`, or the text.
fn no_answer(status: u16, body: &[u8]) -> CallFailure {
    let text = String::from_utf8_lossy(&body[..body.len().min(64 << 10)]);
    let message = reader::message_of_status(&text).unwrap_or_else(|| text.trim().to_owned());
    CallFailure::Http { status, message: shortened_to(SHOWN, &message) }
}

#[cfg(test)]
mod tests;

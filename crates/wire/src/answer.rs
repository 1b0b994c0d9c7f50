//! Decodes a hook's answer in protobuf into an [`Answer`] or a [`CallFailure`].

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message;

use super::pb::k8s::io::{
    api::admission::v1::{AdmissionResponse, AdmissionReview},
    apimachinery::pkg::apis::meta::v1 as meta,
};
use gatepost_api::{
    Answer, CallFailure, Denial, HookType, ProposedPatch, ReviewVersion, StatusCause, StatusInfo, StatusMetadata,
};

/// AdmissionReview without its request, which a hook may echo and which is not used.
#[derive(Clone, PartialEq, prost::Message)]
struct AnswerReview {
    #[prost(message, optional, tag = "2")]
    response: Option<AdmissionResponse>,
}

/// The only patch type. Source: `k8s.io/api/admission/v1` PatchTypeJSONPatch.
pub const JSON_PATCH: &str = "JSONPatch";
/// Maximum number of audit annotations that are kept of one answer.
pub const MAX_ANNOTATIONS: usize = 1000;
/// Maximum number of causes that are kept of a status.
pub(super) const MAX_CAUSES: usize = 1000;
/// Maximum number of warnings that can reach a client, because each has at least one character
/// (`docs/reference/webhook-semantics.md` §10.2).
const MAX_WARNINGS: usize = 4096;

/// Maximum number of characters kept of a warning: one more than can reach the client, so that it counts as too long.
const MAX_WARNING_CHARS: usize = 4096 + 1;

/// Drops or cuts the warnings that cannot reach the client, if there are very many or very long ones. Merging the
/// warnings is then cheap, and so is freeing them.
fn limit_warnings(warnings: Vec<String>) -> Vec<String> {
    if warnings.len() <= MAX_WARNINGS && warnings.iter().all(|warning| warning.len() <= MAX_WARNING_CHARS) {
        return warnings;
    }
    let mut seen = HashSet::new();
    let shown = |warning: &&String| !warning.is_empty() && !warning.chars().any(char::is_control);
    let new = warnings.iter().filter(shown).filter(|warning| seen.insert(*warning)).take(MAX_WARNINGS);
    new.map(|warning| warning.chars().take(MAX_WARNING_CHARS).collect()).collect()
}

/// Maximum length of foreign text in an error message, in bytes.
const MAX_QUOTE_BYTES: usize = 64;

/// Decodes and checks the answer of a hook of this type to the review with this uid.
///
/// # Errors
/// `Undecodable`, `NoResponse`, `WrongUid`, `Invalid`, `PatchFromValidating`: the rules of upstream's
/// `W/request/admissionreview.go` for v1 (`docs/reference/webhook-semantics.md` §9.1).
pub fn decode(hook_type: HookType, uid: &str, message: Bytes) -> Result<Answer, CallFailure> {
    check_response(hook_type, ReviewVersion::V1, uid, response(message)?)
}

/// Decodes the response in a bare protobuf AdmissionReview.
pub(super) fn response(message: Bytes) -> Result<Option<AdmissionResponse>, CallFailure> {
    let review = AnswerReview::decode(message).map_err(|error| CallFailure::Undecodable(error.to_string()))?;
    Ok(review.response)
}

/// Checks a response by the rules of `version`, whatever its encoding.
pub(super) fn check_response(
    hook_type: HookType,
    version: ReviewVersion,
    uid: &str,
    response: Option<AdmissionResponse>,
) -> Result<Answer, CallFailure> {
    let response = response.ok_or(CallFailure::NoResponse)?;
    if version == ReviewVersion::V1 {
        let got = response.uid.unwrap_or_default();
        if got != uid {
            return Err(CallFailure::WrongUid { expected: uid.to_owned(), got: shortened(&got) });
        }
    }
    let patch = patch(hook_type, version, response.patch.unwrap_or_default(), response.patch_type)?;
    let denial =
        (!response.allowed.unwrap_or_default()).then(|| Denial(Box::new(status(response.status.unwrap_or_default()))));
    let annotations = response.audit_annotations;
    Ok(Answer {
        patch: patch.filter(|_| denial.is_none()),
        denial,
        warnings: limit_warnings(response.warnings),
        annotations_left_out: annotations.len().saturating_sub(MAX_ANNOTATIONS),
        audit_annotations: annotations.into_iter().take(MAX_ANNOTATIONS).collect(),
    })
}

/// Returns the patch of an answer by the rules of `version`. v1beta1 has one patch type and ignores `patchType`.
fn patch(
    hook_type: HookType,
    version: ReviewVersion,
    text: Bytes,
    patch_type: Option<String>,
) -> Result<Option<Box<ProposedPatch>>, CallFailure> {
    let other_type = match (version, hook_type, text.is_empty(), patch_type) {
        (ReviewVersion::V1, HookType::Validating, false, _) => return Err(CallFailure::PatchFromValidating("patch")),
        (ReviewVersion::V1, HookType::Validating, true, Some(_)) => {
            return Err(CallFailure::PatchFromValidating("patchType"));
        }
        (_, HookType::Validating, ..) => return Ok(None),
        (ReviewVersion::V1, HookType::Mutating, true, Some(_)) => {
            return Err(CallFailure::Invalid("webhook returned response.patchType but not response.patch".into()));
        }
        (ReviewVersion::V1, HookType::Mutating, false, None) => {
            return Err(CallFailure::Invalid("webhook returned response.patch but not response.patchType".into()));
        }
        (ReviewVersion::V1, HookType::Mutating, false, Some(patch_type)) if patch_type.is_empty() => {
            return Err(CallFailure::Invalid("webhook returned invalid response.patchType of \"\"".into()));
        }
        (_, HookType::Mutating, true, _) => return Ok(None),
        (ReviewVersion::V1, HookType::Mutating, false, Some(patch_type)) => {
            (patch_type != JSON_PATCH).then(|| shortened(&patch_type).into())
        }
        (ReviewVersion::V1beta1, HookType::Mutating, false, _) => None,
    };
    Ok(Some(Box::new(ProposedPatch { text, other_type })))
}

/// Decodes an answer without checking it, for callers that display it.
///
/// # Errors
/// `Undecodable`.
pub fn review(message: Bytes) -> Result<AdmissionReview, CallFailure> {
    AdmissionReview::decode(message).map_err(|error| CallFailure::Undecodable(error.to_string()))
}

/// Cuts foreign text for an error message, at a character boundary, and replaces control characters by spaces.
pub fn shortened(text: &str) -> String {
    shortened_to(MAX_QUOTE_BYTES, text)
}

/// As [`shortened`], to about `longest` bytes.
pub fn shortened_to(longest: usize, text: &str) -> String {
    let (shown, more) = match text.char_indices().map(|(at, _)| at).find(|&at| at > longest) {
        Some(at) => (&text[..at], "…"),
        None => (text, ""),
    };
    shown.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).chain(more.chars()).collect()
}

/// Converts a status from protobuf.
pub fn status(status: meta::Status) -> StatusInfo {
    let has_details = status.details.is_some();
    let details = status.details.unwrap_or_default();
    StatusInfo {
        code: status.code.unwrap_or_default(),
        status: status.status.unwrap_or_default(),
        reason: status.reason.unwrap_or_default(),
        message: status.message.unwrap_or_default(),
        metadata: status.metadata.map(metadata).filter(|metadata| **metadata != StatusMetadata::default()),
        has_details,
        details_name: details.name.unwrap_or_default(),
        details_group: details.group.unwrap_or_default(),
        details_kind: details.kind.unwrap_or_default(),
        details_uid: details.uid.unwrap_or_default(),
        causes: details
            .causes
            .into_iter()
            .take(MAX_CAUSES)
            .map(|cause| StatusCause {
                reason: cause.reason.unwrap_or_default(),
                message: cause.message.unwrap_or_default(),
                field: cause.field.unwrap_or_default(),
            })
            .collect(),
        retry_after_seconds: details.retry_after_seconds.unwrap_or_default(),
    }
}

fn metadata(metadata: meta::ListMeta) -> Box<StatusMetadata> {
    Box::new(StatusMetadata {
        self_link: metadata.self_link.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        continue_token: metadata.r#continue.unwrap_or_default(),
        remaining_item_count: metadata.remaining_item_count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: Option<AdmissionResponse>) -> Result<Answer, CallFailure> {
        decode(HookType::Validating, "u-1", AnswerReview { response }.encode_to_vec().into())
    }

    fn response() -> AdmissionResponse {
        AdmissionResponse { uid: Some("u-1".into()), allowed: Some(true), ..Default::default() }
    }

    #[test]
    fn every_unusable_answer_has_its_own_failure() {
        let garbage = Bytes::from_static(b"\xff");
        assert!(matches!(decode(HookType::Validating, "u-1", garbage), Err(CallFailure::Undecodable(_))));
        assert_eq!(answer(None), Err(CallFailure::NoResponse));
        let other = AdmissionResponse { uid: Some("u-2".into()), ..response() };
        assert_eq!(answer(Some(other)), Err(CallFailure::WrongUid { expected: "u-1".into(), got: "u-2".into() }));
        let patch = AdmissionResponse { patch: Some(Bytes::from_static(b"[]")), ..response() };
        assert_eq!(answer(Some(patch)), Err(CallFailure::PatchFromValidating("patch")));
        let patch_type = AdmissionResponse { patch_type: Some("JSONPatch".into()), ..response() };
        assert_eq!(answer(Some(patch_type)), Err(CallFailure::PatchFromValidating("patchType")));
    }

    #[test]
    fn a_status_beside_a_yes_is_ignored() {
        let status = Some(meta::Status { code: Some(403), ..Default::default() });
        assert_eq!(answer(Some(AdmissionResponse { status, ..response() })), Ok(Answer::default()));
    }

    #[test]
    fn absent_allowed_is_no() {
        let silent = AdmissionResponse { allowed: None, ..response() };
        assert_eq!(answer(Some(silent)).map(|answer| answer.denial), Ok(Some(Denial::default())));
    }

    #[test]
    fn of_very_many_parts_those_are_kept_that_matter() {
        let warnings = (0..100_000).flat_map(|n| [format!("w{}", n % 50_000), String::new(), "a\nb".to_owned()]);
        let audit_annotations = (0..100_000).map(|n| (format!("k{n:05}"), String::new())).collect();
        let causes = vec![meta::StatusCause::default(); 100_000];
        let details = Some(meta::StatusDetails { causes, ..Default::default() });
        let said = answer(Some(AdmissionResponse {
            allowed: Some(false),
            warnings: warnings.collect(),
            audit_annotations,
            status: Some(meta::Status { details, ..Default::default() }),
            ..response()
        }))
        .unwrap();
        assert_eq!(said.warnings, (0..4096).map(|n| format!("w{n}")).collect::<Vec<_>>());
        assert_eq!((said.audit_annotations.len(), said.annotations_left_out), (1000, 99_000));
        assert_eq!(said.denial.unwrap().0.causes.len(), 1000);
    }

    #[test]
    fn of_very_long_warnings_as_much_is_kept_as_can_be_shown() {
        let warnings = vec!["é".repeat(100_000), format!("{}\n", "a".repeat(100_000)), "short".to_owned()];
        let said = answer(Some(AdmissionResponse { warnings, ..response() })).unwrap();
        assert_eq!(said.warnings, ["é".repeat(4097), "short".to_owned()]);
    }

    #[test]
    fn long_foreign_text_is_cut_at_a_character() {
        assert_eq!(shortened("abc"), "abc");
        let cut = shortened(&"é".repeat(100));
        assert!(cut.len() < 75 && cut.ends_with('…'), "{cut}");
    }

    #[test]
    fn foreign_text_stays_on_its_line() {
        assert_eq!(shortened("v1\nlevel=error\u{7f}"), "v1 level=error ");
    }
}

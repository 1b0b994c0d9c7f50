//! `verify_response.json`: which answers of a hook are good, and what is read from them.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gatepost_api::{Answer, HookType, HttpForm, ReviewVersion};
use gatepost_wire::http_answer::decode;
use serde::Deserialize;
use serde_json::Value;

use super::run::{Nothing, Outcome, Understood, decoded, equal, only_keys};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    review_version: String,
    mutating: bool,
    request_uid: String,
    /// The hook's whole answer.
    review: Value,
    expect: Option<Expect>,
    expect_error_contains: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    allowed: bool,
    patch: Option<String>,
    patch_type: String,
    audit_annotations: Option<BTreeMap<String, String>>,
    result: Option<Status>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    code: i32,
}

/// Fields of a response, and of its status.
const RESPONSE: [&str; 8] =
    ["uid", "allowed", "status", "patch", "patch_text", "patchType", "auditAnnotations", "warnings"];
const STATUS: [&str; 5] = ["status", "message", "reason", "code", "details"];

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, mut case): (_, Case) = (decoded(shared)?, decoded(case)?);
    let version = ReviewVersion::choose([&case.review_version]).ok_or("not understood: review_version")?;
    only_keys("a review", &case.review, &["apiVersion", "kind", "response"])?;
    if let Some(response) = case.review.get_mut("response") {
        encode_patch(response)?;
    }
    Ok(Box::new(move || judge(version, &case)))
}

/// The vectors hold a patch as text; on the wire it is base64.
pub(crate) fn encode_patch(response: &mut Value) -> Outcome {
    only_keys("a response", response, &RESPONSE)?;
    only_keys("a status", &response["status"], &STATUS)?;
    let Some(response) = response.as_object_mut() else { return Ok(()) };
    if let Some(text) = response.remove("patch_text") {
        let text = text.as_str().ok_or("not understood: patch_text")?;
        response.insert("patch".into(), STANDARD.encode(text).into());
    }
    Ok(())
}

fn judge(version: ReviewVersion, case: &Case) -> Outcome {
    let hook_type = if case.mutating { HookType::Mutating } else { HookType::Validating };
    let decode =
        |review: &Value| decode(hook_type, HttpForm::Json(version), &case.request_uid, 200, review.to_string().into());
    let mut review = case.review.clone();
    if version == ReviewVersion::V1beta1 && declares_another_type(&review) {
        // The table begins behind upstream's decoder, which takes no other type than the one asked for. So do we, in
        // one step; without its type, the answer is what the table judges.
        if let Ok(answer) = decode(&review) {
            return Err(format!("an answer of another type was read: {answer:?}"));
        }
        let review = review.as_object_mut().ok_or("not understood: review")?;
        review.retain(|key, _| key != "apiVersion" && key != "kind");
    }
    let ours = decode(&review);
    match (ours, &case.expect, &case.expect_error_contains) {
        (Ok(answer), Some(expect), None) => good(answer, expect),
        (Err(failure), None, Some(part)) if failure.to_string().contains(part) => Ok(()),
        (ours, _, upstream) => Err(format!("ours {ours:?}, upstream: error {upstream:?}")),
    }
}

fn declares_another_type(review: &Value) -> bool {
    let is_not = |key: &str, wanted: &str| review.get(key).is_some_and(|said| said != wanted && said != "");
    is_not("apiVersion", ReviewVersion::V1beta1.api_version()) || is_not("kind", "AdmissionReview")
}

fn good(answer: Answer, expect: &Expect) -> Outcome {
    let patch = answer.patch.as_ref().map(|patch| String::from_utf8_lossy(&patch.text).into_owned());
    equal("patch", &patch, &expect.patch)?;
    let patch_type = answer.patch.as_ref().map_or("", |patch| patch.other_type.as_deref().unwrap_or("JSONPatch"));
    equal("patch type", patch_type, &*expect.patch_type)?;
    equal("allowed", answer.denial.is_none(), expect.allowed)?;
    let annotations = answer.audit_annotations.into_iter().collect();
    equal("annotations", &annotations, expect.audit_annotations.as_ref().unwrap_or(&BTreeMap::new()))?;
    let said = answer.denial.map(|denial| Status {
        status: denial.0.status,
        message: denial.0.message,
        reason: denial.0.reason,
        code: denial.0.code,
    });
    // A hook's status beside its yes is of no consequence, and not kept.
    let said_upstream = expect.result.as_ref().filter(|_| !expect.allowed);
    equal("status", said.as_ref(), said_upstream)
}

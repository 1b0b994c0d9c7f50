//! `json_patch.json`: result of a hook's patch to an object.

use bytes::Bytes;
use gatepost_api::Rope;
use gatepost_json_patch::{Document, OperationFault, Patch, PatchError, PatchLimits};
use serde::Deserialize;
use serde_json::Value;

use super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    document: Value,
    patch: Value,
    expect: Expect,
    /// Difference from RFC 6902; we do as upstream does.
    #[serde(default, rename = "beyond_rfc")]
    _beyond_rfc: bool,
    /// Bytes that copies may add, where that is not the default.
    copy_size_limit: Option<usize>,
    #[serde(rename = "origin")]
    _origin: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    applies: bool,
    result: Option<Value>,
    reason: Option<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    if let Some(reason) = &case.expect.reason
        && reason != "test failed"
    {
        return Err(format!("not understood: the reason {reason:?}"));
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let limits =
        PatchLimits { copied: case.copy_size_limit.unwrap_or(PatchLimits::default().copied), ..PatchLimits::default() };
    let object = Rope::new([Bytes::from(case.document.to_string())]);
    let patch = Patch::parse(case.patch.to_string().into());
    let document = Document::new(object).map_err(|error| error.to_string())?;
    let patched = patch.and_then(|patch| document.patched(&patch, limits));
    equal("applies", patched.is_ok(), case.expect.applies)?;
    match patched {
        Err(error) => {
            let test_failed = matches!(error, PatchError::Operation { fault: OperationFault::TestFailed, .. });
            equal("a test failed", test_failed || case.expect.reason.is_none(), true)
        }
        Ok(document) => {
            let result = document.rope().to_bytes();
            let result: Value = serde_json::from_slice(&result).map_err(|error| error.to_string())?;
            equal("result", Some(&result), case.expect.result.as_ref())
        }
    }
}

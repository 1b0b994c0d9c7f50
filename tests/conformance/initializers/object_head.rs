//! `object_head.json`: answers of an apiserver to a GET, in each form, and the hidden object in them.

use base64::{Engine, prelude::BASE64_STANDARD};
use gatepost_api::initialization::{PENDING_LABEL, STATE_ANNOTATION};
use gatepost_wire::object_head::{ObjectHead, Wanted};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    #[serde(default)]
    json: Option<Value>,
    /// In base64.
    #[serde(default)]
    protobuf: Option<String>,
    expect: Option<Expect>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    uid: String,
    resource_version: String,
    hidden: bool,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    if case.json.is_some() == case.protobuf.is_some() {
        return Err("not understood: an answer is in one form".into());
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let wanted = Wanted { label: PENDING_LABEL, annotation: STATE_ANNOTATION };
    let head = match (&case.json, &case.protobuf) {
        (Some(json), _) => ObjectHead::of_json(json.to_string().as_bytes(), wanted),
        (_, Some(text)) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("not understood: {error}"))?;
            ObjectHead::of_protobuf(bytes.into(), wanted)
        }
        (None, None) => None,
    };
    let seen =
        |ObjectHead { uid, resource_version, label, .. }| Expect { uid, resource_version, hidden: label.is_some() };
    equal("head", head.map(seen).as_ref(), case.expect.as_ref())
}

//! `object_matcher.json`: does an objectSelector match the new object or the old one?

use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking::{Namespaces, is_asked},
    reviews::{self, text},
    run::{Nothing, Outcome, Understood, decoded, equal},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    selector: Value,
    operation: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    expect_match: bool,
}

/// On an object: its type has no metadata.
const NO_METADATA: &str = "_no_metadata";

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, mut case): (_, Case) = (decoded(shared)?, decoded(case)?);
    has_metadata_or_says_not(&mut case.object)?;
    has_metadata_or_says_not(&mut case.old_object)?;
    Ok(Box::new(move || judge(&case)))
}

fn has_metadata_or_says_not(object: &mut Value) -> Outcome {
    let Some(object) = object.as_object_mut() else {
        return if object.is_null() { Ok(()) } else { Err("not understood: an object that is none".into()) };
    };
    match (object.remove(NO_METADATA), object.contains_key("metadata")) {
        (None | Some(Value::Bool(false)), true) | (Some(Value::Bool(true)), false) => {}
        (None | Some(Value::Bool(false)), false) => _ = object.insert("metadata".into(), json!({})),
        _ => return Err(format!("not understood: {NO_METADATA}")),
    }
    Ok(())
}

fn judge(case: &Case) -> Outcome {
    let request = AdmissionRequest {
        resource: reviews::resource(&["".into(), "v1".into(), "things".into()]),
        name: text("thing"),
        operation: text(&case.operation),
        object: reviews::object(&case.object),
        old_object: reviews::object(&case.old_object),
        ..Default::default()
    };
    let asked = is_asked(&json!({"objectSelector": case.selector}), &Namespaces::new(), &request)?;
    equal("match", asked, case.expect_match)
}

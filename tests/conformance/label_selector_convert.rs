//! `label_selector_convert.json`: meaning of a selector of the API, and good requirements.

use gatepost_config::{Problem, checked_selector};
use serde::Deserialize;
use serde_json::{Value, json};

use super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Selector {
    #[serde(rename = "id")]
    _id: String,
    label_selector: Value,
    /// Its canonical string, or `nothing`, or `everything`.
    expect: Option<String>,
    /// The selector is faulty, in the two ways in which the tables mark it.
    #[serde(default)]
    expect_error: bool,
    valid: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    #[serde(rename = "id")]
    _id: String,
    key: String,
    operator: String,
    values: Vec<String>,
    valid: bool,
    error_type: Option<ErrorType>,
    error_field: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum ErrorType {
    Invalid,
    NotSupported,
    Required,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let Nothing {} = decoded(shared)?;
    if case.get("label_selector").is_some() {
        let case: Selector = decoded(case)?;
        return Ok(Box::new(move || selector(&case)));
    }
    let case: Requirement = decoded(case)?;
    Ok(Box::new(move || requirement(&case)))
}

fn selector(case: &Selector) -> Outcome {
    let is_none = case.expect_error || case.valid == Some(false) || case.expect.as_deref() == Some("error");
    let selector = match (checked_selector("case", &case.label_selector), is_none) {
        (Err(_), true) => return Ok(()),
        (Ok(selector), false) => selector,
        (ours, _) => return Err(format!("ours {ours:?}, upstream: error {is_none}")),
    };
    match case.expect.as_deref() {
        Some("nothing") => Err("a selector for nothing has no form here".into()),
        Some("everything") => equal("everything", selector.is_empty(), true),
        Some(canonical) => equal("canonical form", selector.to_string().as_str(), canonical),
        None => Err("not understood: nothing is expected".into()),
    }
}

/// A requirement is accepted or refused as upstream does, and refused for the same part of it.
fn requirement(case: &Requirement) -> Outcome {
    let (key, values) = (&case.key, &case.values);
    // Equality has a form of its own in the API, which has room for one value.
    let (selector, place) = match (&*case.operator, values.as_slice()) {
        ("=" | "==", [value]) => (json!({"matchLabels": {key: value}}), "matchLabels"),
        ("=" | "==", _) => (json!({"matchLabels": {key: values}}), "matchLabels"),
        ("!=", [_]) => (expression(key, "NotIn", values), "matchExpressions[0]"),
        (operator, _) => (expression(key, operator, values), "matchExpressions[0]"),
    };
    let problems = checked_selector("case", &selector).err().unwrap_or_default();
    equal("valid", problems.is_empty(), case.valid)?;
    match (problems.first(), case.error_type, case.error_field.as_deref()) {
        (None, None, None) => Ok(()),
        (Some(problem), Some(kind), Some(field)) => {
            equal("error type", type_of(problem), kind)?;
            // Upstream names the key behind the value's number; we name it before.
            let field = field.strip_suffix(&format!("[{key}]")).unwrap_or(field);
            match place {
                "matchLabels" if problem.path.starts_with("matchLabels") => Ok(()),
                _ => equal("error field", problem.path.clone(), format!("{place}.{field}")),
            }
        }
        _ => Err("not understood: an error without type or field, or the other way round".into()),
    }
}

fn expression(key: &str, operator: &str, values: &[String]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

/// Upstream's type of a problem, by the words in which we say it.
fn type_of(problem: &Problem) -> ErrorType {
    match &*problem.what {
        what if what.ends_with("is not one of the allowed words") => ErrorType::NotSupported,
        "is missing" => ErrorType::Required,
        _ => ErrorType::Invalid,
    }
}

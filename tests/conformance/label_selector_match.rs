//! `label_selector_match.json`: does a selector match these labels?

use std::collections::BTreeMap;

use gatepost_config::checked_selector;
use serde::Deserialize;
use serde_json::{Value, json};

use super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    /// The selector in one string; the structured form beside it is what the API has.
    #[serde(default, rename = "selector_string")]
    _selector_string: Option<String>,
    label_selector: Option<Value>,
    requirements: Option<Vec<Value>>,
    labels: BTreeMap<String, String>,
    expect_match: bool,
    /// Stands for Go's zero value of a requirement: no key and no operator.
    #[serde(default)]
    invalid_requirement: bool,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(|| judge(case)))
}

fn judge(case: Case) -> Outcome {
    let selector = match (case.label_selector, case.requirements) {
        (Some(selector), None) if !case.invalid_requirement => selector,
        (None, Some(mut requirements)) => {
            if case.invalid_requirement {
                requirements.push(json!({}));
            }
            json!({"matchExpressions": requirements})
        }
        _ => return Err("not understood: not exactly one of label_selector and requirements".into()),
    };
    let labels = case.labels.into_iter().collect();
    let matches = match checked_selector("case", &selector) {
        Ok(selector) => selector.matches(&labels),
        // Where upstream has a requirement that never matches, we have none at all: the configuration is refused.
        Err(_) if case.invalid_requirement => false,
        Err(problems) => return Err(format!("the selector is refused: {problems:?}")),
    };
    equal("match", matches, case.expect_match)
}

//! `match_condition_outcome.json`: result of several conditions together.

use gatepost_cel::{ConditionsDecision, Evaluated, combined};
use serde::Deserialize;
use serde_json::Value;

use super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    evaluations: Vec<Evaluation>,
    failure_policy: Option<Policy>,
    evaluator_fails: bool,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evaluation {
    name: String,
    result: Option<bool>,
    #[serde(default)]
    error: bool,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
enum Policy {
    Fail,
    Ignore,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    error: bool,
    #[serde(default)]
    matches: bool,
    #[serde(default)]
    failed_condition: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (_, case): (Nothing, Case) = (decoded(shared)?, decoded(case)?);
    if case.evaluations.iter().any(|one| one.result.is_some() == one.error) {
        return Err("not understood: a condition with a value and an error, or with neither".into());
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let mut evaluations: Vec<_> = case
        .evaluations
        .iter()
        .map(|one| Evaluated::Value(&one.name, one.result.ok_or_else(|| "made up".to_owned())))
        .collect();
    if case.evaluator_fails {
        evaluations.push(Evaluated::OutOfBudget);
    }
    let (error, matches, failed_condition) = match combined(evaluations) {
        ConditionsDecision::Matches => (false, true, ""),
        ConditionsDecision::Excluded(name) => (false, false, name),
        // As the selection of hooks does it.
        ConditionsDecision::Failed(_) => (case.failure_policy != Some(Policy::Ignore), false, ""),
        ConditionsDecision::TooLong | ConditionsDecision::Undecided(_) => return Err("too long".into()),
    };
    let found = Expected { error, matches, failed_condition: failed_condition.to_owned() };
    equal("the outcome", &found, &case.expect)
}

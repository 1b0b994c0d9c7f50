//! `transition.json`: changes that an update may make to an object's list, and the users who may make them.

use gatepost_initializers::{Actor, OwnedNames, transition};
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::run::{Nothing, Outcome, Understood, decoded},
    Expect, list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    old: Value,
    new: Value,
    may_initialize: bool,
    owns: Owns,
    expect: Expect,
    /// Difference of 1.13: for people.
    #[serde(default, rename = "upstream")]
    _upstream: Option<String>,
}

/// Names, or the word `any`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Owns {
    Names(Vec<String>),
    Word(String),
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    if matches!(&case.owns, Owns::Word(word) if word != "any") {
        return Err("not understood: owns".into());
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let names: Vec<&str> = match &case.owns {
        Owns::Names(names) => names.iter().map(String::as_str).collect(),
        Owns::Word(_) => Vec::new(),
    };
    let owns = if matches!(case.owns, Owns::Word(_)) { OwnedNames::Any } else { OwnedNames::Names(&names) };
    let actor = Actor { may_initialize: case.may_initialize, owns };
    case.expect.judge(transition(list(&case.old)?, list(&case.new)?, actor))
}

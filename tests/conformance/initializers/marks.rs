//! `marks.json`: label and annotation of an object that a stock apiserver stores, and the users who may write them.

use gatepost_initializers::{
    Actor, Marks, OwnedNames,
    marks::{MarksOutcome, check_new, judge_update},
};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(untagged)]
enum Case {
    Update(Update),
    Create(Create),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(rename = "id")]
    _id: String,
    new: Written,
    creator: Value,
    expect: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    #[serde(rename = "id")]
    _id: String,
    old: Written,
    new: Written,
    may_initialize: bool,
    /// Names, or the word `any`.
    owns: Value,
    deleting: bool,
    expect: Value,
}

/// The annotation is an object, written as text; or a text that is none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    label: Option<String>,
    state: Value,
}

impl Written {
    fn marks(&self) -> Marks {
        let state = match &self.state {
            Value::Null => None,
            Value::String(text) => Some(text.as_str().into()),
            state => Some(state.to_string().into()),
        };
        Marks { label: self.label.as_deref().map(Into::into), state }
    }
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || match &case {
        Case::Create(case) => judge_create(case),
        Case::Update(case) => judge_case(case),
    }))
}

fn judge_create(case: &Create) -> Outcome {
    let ours = check_new(&case.new.marks(), &case.creator);
    equal("outcome", ours.map_or_else(|refused| refused.code().into(), |()| "taken".into()), case.expect.clone())
}

fn judge_case(case: &Update) -> Outcome {
    let names: Vec<&str> = case.owns.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let owns = if case.owns == "any" { OwnedNames::Any } else { OwnedNames::Names(&names) };
    let actor = Actor { may_initialize: case.may_initialize, owns };
    let ours: Value = match judge_update(&case.old.marks(), &case.new.marks(), case.deleting, actor) {
        Ok(MarksOutcome::Keep) => "keep".into(),
        Ok(MarksOutcome::Restore) => "restore".into(),
        Ok(MarksOutcome::Record) => "record".into(),
        Err(refused) => refused.code().into(),
    };
    equal("outcome", ours, case.expect.clone())
}

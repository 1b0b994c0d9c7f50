//! `order.json`: a total order of initializers that say whom they stand behind.

use gatepost_api::initialization::order;
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    entries: Vec<Entry>,
    #[serde(default)]
    expect: Option<Vec<String>>,
    #[serde(default)]
    cycle: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    after: Vec<Box<str>>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let ours = order(&case.entries, |entry| &entry.name, |entry| &entry.after);
    equal("cycle", ours.as_ref().err().map(ToString::to_string), case.cycle.clone())?;
    let names = |order: Vec<usize>| order.into_iter().map(|at| case.entries[at].name.clone()).collect::<Vec<_>>();
    equal("order", ours.ok().map(names), case.expect.clone())
}

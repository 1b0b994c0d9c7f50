//! `read_repair.json`: the head that a read removes.

use gatepost_initializers::ReadRepair;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::run::{Nothing, Outcome, Understood, decoded, equal},
    list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    list: Value,
    created: i64,
    now: i64,
    must_act: Vec<String>,
    expect: Option<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let list = list(&case.list)?.unwrap_or_default();
    let must_act = |name: &str| case.must_act.iter().any(|must| must == name);
    let ours = ReadRepair::default().head(&list, (case.created, case.now), must_act);
    equal("head", ours, case.expect.as_deref())
}

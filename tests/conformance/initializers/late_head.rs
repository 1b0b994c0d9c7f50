//! `late_head.json`: the removal of a head that is late, which does nothing twice.

use gatepost_initializers::without_late_head;
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
    head: String,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(default)]
    list: Value,
    #[serde(default = "yes")]
    removed: bool,
}

fn yes() -> bool {
    true
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let before = list(&case.list)?.unwrap_or_default();
    let after = without_late_head(&before, &case.head);
    equal("removed", after.is_some(), case.expect.removed)?;
    after.map_or(Ok(()), |after| equal("list", after, list(&case.expect.list)?))
}

//! `create.json`: the list that a new object gets.

use gatepost_initializers::{create, needs_permission};
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::run::{Nothing, Outcome, Understood, decoded, equal},
    Expect, list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    written: Value,
    configured: Vec<String>,
    permitted: bool,
    expect: Expect,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let written = list(&case.written)?;
    equal("needs permission", needs_permission(written.as_ref()), !case.written.is_null())?;
    case.expect.judge(create(written, case.configured.iter().map(String::as_str), case.permitted))
}

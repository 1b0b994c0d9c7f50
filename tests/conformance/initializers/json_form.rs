//! `json_form.json`: `metadata.initializers` read and written.

use gatepost_initializers::Initializers;
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    json: Value,
    #[serde(default)]
    expect: Option<Vec<String>>,
    #[serde(default)]
    written: Value,
    #[serde(default)]
    error: bool,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let read = Initializers::read(case.json.to_string().as_bytes());
    equal("error", read.is_err(), case.error)?;
    let Ok(read) = read else { return Ok(()) };
    let names = read.as_ref().map(|list| list.pending.iter().map(ToString::to_string).collect());
    equal("names", names, case.expect.clone())?;
    let written = read.map_or(Value::Null, |list| serde_json::from_str(&list.write()).unwrap_or_default());
    equal("written", &written, &case.written)
}

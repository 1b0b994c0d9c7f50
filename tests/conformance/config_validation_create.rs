//! `config_validation_create.json`: which configurations kube-apiserver takes, and where it finds fault with the
//! others.

use gatepost_config::{Problem, checked_webhook_configuration};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    run::{Outcome, Understood, decoded},
    webhooks::configuration,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    configuration_name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    webhooks: Vec<Map<String, Value>>,
    valid: bool,
    /// Each of them must be found; others may be.
    #[serde(default)]
    expect_errors: Vec<Expected>,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Kind {
    ValidatingWebhookConfiguration,
    MutatingWebhookConfiguration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    field: String,
    #[serde(rename = "type")]
    kind: ErrorType,
    /// Value that upstream quotes. Our problems have words of their own.
    #[serde(default, rename = "value")]
    _value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum ErrorType {
    Invalid,
    NotSupported,
    Required,
    Duplicate,
    TooMany,
}

/// Stands for many generated conditions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeated {
    repeat: usize,
    /// Name of each, before its number from 0.
    #[serde(default = "condition", alias = "name")]
    name_prefix: String,
    #[serde(default = "always")]
    expression: String,
}

fn condition() -> String {
    "condition".into()
}

fn always() -> String {
    "true".into()
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, mut case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    if case.valid != case.expect_errors.is_empty() {
        return Err("not understood: valid with errors, or invalid without".into());
    }
    for conditions in case.webhooks.iter_mut().filter_map(|webhook| webhook.get_mut("matchConditions")) {
        if conditions.is_object() {
            let Repeated { repeat, name_prefix, expression } = decoded(conditions)?;
            let one = |number| json!({"name": format!("{name_prefix}{number}"), "expression": expression});
            *conditions = (0..repeat).map(one).collect();
        }
    }
    Ok(Box::new(move || case.kinds.iter().try_for_each(|kind| judge(&shared, &case, *kind))))
}

fn judge(shared: &Shared, case: &Case, kind: Kind) -> Outcome {
    let document = configuration(&format!("{kind:?}"), &shared.configuration_name, json!(case.webhooks));
    let problems = checked_webhook_configuration("case", &document).err().unwrap_or_default();
    if let Some(unknown) = problems.iter().find(|problem| problem.what == "is not a known key") {
        return Err(format!("not understood: {unknown}"));
    }
    if case.valid && !problems.is_empty() {
        return Err(format!("{kind:?}: upstream takes it, ours: {problems:?}"));
    }
    for expected in &case.expect_errors {
        if !problems.iter().any(|problem| problem.path == expected.field && may_be(problem, expected.kind)) {
            return Err(format!("{kind:?}: upstream {expected:?}, ours: {problems:?}"));
        }
    }
    Ok(())
}

/// Is this problem of upstream's type, by the words in which we say it?
fn may_be(problem: &Problem, kind: ErrorType) -> bool {
    let what = &*problem.what;
    match kind {
        ErrorType::NotSupported => what.ends_with("is not one of the allowed words"),
        ErrorType::Duplicate => what.contains("is already defined at") || what.ends_with("is listed twice"),
        ErrorType::TooMany => what.starts_with("holds more than"),
        ErrorType::Required => {
            what == "is missing"
                || what.starts_with("is empty")
                || ["holds both url and service", "holds neither url nor service"].contains(&what)
        }
        // Of versions, upstream calls so what is listed twice.
        ErrorType::Invalid => !may_be(problem, ErrorType::NotSupported) && !may_be(problem, ErrorType::TooMany),
    }
}

//! `validation.json`: initializers that a configuration may have, and the place of each problem in others.

use gatepost_config::{SourceFile, load};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    /// The `resourceInitializers` of one configuration.
    entries: Vec<Value>,
    expect: Vec<Expected>,
    /// Difference of 1.13: for people.
    #[serde(default, rename = "upstream")]
    _upstream: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    field: String,
    /// A part of the text.
    says: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "vectors"},
        "resourceInitializers": case.entries,
    });
    let file = SourceFile { name: "vectors.json".into(), bytes: document.to_string().into() };
    let loaded = load(&[file], &|_: &str| Err(std::io::ErrorKind::NotFound.into()));
    let problems = loaded.err().unwrap_or_default();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.trim_start_matches("[0].")).collect();
    equal(&format!("problems in {texts:?}"), paths, case.expect.iter().map(|expected| &*expected.field).collect())?;
    let silent = case.expect.iter().zip(&texts).find(|(expected, text)| !text.contains(&expected.says));
    silent.map_or(Ok(()), |(expected, text)| Err(format!("{text:?} does not say {:?}", expected.says)))
}

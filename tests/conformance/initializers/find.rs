//! `find.json`: the initializers of a resource, in order.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    documents::snapshot,
    run::{Nothing, Outcome, Understood, decoded, equal},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    /// The `resourceInitializers` of each configuration.
    configurations: Vec<Value>,
    group: String,
    resource: String,
    expect: Vec<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let document = |(at, list): (usize, &Value)| {
        json!({
            "apiVersion": "gatepost.dev/v1alpha1",
            "kind": "AdmissionControlConfiguration",
            "metadata": {"name": format!("vectors-{at}")},
            "resourceInitializers": list,
        })
    };
    let documents: Vec<Value> = case.configurations.iter().enumerate().map(document).collect();
    let snapshot = snapshot(&documents)?;
    let entry = snapshot.initializers_of(&case.group, &case.resource);
    let names = entry.into_iter().flat_map(|entry| &entry.initializers).map(|one| one.name.to_string()).collect();
    equal("names", names, case.expect.clone())
}

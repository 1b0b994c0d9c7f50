//! `namespace_matcher.json`: which labels a namespaceSelector looks at.

use std::collections::{BTreeMap, BTreeSet};

use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking::{Namespaces, is_asked},
    reviews::{self, text},
    run::{Outcome, Understood, decoded, equal},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// The labels of the namespaces that there are.
    namespace_cache: Namespaces,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    attributes: Attributes,
    /// The labels that the selector is to look at.
    expect_labels: Option<BTreeMap<String, String>>,
    namespace_selector: Option<Value>,
    expect_match: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attributes {
    resource: String,
    subresource: String,
    operation: String,
    namespace: String,
    name: String,
    #[serde(default)]
    object: Value,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    Ok(match (&case.expect_labels, &case.namespace_selector, case.expect_match) {
        (Some(_), None, None) => Box::new(move || labels(&shared, &case)),
        (None, Some(_), Some(_)) => Box::new(move || selector(&shared, &case)),
        _ => return Err("not understood: neither labels alone, nor a selector and what it decides".into()),
    })
}

fn selector(shared: &Shared, case: &Case) -> Outcome {
    equal("match", asked(shared, case, &json!(case.namespace_selector))?, case.expect_match == Some(true))
}

/// A selector that asks for exactly these labels matches; one that asks for any of them to be otherwise does not.
fn labels(shared: &Shared, case: &Case) -> Outcome {
    let expected = case.expect_labels.as_ref().expect("checked above");
    let own = case.attributes.object["metadata"]["labels"].as_object();
    let cached = shared.namespace_cache.values().flat_map(BTreeMap::keys);
    let keys: BTreeSet<&String> =
        expected.keys().chain(cached).chain(own.into_iter().flat_map(serde_json::Map::keys)).collect();
    let as_expected = keys.iter().map(|key| match expected.get(*key) {
        Some(value) => json!({"key": key, "operator": "In", "values": [value]}),
        None => json!({"key": key, "operator": "DoesNotExist"}),
    });
    let all = json!({"matchExpressions": as_expected.collect::<Vec<_>>()});
    equal(&format!("match {all}"), asked(shared, case, &all)?, true)?;
    for key in keys {
        let otherwise = match expected.get(key) {
            Some(value) => json!({"key": key, "operator": "NotIn", "values": [value]}),
            None => json!({"key": key, "operator": "Exists"}),
        };
        equal(&format!("match {otherwise}"), asked(shared, case, &json!({"matchExpressions": [otherwise]}))?, false)?;
    }
    Ok(())
}

fn asked(shared: &Shared, case: &Case, selector: &Value) -> Result<bool, String> {
    let Attributes { resource, subresource, operation, namespace, name, object } = &case.attributes;
    let request = AdmissionRequest {
        resource: reviews::resource(&["".into(), "v1".into(), resource.clone()]),
        sub_resource: text(subresource),
        name: text(name),
        namespace: text(namespace),
        operation: text(operation),
        object: reviews::object(object),
        ..Default::default()
    };
    is_asked(&json!({"namespaceSelector": selector}), &shared.namespace_cache, &request)
}

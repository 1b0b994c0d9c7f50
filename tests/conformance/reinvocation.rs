//! `reinvocation.json`: which mutating hooks are asked once more, and what comes of it.
//!
//! Upstream runs these with a whole apiserver, whose own plugins change the object before its webhooks and once more
//! behind them (`in_tree_*`). Such a second change is a second review to us, as the apiserver asks again.

use std::collections::BTreeMap;

use gatepost::review::{Caller, decide};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking::{LONG, everything, on_runtime},
    reviews::{self, text},
    run::{Outcome, Understood, decoded, equal},
    webhooks::{Instead, gate, mutating},
};
use crate::support::{
    gate::caller,
    http_hook::{HttpHook, HttpScript, Judge},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// In words; [`judge`] is the same in code.
    backends: BTreeMap<String, String>,
    initial_labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    hooks: Vec<Entry>,
    expect_invocations: BTreeMap<String, usize>,
    expect_labels: Option<BTreeMap<String, String>>,
    expect_mutated: BTreeMap<String, bool>,
    /// Before our hooks: they see nothing of it.
    #[serde(default, rename = "in_tree_mutation_first")]
    _in_tree_mutation_first: bool,
    #[serde(default)]
    in_tree_reacts_in_round_1: bool,
    /// Does a plugin of the apiserver's own refuse what the hooks have made of the object?
    #[serde(default)]
    expect_error: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    backend: String,
    /// Missing or null is the default.
    policy: Option<String>,
    #[serde(default)]
    object_selector: Value,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    if let Some(entry) = case.hooks.iter().find(|entry| !shared.backends.contains_key(&entry.backend)) {
        return Err(format!("not understood: no backend {}", entry.backend));
    }
    for entry in &case.hooks {
        judge(&entry.backend, &Value::Null)?;
    }
    Ok(Box::new(move || on_runtime(run(shared, case))))
}

/// The operations that this backend sends about an object; none is no patch.
fn judge(backend: &str, object: &Value) -> Result<Value, String> {
    let labels = &object["metadata"]["labels"];
    Ok(match backend {
        "noop" => json!([]),
        "addlabel" if labels["a"] == "true" => json!([]),
        "addlabel" => json!([{"op": "add", "path": "/metadata/labels/a", "value": "true"}]),
        "conditionaladdlabel" if labels["a"] != "true" => json!([]),
        "conditionaladdlabel" => json!([{"op": "add", "path": "/metadata/labels/b", "value": "true"}]),
        "settrue" => json!([{"op": "replace", "path": "/metadata/labels/fight", "value": "true"}]),
        "setfalse" => json!([{"op": "replace", "path": "/metadata/labels/fight", "value": "false"}]),
        "setpriority" if object["spec"]["priorityClassName"] == "high-priority" => json!([]),
        "setpriority" => json!([{"op": "add", "path": "/spec/priorityClassName", "value": "high-priority"}]),
        "setinvalidpriority" => json!([{"op": "add", "path": "/spec/priorityClassName", "value": NO_CLASS}]),
        other => return Err(format!("not understood: backend {other}")),
    })
}

/// A priority class that does not exist: the apiserver's own plugin, behind the hooks, refuses a Pod that names it.
const NO_CLASS: &str = "invalid";

fn answer(operations: &Value) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    match operations.as_array().is_none_or(Vec::is_empty) {
        true => json!({"allowed": true}),
        false => json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())}),
    }
}

async fn run(shared: Shared, case: Case) -> Outcome {
    let (mut webhooks, mut hooks, mut instead) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in case.hooks.iter().enumerate() {
        let backend = entry.backend.clone();
        let judge = Judge::new(move |request| answer(&judge(&backend, &request["object"]).unwrap_or_default()));
        let hook = HttpHook::plain(HttpScript::Judge(judge)).await;
        webhooks.push(json!({
            "name": format!("hook-{index}.vectors.example"),
            "clientConfig": {"url": format!("https://127.0.0.1/{}", entry.backend)},
            "rules": everything(),
            "objectSelector": entry.object_selector,
            "reinvocationPolicy": entry.policy,
            // Each in its own turn, as calls are counted.
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
        }));
        instead.push(Instead { endpoint: hook.endpoint(), change: Box::new(|_| {}) });
        hooks.push(hook);
    }
    let gate = gate(mutating("vectors", json!(webhooks), Vec::new())?, instead);
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": shared.initial_labels},
        "spec": {"containers": []}});
    let ask = async |object: &Value| -> Result<Verdict, String> {
        let review = reviews::review(AdmissionRequest {
            resource: reviews::resource(&["".into(), "v1".into(), "pods".into()]),
            namespace: text("ns"),
            operation: text("CREATE"),
            object: reviews::object(object),
            ..Default::default()
        })?;
        Ok(decide(&gate, &review, &Caller { phase: Phase::Mutate, ..caller(LONG) }).await)
    };
    let verdict = ask(&object).await?;
    equal("refusal", verdict.refusal.as_ref().map(|refusal| &refusal.message), None)?;
    object = patched(&object, &verdict)?;
    equal("error", object["spec"]["priorityClassName"] == NO_CLASS, case.expect_error)?;
    let mut mutated = mutations(&verdict);
    if case.in_tree_reacts_in_round_1 {
        object["spec"]["priority"] = json!(1);
        let again = ask(&object).await?;
        object = patched(&object, &again)?;
        mutated.extend(mutations(&again).into_iter().map(|(key, value)| (key.replace("round_0", "round_1"), value)));
    }
    equal("mutated", mutated, case.expect_mutated)?;
    for (entry, hook) in case.hooks.iter().zip(&hooks) {
        equal(&entry.backend, Some(&hook.seen().len()), case.expect_invocations.get(&entry.backend))?;
    }
    match &case.expect_labels {
        Some(labels) => equal("labels", &object["metadata"]["labels"], &json!(labels)),
        None => Ok(()),
    }
}

/// Changes of the object, by the round and place of each call.
fn mutations(verdict: &Verdict) -> BTreeMap<String, bool> {
    let said = verdict.audit_annotations.iter().filter_map(|(key, text)| {
        let place = key.strip_prefix("mutation.webhook.admission.k8s.io/")?;
        let said: Value = serde_json::from_str(text).ok()?;
        Some((place.to_owned(), said["mutated"].as_bool()?))
    });
    said.collect()
}

fn patched(object: &Value, verdict: &Verdict) -> Result<Value, String> {
    let Some(patch) = verdict.patch.clone() else { return Ok(object.clone()) };
    let patch = Patch::parse(patch).map_err(|error| error.to_string())?;
    let document = Document::new(Rope::new([object.to_string().into()])).map_err(|error| error.to_string())?;
    let patched = document.patched(&patch, PatchLimits::default()).map_err(|error| error.to_string())?;
    serde_json::from_slice(&patched.rope().to_bytes()).map_err(|error| error.to_string())
}

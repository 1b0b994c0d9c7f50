//! Format: what a case may say that no case of this repository does, so that other folders are understood as well.

use serde_json::{Value, json};

use super::{run::Outcome, table};

/// Every made-up case that does not come to what it should.
pub(crate) fn misunderstood() -> Vec<String> {
    let cases = [repeated(64, true), repeated(65, false)].into_iter().chain(clients()).chain(plugins());
    let judged = cases.map(|(file, shared, case)| (file, run(file, &shared, &case), case));
    judged.filter_map(|(file, outcome, case)| Some(format!("format: {file}: {case}: {}", outcome.err()?))).collect()
}

fn run(file: &str, shared: &Value, case: &Value) -> Outcome {
    let case_of = table(file).and_then(|table| table.case).ok_or("no such table")?;
    case_of(shared, case)?()
}

/// So many conditions in one entry, each with a name of its own. An apiserver takes 64.
fn repeated(count: usize, valid: bool) -> (&'static str, Value, Value) {
    let too_many = json!([{"field": "webhooks[0].matchConditions", "type": "TooMany"}]);
    let webhook = json!({
        "name": "webhook.k8s.io", "clientConfig": {"url": "https://example.com"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": {"repeat": count, "name_prefix": "c", "expression": "true"},
    });
    let case = json!({
        "id": format!("{count} conditions"), "webhooks": [webhook], "valid": valid,
        "expect_errors": if valid { json!([]) } else { too_many }, "kinds": ["ValidatingWebhookConfiguration"],
    });
    ("config_validation_create.json", json!({"configuration_name": "config"}), case)
}

/// Hooks without a reinvocation policy, and one whose change the apiserver's own plugin refuses.
fn plugins() -> impl Iterator<Item = (&'static str, Value, Value)> {
    let of = |backends: [&str; 2], policy: Value, labels: Value, expect_error: bool| {
        let hooks = backends.map(|backend| json!({"backend": backend, "policy": policy}));
        let case = json!({
            "id": format!("{backends:?} {policy}"), "hooks": hooks,
            "expect_invocations": {backends[0]: 1, backends[1]: 1}, "expect_labels": labels,
            "expect_mutated": {"round_0_index_0": expect_error, "round_0_index_1": !expect_error},
            "expect_error": expect_error, "in_tree_mutation_first": true,
        });
        let shared = json!({"backends": {backends[0]: "", backends[1]: ""}, "initial_labels": {"x": "true"}});
        ("reinvocation.json", shared, case)
    };
    [
        of(["conditionaladdlabel", "addlabel"], Value::Null, json!({"x": "true", "a": "true"}), false),
        of(["setinvalidpriority", "noop"], json!("Never"), json!({"x": "true"}), true),
    ]
    .into_iter()
}

/// A hook without a URL and without a service, under each failure policy and in each phase; with a backend that is
/// named and not called, and without one.
fn clients() -> impl Iterator<Item = (&'static str, Value, Value)> {
    let labels = json!({"name": "object"});
    let object = json!({"kind": ["", "v1", "Pod"], "resource": ["", "v1", "pods"], "name": "p", "labels": labels});
    let shared = json!({
        "request": {
            "operation": "UPDATE", "namespace": "shop", "namespace_labels": {"runlevel": "0"},
            "user": {"username": "ann", "uid": "ann"}, "pod": object, "custom_resource": object,
        },
        "backends": {"allow": {"response": {"allowed": true}}},
        "rules": {"all": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]},
        "configuration_name": "test",
    });
    let of = move |backend: Value, (phase, policy, annotations): (&str, &str, Value)| {
        let hook = json!({
            "name": "h.example.com", "backend": backend, "client_config": "none", "rules": "all",
            "namespace_selector": {}, "object_selector": {}, "failure_policy": policy,
            "admission_review_versions": ["v1"],
        });
        let expect = match policy {
            "Ignore" => json!({"allowed": true, "annotations": annotations}),
            _ => json!({"allowed": false, "annotations": annotations, "code": 500,
                        "error_contains": "failed calling webhook \"h.example.com\""}),
        };
        let case = json!({
            "id": format!("{phase} {policy} {backend}"), "phase": phase, "hooks": [hook], "custom_resource": false,
            "dry_run": false, "expect": expect,
        });
        ("dispatch.json", shared.clone(), case)
    };
    let asked = r#"{"configuration":"test","webhook":"h.example.com","mutated":false}"#;
    let (mutation, open) = ("mutation.webhook.admission.k8s.io/round_0_index_0", "failed-open");
    let opened = |phase: &str| format!("{open}.{phase}.webhook.admission.k8s.io/round_0_index_0");
    let calls = [
        ("validating", "Fail", json!({})),
        ("validating", "Ignore", json!({opened("validating"): "h.example.com"})),
        ("mutating", "Fail", json!({mutation: asked})),
        ("mutating", "Ignore", json!({mutation: asked, opened("mutation"): "h.example.com"})),
    ];
    calls.into_iter().flat_map(move |call| [json!("allow"), Value::Null].map(|backend| of(backend, call.clone())))
}

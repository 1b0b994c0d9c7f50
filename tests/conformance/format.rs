//! Format: what a case may say that no case of this repository does, so that other folders are understood as well.

use serde_json::{Value, json};

use super::{run::Outcome, table};

/// Every made-up case that does not come to what it should.
pub(crate) fn misunderstood() -> Vec<String> {
    let cases = [repeated(64, true), repeated(65, false)].into_iter().chain(clients());
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

/// A hook without a URL and without a service, under each failure policy and in each phase.
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
    let of = move |phase: &str, policy: &str, annotations: Value| {
        let hook = json!({
            "name": "h.example.com", "backend": "allow", "client_config": "none", "rules": "all",
            "namespace_selector": {}, "object_selector": {}, "failure_policy": policy,
            "admission_review_versions": ["v1"],
        });
        let expect = match policy {
            "Ignore" => json!({"allowed": true, "annotations": annotations}),
            _ => json!({"allowed": false, "annotations": annotations, "code": 500,
                        "error_contains": "failed calling webhook \"h.example.com\""}),
        };
        let case = json!({
            "id": format!("{phase} {policy}"), "phase": phase, "hooks": [hook], "custom_resource": false,
            "dry_run": false, "expect": expect,
        });
        ("dispatch.json", shared.clone(), case)
    };
    let asked = r#"{"configuration":"test","webhook":"h.example.com","mutated":false}"#;
    let (mutation, open) = ("mutation.webhook.admission.k8s.io/round_0_index_0", "failed-open");
    let opened = |phase: &str| format!("{open}.{phase}.webhook.admission.k8s.io/round_0_index_0");
    [
        of("validating", "Fail", json!({})),
        of("validating", "Ignore", json!({opened("validating"): "h.example.com"})),
        of("mutating", "Fail", json!({mutation: asked})),
        of("mutating", "Ignore", json!({mutation: asked, opened("mutation"): "h.example.com"})),
    ]
    .into_iter()
}

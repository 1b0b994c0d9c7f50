//! Tests as `kyverno test` reads them (`kyverno-test.yaml`), of ValidatingAdmissionPolicies. Source: the API reference
//! of `cli.kyverno.io/v1alpha1`.
//!
//! A result is about one policy, so each policy is a suite of its own, and its bindings deny, whatever their actions
//! are. Results of other policies are left to Kyverno.

use std::path::Path;

use gatepost_config::SourceFile;
use serde_json::{Value, json};

use super::{
    cluster::{FixtureCluster, text_at},
    document::{Field, Problems},
    request::{RequestObjects, review},
    suite::{Expectation, PolicyTest, Suite, fixtures},
};

const TEST_KEYS: [&str; 6] = ["apiVersion", "kind", "metadata", "policies", "resources", "results"];
const RESULT_KEYS: [&str; 7] =
    ["policy", "rule", "resources", "resource", "kind", "result", "isValidatingAdmissionPolicy"];

/// Consequence of a key that is not read.
const UNREAD: &str = "which this command does not read, so the test might decide otherwise";

/// Returns true if a document is a test of Kyverno.
pub(super) fn is_kyverno_test(document: &Value) -> bool {
    document["kind"] == "Test" && text_at(document, "/apiVersion").starts_with("cli.kyverno.io/")
}

/// Reads a test of Kyverno: one suite for each ValidatingAdmissionPolicy that it has results of.
pub(super) fn suites(field: &Field<'_>, path: &Path, file: &str, problems: &Problems) -> Vec<Suite> {
    let before = problems.len();
    let folder = path.parent().unwrap_or(Path::new(""));
    let all = |key: &str| -> Vec<Value> {
        let paths = field.get(key).map_or_else(Vec::new, |paths| paths.texts());
        paths.iter().flat_map(|path| fixtures(folder, path, problems)).collect()
    };
    let kind = |document: &Value, kind: &str| document["kind"] == kind;
    let documents = all("policies");
    let policies: Vec<_> = documents.iter().filter(|one| kind(one, "ValidatingAdmissionPolicy")).collect();
    if policies.is_empty() {
        return Vec::new();
    }
    report_unread(field, &TEST_KEYS);
    let resources = all("resources");
    let results = field.get("results").map_or_else(Vec::new, |results| results.items());
    let name = text_at(field.value, "/metadata/name").to_owned();
    let mut suites = Vec::new();
    for policy in policies {
        let policy_name = text_at(policy, "/metadata/name");
        let own = results.iter().filter(|result| text_at(result.value, "/policy") == policy_name);
        let tests: Vec<_> = own.flat_map(|result| tests_of(result, policy_name, &resources, file, problems)).collect();
        if tests.is_empty() {
            continue;
        }
        let is_binding = |one: &&Value| {
            kind(one, "ValidatingAdmissionPolicyBinding") && text_at(one, "/spec/policyName") == policy_name
        };
        let bindings: Vec<Value> = documents.iter().filter(is_binding).cloned().map(denying).collect();
        let bindings = if bindings.is_empty() { vec![implied(policy_name)] } else { bindings };
        let text: String = [policy].into_iter().chain(&bindings).map(|document| format!("{document}\n")).collect();
        suites.push(Suite {
            file: file.to_owned(),
            name: format!("{name}/{policy_name}"),
            policies: vec![SourceFile { name: format!("{policy_name}.json"), bytes: text.into() }],
            unbound: Vec::new(),
            cluster: FixtureCluster { objects: resources.clone(), rules: Vec::new() },
            tests,
        });
    }
    if problems.len() == before { suites } else { Vec::new() }
}

/// Reports keys that are not read.
fn report_unread(field: &Field<'_>, keys: &[&str]) {
    let map = field.value.as_object().into_iter().flatten();
    for key in map.map(|(key, _)| key).filter(|key| !keys.contains(&key.as_str())) {
        if let Some(unread) = field.get(key) {
            unread.problem("is a key of kyverno test", UNREAD, "write a PolicyTest instead");
        }
    }
}

/// Returns a binding that denies what the policy finds.
fn implied(policy: &str) -> Value {
    denying(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy},
        "spec": {"policyName": policy},
    }))
}

fn denying(mut binding: Value) -> Value {
    if let Some(spec) = binding.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("validationActions".to_owned(), json!(["Deny"]));
    }
    binding
}

/// Returns the tests of one result: one for each of its resources.
fn tests_of(result: &Field<'_>, policy: &str, resources: &[Value], file: &str, problems: &Problems) -> Vec<PolicyTest> {
    report_unread(result, &RESULT_KEYS);
    const UNKNOWN: &str = "so the test would show nothing";
    let Some(outcome) = result.required("result", UNKNOWN, "write pass, fail or skip") else { return Vec::new() };
    let (is_allowed, is_applied) = match outcome.text() {
        Some("pass") => (true, true),
        Some("fail") => (false, true),
        Some("skip") => (true, false),
        _ => {
            outcome.problem("is not a result", UNKNOWN, "write pass, fail or skip");
            return Vec::new();
        }
    };
    let single = result.get("resource");
    let names = result.get("resources").map_or_else(Vec::new, |names| names.items());
    let kind = text_at(result.value, "/kind");
    let mut tests = Vec::new();
    for name in names.iter().chain(&single) {
        let Some(text) = name.text() else { continue };
        let (namespace, own) = text.rsplit_once('/').map_or((None, text), |(namespace, own)| (Some(namespace), own));
        let fits = |object: &&Value| {
            text_at(object, "/metadata/name") == own
                && (kind.is_empty() || text_at(object, "/kind") == kind)
                && namespace.is_none_or(|namespace| text_at(object, "/metadata/namespace") == namespace)
        };
        let found: Vec<_> = resources.iter().filter(fits).collect();
        if found.is_empty() {
            name.problem("is none of the resources", UNKNOWN, "correct the name, or add its file to resources");
        }
        for object in found {
            let plain = json!({});
            let request = Field::document(&plain, file, None, problems);
            let objects = RequestObjects { object: Some(object.clone()), ..RequestObjects::default() };
            let Some(review) = review(&request, objects) else { continue };
            tests.push(PolicyTest {
                name: format!(
                    "{policy}: {} {text}: {}",
                    text_at(object, "/kind"),
                    outcome.value.as_str().unwrap_or("")
                ),
                review,
                expectation: Expectation { is_allowed, is_applied: Some(is_applied), ..Expectation::default() },
            });
        }
    }
    tests
}

//! Tests as `kyverno test` reads them (`kyverno-test.yaml`), of admission policies and of policies that can be
//! translated into them. Source: the API reference of `cli.kyverno.io/v1alpha1`.
//!
//! A result is about one policy, so each policy is a suite of its own, and its bindings deny, regardless of their
//! actions are. Results of other policies are left to Kyverno.

use std::path::Path;

use gatepost_config::SourceFile;
use serde_json::{Value, json};

use super::{
    cluster::{DEFAULT_NAMESPACE, FixtureCluster, complete, is_namespaced, text_at},
    document::{Field, Problems, is_policy},
    request::{RequestObjects, review},
    suite::{Expectation, PolicyTest, Suite, fixtures},
    translate::{is_kyverno_policy, translation},
};

const TEST_KEYS: [&str; 8] =
    ["apiVersion", "kind", "metadata", "policies", "resources", "paramResources", "variables", "results"];
const RESULT_KEYS: [&str; 12] = [
    "policy",
    "rule",
    "resources",
    "resource",
    "kind",
    "result",
    "patchedResources",
    "patchedResource",
    "isValidatingAdmissionPolicy",
    "isValidatingPolicy",
    "isMutatingAdmissionPolicy",
    "isMutatingPolicy",
];

/// Consequence of a key that is not read.
const UNREAD: &str = "which this command does not read, so the test might decide otherwise";
/// Consequence of a result that expects nothing.
const UNKNOWN: &str = "so the test would show nothing";

/// Returns true if a document is a test of Kyverno.
pub(super) fn is_kyverno_test(document: &Value) -> bool {
    document["kind"] == "Test" && text_at(document, "/apiVersion").starts_with("cli.kyverno.io/")
}

/// A policy of a test, and the form in which it is tested.
struct TestedPolicy {
    name: String,
    is_validating: bool,
    documents: Vec<Value>,
    notes: Vec<String>,
}

/// Reads a test of Kyverno: one suite for each policy in CEL that it has results of.
pub(super) fn suites(field: &Field<'_>, path: &Path, file: &str, problems: &Problems) -> Vec<Suite> {
    let before = problems.len();
    let folder = path.parent().unwrap_or(Path::new(""));
    let all = |key: &str| -> Vec<Value> {
        let paths = field.get(key).map_or_else(Vec::new, |paths| paths.texts());
        paths.iter().flat_map(|path| fixtures(folder, path, problems)).collect()
    };
    let paths = field.get("policies").map_or_else(Vec::new, |paths| paths.texts());
    let read = |path: &String| {
        let shown = folder.join(path).display().to_string();
        fixtures(folder, path, problems).into_iter().map(move |document| (shown.clone(), document))
    };
    let policies = tested_policies(&paths.iter().flat_map(read).collect::<Vec<_>>(), problems);
    if policies.is_empty() {
        return Vec::new();
    }
    report_unread(field, &TEST_KEYS);
    let (mut resources, mut params) = (all("resources"), all("paramResources"));
    for object in resources.iter_mut().chain(&mut params) {
        if is_namespaced(text_at(object, "/apiVersion"), text_at(object, "/kind")) == Some(true) {
            complete(object, DEFAULT_NAMESPACE);
        }
    }
    let mut objects: Vec<Value> = resources.iter().cloned().chain(params).collect();
    if let Some(path) = field.get("variables").and_then(|path| path.text()) {
        let values = fixtures(folder, path, problems);
        let shown = folder.join(path).display().to_string();
        for document in &values {
            objects.extend(namespaces(&Field::document(document, &shown, None, problems)));
        }
    }
    let results = field.get("results").map_or_else(Vec::new, |results| results.items());
    let is_of = |result: &Field<'_>, policy: &str| {
        let named = text_at(result.value, "/policy");
        named.rsplit_once('/').map_or(named, |(_, name)| name) == policy
    };
    let others = results.iter().filter(|result| !policies.iter().any(|policy| is_of(result, &policy.name))).count();
    let name = text_at(field.value, "/metadata/name");
    let mut suites = Vec::new();
    for TestedPolicy { name: policy, is_validating, documents, mut notes } in policies {
        let own = results.iter().filter(|result| is_of(result, &policy));
        let reader = ResultReader { policy: &policy, is_validating, resources: &resources, folder, file, problems };
        let tests: Vec<_> = own.flat_map(|result| reader.tests(result)).collect();
        if tests.is_empty() {
            continue;
        }
        if others > 0 {
            notes.push(format!("results of other policies are left to Kyverno: {others}"));
        }
        let text: String = documents.iter().map(|document| format!("{document}\n")).collect();
        suites.push(Suite {
            file: file.to_owned(),
            name: format!("{name}/{policy}"),
            policies: vec![SourceFile { name: format!("{policy}.json"), bytes: text.into() }],
            notes,
            cluster: FixtureCluster { objects: objects.clone(), rules: Vec::new() },
            tests,
        });
    }
    if problems.len() == before { suites } else { Vec::new() }
}

/// Returns the policies that can be tested, with bindings that deny.
fn tested_policies(documents: &[(String, Value)], problems: &Problems) -> Vec<TestedPolicy> {
    let mut tested = Vec::new();
    for (file, document) in documents {
        let (kind, name) = (text_at(document, "/kind"), text_at(document, "/metadata/name"));
        let is_validating = kind.contains("Validating");
        if is_kyverno_policy(document)
            && ["ValidatingPolicy", "MutatingPolicy"].iter().any(|known| kind.ends_with(known))
        {
            let Some(translation) = translation(&Field::document(document, file, None, problems)) else { continue };
            let documents = translation.documents.into_iter().map(denying).collect();
            tested.push(TestedPolicy { name: name.to_owned(), is_validating, documents, notes: translation.notes });
        } else if is_policy(document) && kind.ends_with("Policy") {
            let is_binding = |one: &&Value| {
                text_at(one, "/kind") == format!("{kind}Binding") && text_at(one, "/spec/policyName") == name
            };
            let mut own: Vec<Value> =
                documents.iter().map(|(_, one)| one).filter(is_binding).cloned().map(denying).collect();
            if own.is_empty() {
                own.push(implied(document));
            }
            own.insert(0, document.clone());
            tested.push(TestedPolicy { name: name.to_owned(), is_validating, documents: own, notes: Vec::new() });
        }
    }
    tested
}

/// Returns the namespaces of a file of values. Reports values that are not read.
fn namespaces(values: &Field<'_>) -> Vec<Value> {
    report_unread(values, &["apiVersion", "kind", "metadata", "namespaceSelector"]);
    let namespaces = values.get("namespaceSelector").map_or_else(Vec::new, |namespaces| namespaces.items());
    let namespace = |of: &Field<'_>| {
        let metadata = json!({"name": of.value["name"], "labels": of.value["labels"]});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    namespaces.iter().map(namespace).collect()
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

/// Returns a binding that denies the policy's violations.
fn implied(policy: &Value) -> Value {
    let name = &policy["metadata"]["name"];
    denying(json!({
        "apiVersion": policy["apiVersion"],
        "kind": format!("{}Binding", text_at(policy, "/kind")),
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }))
}

/// Lets a binding of a validating policy deny.
fn denying(mut document: Value) -> Value {
    if document["kind"] == "ValidatingAdmissionPolicyBinding"
        && let Some(spec) = document.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("validationActions".to_owned(), json!(["Deny"]));
    }
    document
}

/// Inputs for the results of one policy.
struct ResultReader<'a> {
    policy: &'a str,
    is_validating: bool,
    resources: &'a [Value],
    folder: &'a Path,
    file: &'a str,
    problems: &'a Problems,
}

impl ResultReader<'_> {
    /// Returns the tests of one result: one for each of its resources.
    fn tests(&self, result: &Field<'_>) -> Vec<PolicyTest> {
        report_unread(result, &RESULT_KEYS);
        let Some(outcome) = result.required("result", UNKNOWN, "write pass, fail or skip") else { return Vec::new() };
        let (is_allowed, is_applied) = match (outcome.text(), self.is_validating) {
            (Some("pass"), _) => (true, true),
            (Some("fail"), true) => (false, true),
            (Some("skip"), _) => (true, false),
            _ => {
                let fix = if self.is_validating { "write pass, fail or skip" } else { "write pass or skip" };
                outcome.problem("is not a result of such a policy", UNKNOWN, fix);
                return Vec::new();
            }
        };
        let patched = ["patchedResources", "patchedResource"].into_iter().find_map(|key| result.get(key));
        let patched = patched.and_then(|path| path.text()).map(|path| fixtures(self.folder, path, self.problems));
        let single = result.get("resource");
        let names = result.get("resources").map_or_else(Vec::new, |names| names.items());
        if names.is_empty() && single.is_none() {
            result.problem("names no resources", UNKNOWN, "write resources: [NAME]");
        }
        let kind = text_at(result.value, "/kind");
        let mut tests = Vec::new();
        for name in names.iter().chain(&single) {
            let Some(text) = name.text() else { continue };
            let fits = |object: &&Value| is_named(object, text) && (kind.is_empty() || object["kind"] == kind);
            let found: Vec<_> = self.resources.iter().filter(fits).collect();
            if found.is_empty() {
                name.problem("is none of the resources", UNKNOWN, "correct the name, or add its file to resources");
            }
            for object in found {
                let plain = json!({});
                let request = Field::document(&plain, self.file, None, self.problems);
                let objects = RequestObjects { object: Some(object.clone()), ..RequestObjects::default() };
                let Some(review) = review(&request, objects) else { continue };
                let wanted = patched.as_ref().map(|all| {
                    all.iter()
                        .find(|one| one["kind"] == object["kind"] && is_named(one, text_at(object, "/metadata/name")))
                });
                let mut wanted = match wanted {
                    Some(None) => {
                        name.problem("is not in patchedResources", UNKNOWN, "add the object after the mutation");
                        continue;
                    }
                    // Kyverno skips what changes nothing.
                    None if !self.is_validating && !is_applied => Some(review["request"]["object"].clone()),
                    wanted => wanted.flatten().cloned(),
                };
                if let Some(wanted) = &mut wanted {
                    complete(wanted, text_at(&review, "/request/object/metadata/namespace"));
                }
                let (kind, outcome) = (text_at(object, "/kind"), outcome.value.as_str().unwrap_or(""));
                tests.push(PolicyTest {
                    name: format!("{}: {kind} {text}: {outcome}", self.policy),
                    review,
                    expectation: Expectation {
                        is_allowed,
                        is_applied: (self.is_validating || is_applied).then_some(is_applied),
                        result: wanted,
                        ..Expectation::default()
                    },
                });
            }
        }
        tests
    }
}

/// Returns true if an object has this name, which may begin with its namespace.
fn is_named(object: &Value, name: &str) -> bool {
    let (namespace, name) = name.rsplit_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    object["metadata"]["name"] == name && namespace.is_none_or(|own| text_at(object, "/metadata/namespace") == own)
}

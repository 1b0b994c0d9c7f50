//! Suite: one PolicyTest document, with its policies and fixtures.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use gatepost_config::SourceFile;
use regex::Regex;
use serde_json::{Value, json};

use super::{
    cluster::{ACCESS_ATTRIBUTES, AccessRule, DEFAULT_NAMESPACE, FixtureCluster, complete, is_namespaced, text_at},
    document::{Field, Problems, documents, files_below, is_policy, only_policies, read_text},
    request::{RequestObjects, review},
};

/// `apiVersion` of the documents.
pub(super) const API_VERSION: &str = "gatepost.dev/v1alpha1";
/// Kind of the documents.
pub(super) const KIND: &str = "PolicyTest";

const SUITE_KEYS: [&str; 7] = ["apiVersion", "kind", "metadata", "policies", "cluster", "authorizer", "tests"];
const TEST_KEYS: [&str; 17] = [
    "name",
    "object",
    "oldObject",
    "operation",
    "resource",
    "subResource",
    "objectName",
    "namespace",
    "user",
    "dryRun",
    "options",
    "expect",
    "message",
    "policy",
    "warnings",
    "auditAnnotations",
    "result",
];

/// Consequence of a missing or wrong expectation.
const UNTESTED: &str = "so the test would show nothing";

/// One PolicyTest.
#[derive(Debug)]
pub(super) struct Suite {
    /// File of the document.
    pub(super) file: String,
    /// Name of the suite.
    pub(super) name: String,
    /// Policies and bindings, among them those that are implied.
    pub(super) policies: Vec<SourceFile>,
    /// Remarks about the tested policies.
    pub(super) notes: Vec<String>,
    /// Fixtures in place of a cluster.
    pub(super) cluster: FixtureCluster,
    /// Tests, in order.
    pub(super) tests: Vec<PolicyTest>,
}

/// One test.
#[derive(Debug)]
pub(super) struct PolicyTest {
    /// Name of the test.
    pub(super) name: String,
    /// The request, as an AdmissionReview.
    pub(super) review: Value,
    /// Expected outcome.
    pub(super) expectation: Expectation,
}

/// Expected outcome of a test. What is `None` or empty is not compared.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    /// Whether the request is allowed.
    pub(super) is_allowed: bool,
    /// Part of the message of the denial.
    pub(super) message: Option<String>,
    /// Policy that denies.
    pub(super) policy: Option<String>,
    /// Part of each warning.
    pub(super) warnings: Option<Vec<String>>,
    /// Audit annotations; `None` for one that must be absent.
    pub(super) audit_annotations: BTreeMap<String, Option<String>>,
    /// Object after all mutations.
    pub(super) result: Option<Value>,
    /// Whether a policy is about the request.
    pub(super) is_applied: Option<bool>,
    /// Violations, in place of everything else.
    pub(super) violations: Option<ExpectedViolations>,
}

/// Reads one PolicyTest; `None` if it has problems.
pub(super) fn suite(field: &Field<'_>, path: &Path, file: &str, problems: &Problems) -> Option<Suite> {
    let before = problems.len();
    let folder = path.parent().unwrap_or(Path::new(""));
    field.is_map_of(&SUITE_KEYS);
    let version = field.required("apiVersion", "so its keys could mean anything", &format!("write {API_VERSION}"));
    if let Some(version) = version.filter(|version| version.value != API_VERSION) {
        version.problem("is not known", "so its keys could mean anything", format!("write {API_VERSION}"));
    }
    let name = field.get("metadata").and_then(|metadata| {
        metadata.is_map_of(&["name", "labels", "annotations"]);
        metadata.get("name")?.text()
    });
    let name = name.unwrap_or_else(|| folder.file_name().and_then(|name| name.to_str()).unwrap_or("policies"));
    let written = field.get("policies").map(|policies| (policies.clone(), policies.texts()));
    let (mut policies, is_given) = match &written {
        Some((_, paths)) => {
            let paths = paths.iter().map(|path| folder.join(path));
            let files = paths.flat_map(|path| match path.is_dir() {
                true => files_below(&path, false, problems),
                false => vec![path],
            });
            (policy_files(files, true, problems), true)
        }
        None => (policy_files(files_below(listable(folder), false, problems).into_iter(), false, problems), false),
    };
    if policies.is_empty() && problems.len() == before {
        let place = written.as_ref().map_or(field, |(policies, _)| policies);
        let (what, fix) = match is_given {
            true => ("names no file with a policy", "correct the paths; they begin at the folder of this file"),
            false => ("has no policy in its folder", "put the policy beside it, or write policies: [paths]"),
        };
        place.problem(what, "so there is nothing to test", fix);
    }
    let (implied, notes) = implied_bindings(&policies);
    policies.extend(implied);
    let cluster = FixtureCluster {
        objects: field.get("cluster").map_or_else(Vec::new, |cluster| cluster_objects(&cluster, folder, problems)),
        rules: field.get("authorizer").map_or_else(Vec::new, |rules| access_rules(&rules)),
    };
    let tests = field.required("tests", UNTESTED, "write a list of tests").map_or_else(Vec::new, |tests| tests.items());
    if tests.is_empty() && problems.len() == before {
        field.problem("has no tests", UNTESTED, "write a test: name, object and expect");
    }
    let mut names = BTreeSet::new();
    let tests: Vec<_> = tests.iter().filter_map(|test| policy_test(test, folder, &mut names, problems)).collect();
    let (file, name) = (file.to_owned(), name.to_owned());
    (problems.len() == before).then_some(Suite { file, name, policies, notes, cluster, tests })
}

/// Returns the path by which a folder can be listed.
fn listable(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Returns the policies, bindings and definitions of custom resources in these files. With `are_named`, each file must be readable.
fn policy_files(files: impl Iterator<Item = PathBuf>, are_named: bool, problems: &Problems) -> Vec<SourceFile> {
    let mut found = Vec::new();
    for path in files {
        let name = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(problem) => {
                problems.add(problem);
                continue;
            }
        };
        if !are_named && !["AdmissionPolicy", "CustomResourceDefinition"].iter().any(|kind| text.contains(kind)) {
            continue;
        }
        match only_policies(&name, &text) {
            Ok(Some(text)) => found.push(SourceFile { name, bytes: text.into() }),
            Ok(None) => {}
            Err(problem) => problems.add(problem),
        }
    }
    found
}

/// Returns bindings for the policies that have none, and a remark about each. Validating ones deny. Those with
/// params get all of the cluster's.
fn implied_bindings(files: &[SourceFile]) -> (Option<SourceFile>, Vec<String>) {
    let text = |file: &SourceFile| String::from_utf8_lossy(&file.bytes).into_owned();
    let all = files.iter().flat_map(|file| documents(&file.name, &text(file)).unwrap_or_default());
    let all = all.flat_map(|document| match document.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![document],
    });
    let (bindings, policies): (Vec<Value>, Vec<Value>) =
        all.filter(is_policy).partition(|document| text_at(document, "/kind").ends_with("Binding"));
    let is_unbound = |policy: &&Value| {
        let kind = format!("{}Binding", text_at(policy, "/kind"));
        let name = text_at(policy, "/metadata/name");
        let binds = |binding: &Value| binding["kind"] == *kind && text_at(binding, "/spec/policyName") == name;
        !name.is_empty() && !bindings.iter().any(binds)
    };
    let (mut text, mut notes) = (String::new(), Vec::new());
    for policy in policies.iter().filter(is_unbound) {
        let (kind, name) = (text_at(policy, "/kind"), text_at(policy, "/metadata/name"));
        let mut spec = json!({"policyName": name});
        if kind.starts_with("Validating") {
            spec["validationActions"] = json!(["Deny"]);
        }
        if !policy["spec"]["paramKind"].is_null() {
            spec["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
        }
        let binding = json!({
            "apiVersion": policy["apiVersion"],
            "kind": format!("{kind}Binding"),
            "metadata": {"name": name},
            "spec": spec,
        });
        text.push_str(&format!("{binding}\n"));
        notes.push(format!("{name} has no binding, and is tested with one of its own"));
    }
    let file =
        (!text.is_empty()).then(|| SourceFile { name: "implied-bindings.json".to_owned(), bytes: Bytes::from(text) });
    (file, notes)
}

/// Returns the objects of the cluster, from files and as they are written.
fn cluster_objects(field: &Field<'_>, folder: &Path, problems: &Problems) -> Vec<Value> {
    let mut objects = Vec::new();
    for item in field.items() {
        let found = match item.value.as_str() {
            Some(path) => fixtures(folder, path, problems),
            None => vec![item.value.clone()],
        };
        for mut object in found {
            let (api_version, kind) = (text_at(&object, "/apiVersion"), text_at(&object, "/kind"));
            if api_version.is_empty() || kind.is_empty() || text_at(&object, "/metadata/name").is_empty() {
                let why = "so nothing could find it";
                item.problem("has an object without apiVersion, kind or metadata.name", why, "write all three");
                continue;
            }
            if is_namespaced(api_version, kind) == Some(true) {
                complete(&mut object, DEFAULT_NAMESPACE);
            }
            objects.push(object);
        }
    }
    objects
}

/// Returns the documents of a fixture file.
pub(super) fn fixtures(folder: &Path, path: &str, problems: &Problems) -> Vec<Value> {
    let path = folder.join(path);
    let read = read_text(&path).and_then(|text| documents(&path.display().to_string(), &text));
    read.unwrap_or_else(|problem| {
        problems.add(problem);
        Vec::new()
    })
}

fn access_rules(field: &Field<'_>) -> Vec<AccessRule> {
    let keys: Vec<&str> = ACCESS_ATTRIBUTES.into_iter().chain(["allow", "reason"]).collect();
    let rule = |item: &Field<'_>| {
        if !item.is_map_of(&keys) {
            return None;
        }
        let attribute = |key: &'static str| Some((key, item.get(key)?.text()?.to_owned()));
        let allow =
            item.required("allow", "so the rule decides nothing", "write allow: true or allow: false")?.bool()?;
        let reason = item.get("reason").and_then(|reason| reason.text()).unwrap_or_default().to_owned();
        Some(AccessRule { attributes: ACCESS_ATTRIBUTES.into_iter().filter_map(attribute).collect(), allow, reason })
    };
    field.items().iter().filter_map(rule).collect()
}

/// Returns an object that is written in a test, or in a file of its own.
fn object(field: &Field<'_>, folder: &Path, problems: &Problems) -> Option<Value> {
    let Some(path) = field.value.as_str() else {
        if !field.value.is_object() {
            field.problem(
                "is neither a file nor an object",
                "which it has to be",
                "write a path, or the object itself",
            );
            return None;
        }
        return Some(field.value.clone());
    };
    let before = problems.len();
    match <[Value; 1]>::try_from(fixtures(folder, path, problems)) {
        Ok([object]) => Some(object),
        Err(several) => {
            if problems.len() == before {
                let what = format!("has {} objects", several.len());
                field.problem(what, "and a request has one", "write each object into a file of its own");
            }
            None
        }
    }
}

/// Reads one test; `None` if it has problems.
fn policy_test(
    test: &Field<'_>,
    folder: &Path,
    names: &mut BTreeSet<String>,
    problems: &Problems,
) -> Option<PolicyTest> {
    let before = problems.len();
    if !test.is_map_of(&TEST_KEYS) {
        return None;
    }
    let name = test.required("name", "and reports speak of a test by its name", "name the behaviour");
    let name = name.and_then(|name| {
        let text = name.text()?.to_owned();
        if !names.insert(text.clone()) {
            name.problem("is used twice", "and reports speak of a test by its name", "rename one of them");
        }
        Some(text)
    });
    let read = |key: &str| test.get(key).and_then(|field| object(&field, folder, problems));
    let objects = RequestObjects { object: read("object"), old_object: read("oldObject"), options: read("options") };
    let mut result = read("result");
    // A missing file would be taken for a missing key.
    let review = if problems.len() == before { review(test, objects) } else { None };
    let expectation = expectation(test);
    let mut expectation = expectation?;
    let review = review?;
    if let Some(result) = &mut result {
        complete(result, text_at(&review, "/request/object/metadata/namespace"));
    }
    expectation.result = result;
    (problems.len() == before).then_some(PolicyTest { name: name?, review, expectation })
}

fn expectation(test: &Field<'_>) -> Option<Expectation> {
    let expect = test.required("expect", UNTESTED, "write Allow or Deny")?;
    let is_allowed = match expect.text()? {
        "Allow" => true,
        "Deny" => false,
        _ => {
            expect.problem("is not an outcome", UNTESTED, "write Allow or Deny");
            return None;
        }
    };
    let excluded = if is_allowed { ["message", "policy"].as_slice() } else { ["result"].as_slice() };
    for field in excluded.iter().filter_map(|key| test.get(key)) {
        let fix = format!("remove it, or write expect: {}", if is_allowed { "Deny" } else { "Allow" });
        field.problem(format!("has no meaning with expect: {}", expect.value), "so it would never be compared", fix);
    }
    let text = |key: &str| test.get(key).and_then(|field| field.text()).map(str::to_owned);
    let annotations = test.get("auditAnnotations").map_or_else(Vec::new, |annotations| annotations.pairs());
    let annotation = |(key, value): (String, Field<'_>)| match value.value {
        Value::Null => Some((key, None)),
        _ => Some((key, Some(value.text()?.to_owned()))),
    };
    Some(Expectation {
        is_allowed,
        message: text("message"),
        policy: text("policy"),
        warnings: test.get("warnings").map(|warnings| warnings.texts()),
        audit_annotations: annotations.into_iter().filter_map(annotation).collect(),
        result: None,
        is_applied: None,
        violations: None,
    })
}

/// Violations that a case of `gator verify` expects. Source: `pkg/gator/verify/assertion.go` of
/// `github.com/open-policy-agent/gatekeeper/v3`.
#[derive(Debug)]
pub(super) struct ExpectedViolations {
    pub(super) assertions: Vec<Assertion>,
    /// Reviews that are decided, each with the prefix of its messages.
    pub(super) reviews: Vec<(String, Value)>,
}

/// How many violations have a message.
#[derive(Debug)]
pub(super) struct Assertion {
    /// Their number; `None` for at least one.
    pub(super) count: Option<u64>,
    /// Expected message; `None` for any.
    pub(super) message: Option<Regex>,
}

impl ExpectedViolations {
    /// Returns what differs from these messages of violations.
    pub(super) fn differences(&self, messages: &[String]) -> Vec<String> {
        let difference = |Assertion { count, message }: &Assertion| {
            let fits = |text: &&String| message.as_ref().is_none_or(|message| message.is_match(text));
            let got = messages.iter().filter(fits).count() as u64;
            if count.map_or(got > 0, |count| got == count) {
                return None;
            }
            let wanted = count.map_or_else(|| "at least one".to_owned(), |count| count.to_string());
            let of = message.as_ref().map_or_else(String::new, |message| format!(" of {:?}", message.as_str()));
            Some(format!("violations{of}: expected {wanted}, got {got}; all messages: {messages:?}"))
        };
        self.assertions.iter().filter_map(difference).collect()
    }
}

//! Suites as `gator verify` reads them, of templates in CEL. Source: `pkg/gator/verify`, `pkg/target` and
//! `pkg/expansion` of `github.com/open-policy-agent/gatekeeper/v3`.
//!
//! A test is about one constraint, so each is a suite of its own. Tests of templates in Rego are problems.

use std::{collections::BTreeSet, path::Path};

use gatepost_config::SourceFile;
use regex::Regex;
use serde_json::{Value, json};

use super::{
    cluster::{FixtureCluster, group_version, text_at},
    document::{Field, Problems},
    gatekeeper::{self, Purpose, TranslatedConstraint, is_constraint, is_template},
    request::{RequestObjects, review},
    suite::{Assertion, Expectation, ExpectedViolations, PolicyTest, Suite, fixtures},
};

const SUITE_KEYS: [&str; 5] = ["apiVersion", "kind", "metadata", "tests", "skip"];
const TEST_KEYS: [&str; 7] = ["name", "template", "constraint", "expansion", "cases", "invalid", "skip"];
const CASE_KEYS: [&str; 5] = ["name", "object", "inventory", "assertions", "skip"];

/// Maximum number of objects that one object is expanded into.
const MAX_RESULTANTS: usize = 64;

/// Consequence of a test that is not run.
const UNTESTED: &str = "so it tests nothing here";

/// Returns true if a document is of `gator verify`.
pub(super) fn is_gator_suite(document: &Value) -> bool {
    text_at(document, "/apiVersion").starts_with("test.gatekeeper.sh/")
}

/// Reads a suite: one of ours for each of its tests.
pub(super) fn suites(field: &Field<'_>, path: &Path, file: &str, problems: &Problems) -> Vec<Suite> {
    if field.value["kind"] != "Suite" || !field.is_map_of(&SUITE_KEYS) {
        field.problem("is not a Suite of gator verify", UNTESTED, "write kind: Suite with tests");
        return Vec::new();
    }
    let reader = SuiteReader { folder: path.parent().unwrap_or(Path::new("")), file, problems };
    let tests = field.required("tests", UNTESTED, "write a list of tests").map_or_else(Vec::new, |tests| tests.items());
    let (mut suites, mut skipped) = (Vec::new(), Vec::new());
    for (index, test) in tests.iter().enumerate() {
        if !test.is_map_of(&TEST_KEYS) {
            continue;
        }
        let name = match text_at(test.value, "/name") {
            "" => format!("test {}", index + 1),
            name => name.to_owned(),
        };
        if is_skipped(field) || is_skipped(test) {
            skipped.push(format!("{name} is skipped, as the suite says"));
            continue;
        }
        suites.extend(reader.suite(test, name));
    }
    match suites.first_mut() {
        Some(first) => first.notes.splice(0..0, skipped).for_each(drop),
        None if problems.len() == 0 && !skipped.is_empty() => suites.push(reader.empty(field, skipped)),
        None => {}
    }
    suites
}

fn is_skipped(field: &Field<'_>) -> bool {
    field.get("skip").and_then(|skip| skip.bool()) == Some(true)
}

/// Inputs for the tests of a suite.
struct SuiteReader<'a> {
    folder: &'a Path,
    file: &'a str,
    problems: &'a Problems,
}

impl SuiteReader<'_> {
    /// Returns a suite without tests, for its notes.
    fn empty(&self, field: &Field<'_>, notes: Vec<String>) -> Suite {
        let (file, name) = (self.file.to_owned(), text_at(field.value, "/metadata/name").to_owned());
        Suite { file, name, policies: Vec::new(), notes, cluster: FixtureCluster::default(), tests: Vec::new() }
    }

    /// Returns the first document of a file that is one of these; reports a file without one.
    fn document(&self, test: &Field<'_>, key: &str, is_wanted: fn(&Value) -> bool) -> Option<(String, Value)> {
        let path = test.required(key, UNTESTED, "write the path of its file")?;
        let before = self.problems.len();
        let shown = self.folder.join(path.text()?).display().to_string();
        let found = fixtures(self.folder, path.text()?, self.problems).into_iter().find(is_wanted);
        if found.is_none() && self.problems.len() == before {
            path.problem(format!("names no file with a {key} of Gatekeeper"), UNTESTED, "correct the path");
        }
        Some((shown, found?))
    }

    fn suite(&self, test: &Field<'_>, name: String) -> Option<Suite> {
        let before = self.problems.len();
        if let Some(invalid) = test.get("invalid").filter(|invalid| invalid.value == true) {
            let fix = "run it with gator: Gatepost does not check constraints by their schema";
            invalid.problem("expects that the constraint does not fit its schema", UNTESTED, fix);
            return None;
        }
        let (file, document) = self.document(test, "template", is_template)?;
        let Some(template) = gatekeeper::template(&Field::document(&document, &file, None, self.problems)) else {
            let fix = "run it with gator, or correct the template";
            test.problem(format!("{name:?} has a template that has a problem"), "so this test is not run", fix);
            return None;
        };
        let (file, document) = self.document(test, "constraint", is_constraint)?;
        let constraint = Field::document(&document, &file, None, self.problems);
        let translation = gatekeeper::translation(&template, &constraint, Purpose::Test)?;
        let expansions = test.get("expansion").and_then(|path| path.text());
        let expansions = expansions.map_or_else(Vec::new, |path| fixtures(self.folder, path, self.problems));
        let (mut objects, mut notes, mut names, mut tests) = (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        for (index, case) in test.get("cases").map_or_else(Vec::new, |cases| cases.items()).iter().enumerate() {
            if !case.is_map_of(&CASE_KEYS) {
                continue;
            }
            let mut case_name = match text_at(case.value, "/name") {
                "" => format!("case {}", index + 1),
                name => name.to_owned(),
            };
            if !names.insert(case_name.clone()) {
                case_name = format!("{case_name} ({})", index + 1);
            }
            if is_skipped(case) {
                notes.push(format!("{case_name} is skipped, as the suite says"));
                continue;
            }
            let inventory = case.get("inventory").map_or_else(Vec::new, |paths| paths.texts());
            objects.extend(inventory.iter().flat_map(|path| fixtures(self.folder, path, self.problems)));
            tests.extend(self.case(case, case_name, &expansions, &translation));
        }
        let text: String = translation.documents.iter().map(|document| format!("{document}\n")).collect();
        (self.problems.len() == before).then(|| Suite {
            file: self.file.to_owned(),
            name,
            policies: vec![SourceFile { name: "constraint.json".to_owned(), bytes: text.into() }],
            notes,
            cluster: FixtureCluster { objects, rules: Vec::new() },
            tests,
        })
    }

    fn case(
        &self,
        case: &Field<'_>,
        name: String,
        expansions: &[Value],
        translation: &TranslatedConstraint,
    ) -> Option<PolicyTest> {
        let before = self.problems.len();
        let path = case.required("object", UNTESTED, "write the path of its file")?;
        let Ok([object]) = <[Value; 1]>::try_from(fixtures(self.folder, path.text()?, self.problems)) else {
            if self.problems.len() == before {
                path.problem("has not one object", UNTESTED, "write one object into the file");
            }
            return None;
        };
        let assertions = case
            .required("assertions", UNTESTED, "write - violations: yes, or no")
            .map_or_else(Vec::new, |all| all.items());
        if assertions.is_empty() && self.problems.len() == before {
            case.problem("has no assertions", "which gator refuses", "write - violations: yes, or no");
        }
        let assertions: Vec<_> = assertions.iter().filter_map(assertion).collect();
        let is_review =
            object["kind"] == "AdmissionReview" && text_at(&object, "/apiVersion").starts_with("admission.k8s.io/");
        let main = match is_review {
            true => self.written_review(&path, &object)?,
            false => self.plain_review(object.clone())?,
        };
        let mut reviews = Vec::new();
        if translation.matches_original {
            reviews.push((String::new(), main.clone()));
        }
        if !is_review && translation.matches_generated {
            for (template, resultant) in expanded(&object, expansions, &path) {
                reviews.push((format!("[Implied by {template}] "), self.plain_review(resultant)?));
            }
        }
        if !translation.is_enforced {
            reviews.clear();
        }
        (self.problems.len() == before).then(|| PolicyTest {
            name,
            review: main,
            expectation: Expectation {
                violations: Some(ExpectedViolations { assertions, reviews }),
                ..Expectation::default()
            },
        })
    }

    /// Returns the creation of an object. As in gator, an object that names no namespace is in none.
    fn plain_review(&self, object: Value) -> Option<Value> {
        let plain = json!({});
        let field = Field::document(&plain, self.file, None, self.problems);
        let mut document =
            review(&field, RequestObjects { object: Some(object.clone()), ..RequestObjects::default() })?;
        let request = &mut document["request"];
        let is_namespace = request["resource"]["resource"] == "namespaces";
        if text_at(&object, "/metadata/namespace").is_empty() && !is_namespace && request["namespace"] != "" {
            // No apiserver sends that: resources that are known to be in namespaces need one.
            let resource = format!("{}-without-namespace", text_at(request, "/resource/resource"));
            for key in ["resource", "requestResource"] {
                request[key]["resource"] = resource.as_str().into();
            }
            request["namespace"] = "".into();
            request["object"] = object;
        }
        Some(document)
    }

    /// Returns a review that a test has written, with the missing fields added.
    fn written_review(&self, path: &Field<'_>, document: &Value) -> Option<Value> {
        let written = &document["request"];
        let object = |key: &str| Some(written[key].clone()).filter(|object| !object.is_null());
        let (new, old) = (object("object"), object("oldObject"));
        let is_delete = written["operation"] == "DELETE";
        let Some(main) = (if is_delete { old.clone() } else { new.clone().or_else(|| old.clone()) }) else {
            let what = "has no request with an object";
            path.problem(what, "and gator reviews nothing else", "write request.object; of a DELETE request.oldObject");
            return None;
        };
        let mut review = self.plain_review(main)?;
        let request = &mut review["request"];
        let is_renamed = request["namespace"] == "" && text_at(written, "/namespace").is_empty();
        for (key, value) in written.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            if !(is_renamed && key.to_ascii_lowercase().ends_with("resource") && value.is_object()) {
                request[key] = value.clone();
            }
        }
        request["object"] = new.filter(|_| !is_delete).into();
        request["oldObject"] = old.into();
        Some(review)
    }
}

fn assertion(field: &Field<'_>) -> Option<Assertion> {
    if !field.is_map_of(&["violations", "message"]) {
        return None;
    }
    let count = match field.get("violations") {
        None => None,
        Some(violations) => match (violations.value.as_str(), violations.value.as_u64()) {
            (Some("yes"), _) => None,
            (Some("no"), _) => Some(0),
            (_, Some(count)) => Some(count),
            _ => {
                violations.problem("is not a number of violations", UNTESTED, "write yes, no, or a number");
                return None;
            }
        },
    };
    let message = match field.get("message") {
        None => None,
        Some(message) => match Regex::new(message.text()?) {
            Ok(regex) => Some(regex),
            Err(error) => {
                message.problem(format!("is not a regular expression: {error}"), UNTESTED, "correct it");
                return None;
            }
        },
    };
    Some(Assertion { count, message })
}

/// Returns the objects that ExpansionTemplates make of an object, and of those, each with the name of its template.
fn expanded(object: &Value, templates: &[Value], path: &Field<'_>) -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> = Vec::new();
    let (mut parent, mut next) = (Some(object.clone()), 0);
    while let Some(own) = parent {
        for template in templates.iter().filter(|template| applies(template, &own)) {
            let name = text_at(template, "/metadata/name").to_owned();
            let source = text_at(template, "/spec/templateSource");
            let Some(Value::Object(inner)) = own.pointer(&format!("/{}", source.replace('.', "/"))) else {
                let what = format!("has no {source}, which the ExpansionTemplate {name} expands");
                path.problem(what, UNTESTED, "write it, or correct the template");
                continue;
            };
            if all.len() == MAX_RESULTANTS {
                let what = format!("is expanded into more than {MAX_RESULTANTS} objects");
                path.problem(what, UNTESTED, "let no ExpansionTemplate apply to what it generates");
                return Vec::new();
            }
            all.push((name, resultant(inner.clone().into(), &own, &template["spec"]["generatedGVK"])));
        }
        parent = all.get(next).map(|(_, own)| own.clone());
        next += 1;
    }
    all
}

/// Returns true if an ExpansionTemplate applies to an object.
fn applies(template: &Value, object: &Value) -> bool {
    let (group, version) = group_version(text_at(object, "/apiVersion"));
    let names = |list: &Value, name: &str| list.as_array().into_iter().flatten().any(|one| *one == name);
    let all = template["spec"]["applyTo"].as_array();
    template["kind"] == "ExpansionTemplate"
        && all.into_iter().flatten().any(|to| {
            names(&to["groups"], group)
                && names(&to["versions"], version)
                && names(&to["kinds"], text_at(object, "/kind"))
        })
}

fn resultant(mut object: Value, parent: &Value, gvk: &Value) -> Value {
    let (group, version, kind) = (text_at(gvk, "/group"), text_at(gvk, "/version"), text_at(gvk, "/kind"));
    object["apiVersion"] = if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
    object["kind"] = kind.into();
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let namespace = text_at(parent, "/metadata/namespace");
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    let name = text_at(parent, "/metadata/name");
    object["metadata"]["name"] = format!("{name}-{kind}").to_ascii_lowercase().into();
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": name}]);
    object
}

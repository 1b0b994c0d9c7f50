//! `policy test` and `policy import` of Gatekeeper's templates in CEL, their constraints, and suites of `gator verify`.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{fs, path::Path};

use crate::policies_are_tested_without_a_server::{folder, gatepost};

/// A suite that `gator verify` passes, and its files.
const GATOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/gator");

/// Copies of those files, with this suite in place of theirs.
fn gator_folder(suite: &str) -> tempfile::TempDir {
    let folder = folder(&[("suite.yaml", suite)]);
    for part in ["constraints", "objects", "."] {
        fs::create_dir_all(folder.path().join(part)).expect("made");
        for entry in fs::read_dir(Path::new(GATOR).join(part)).expect("read") {
            let entry = entry.expect("an entry");
            let is_copied = entry.file_type().expect("a type").is_file() && entry.file_name() != "suite.yaml";
            let to = folder.path().join(part).join(entry.file_name());
            is_copied.then(|| fs::copy(entry.path(), to).expect("copied"));
        }
    }
    folder
}

#[test]
fn gatekeeper_suites_in_cel_pass_as_they_do_with_gator() {
    let (code, stdout, stderr) = gatepost(Path::new(GATOR), &["policy", "test", "."]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.ends_with("131 passed, 0 failed\n"), "{stdout}");
    assert!(stdout.contains("note  skipped is skipped, as the suite says"), "{stdout}");
}

#[test]
fn gatekeeper_assertions_fail_where_violations_differ() {
    for (assertion, says) in [
        ("violations: no", "violations: expected 0, got 1; all messages: [\"mark must be yes \\\"it is\\\"\"]"),
        ("violations: 2", "expected 2, got 1"),
        ("message: other", "violations of \"other\": expected at least one, got 0"),
    ] {
        let suite = format!(
            "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntests:\n- {{name: t, template: marked.yaml, \
             constraint: constraints/all.yaml, cases: [{{object: objects/pod.yaml, assertions: [{{{assertion}}}]}}]}}\n"
        );
        let (code, stdout, _) = gatepost(gator_folder(&suite).path(), &["policy", "test", "."]);
        assert!(code == Some(1) && stdout.contains(says) && stdout.contains("0 passed, 1 failed"), "{stdout}");
    }
}

#[test]
fn unsupported_gatekeeper_features_are_problems() {
    const PASSES: &str = "{name: passes, template: marked.yaml, constraint: constraints/all.yaml, cases: [{object: \
                          objects/pod.yaml, assertions: [{violations: yes}]}]}";
    for (test, says) in [
        (
            "template: rego.yaml, constraint: constraints/all.yaml, cases: []",
            "tests[1]: \"test 2\" has a template that has a problem, so this test is not run",
        ),
        ("template: marked.yaml, constraint: constraints/owner.yaml", "kind: is not Marked, the kind of its template"),
        ("template: none.yaml, constraint: constraints/all.yaml", "none.yaml: cannot be read"),
        ("template: marked.yaml, constraint: constraints/all.yaml, invalid: true", "does not fit its schema"),
        ("template: marked.yaml", "tests[1].constraint: is missing"),
        ("template: marked.yaml, constraint: constraints/all.yaml, case: []", "tests[1].case: is not a known key"),
        (
            "template: marked.yaml, constraint: constraints/all.yaml, cases: [{object: objects/pod.yaml}]",
            "assertions: is missing",
        ),
        (
            "template: marked.yaml, constraint: constraints/all.yaml, cases: [{object: objects/pod.yaml, assertions: \
             [{message: '('}]}]",
            "is not a regular expression",
        ),
    ] {
        let suite = format!("apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntests:\n- {PASSES}\n- {{{test}}}\n");
        let (code, stdout, _) = gatepost(gator_folder(&suite).path(), &["policy", "test", "."]);
        assert!(code == Some(1) && stdout.contains(says) && stdout.contains("1 passed, 0 failed"), "{says}: {stdout}");
    }
}

#[test]
fn gatekeeper_constraints_become_served_policies() {
    let paths =
        ["all", "kinds", "selected", "elsewhere", "owner", "dryrun"].map(|name| format!("constraints/{name}.yaml"));
    let import = ["policy", "import", "marked.yaml", "required-labels.yaml"];
    let arguments: Vec<&str> = import.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let (code, stdout, stderr) = gatepost(Path::new(GATOR), &arguments);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("# Marked elsewhere of constraints/elsewhere.yaml is left out: none"), "{stdout}");
    let folder = folder(&[("served.yaml", &stdout)]);
    let (code, checked, stderr) = gatepost(folder.path(), &["check", "served.yaml"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{checked}");
    for name in ["marked-all", "marked-kinds", "marked-selected", "marked-dryrun", "k8srequiredlabels-owner"] {
        assert!(checked.contains(&format!("  gatekeeper-{name}, in process: ")), "{checked}");
    }
    // Built-in kinds become rules, and the others a condition.
    assert!(stdout.contains("- namespaces\n") && stdout.contains("- pods\n"), "{stdout}");
    assert!(stdout.contains("request.kind.group in [\"example.com\"]"), "{stdout}");
    // As Gatekeeper's webhook is called for them.
    assert!(stdout.contains("- pods/ephemeralcontainers\n") && stdout.contains("- deployments/scale\n"), "{stdout}");
    for (arguments, says) in [
        (["marked.yaml", "rego.yaml"].as_slice(), "rego.yaml: spec.targets[0]: has no code of the engine"),
        (&["marked.yaml"], "marked.yaml: has no constraint among these files"),
        (&["constraints/all.yaml"], "constraints/all.yaml: has no template among these files"),
        (&["marked.yaml", "constraints/generated.yaml"], "matches generated objects only"),
    ] {
        let (code, _, stderr) = gatepost(Path::new(GATOR), &[&["policy", "import"], arguments].concat());
        assert!(code == Some(1) && stderr.contains(says), "{stderr}");
    }
}

/// A policy for Pods only has the subresources whose requests are of Pods, too.
#[test]
fn gatekeeper_constraints_of_pods_see_ephemeral_containers() {
    let template = fs::read_to_string(Path::new(GATOR).join("marked.yaml")).expect("read");
    let constraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Marked\nmetadata: {name: pods}\n\
                      spec: {match: {kinds: [{apiGroups: [''], kinds: [Pod]}]}, parameters: {limits: []}}\n";
    let folder = folder(&[("t.yaml", &template), ("c.yaml", constraint)]);
    let (code, stdout, stderr) = gatepost(folder.path(), &["policy", "import", "t.yaml", "c.yaml"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let rules = stdout.split("resources:\n").nth(1).expect("rules");
    for resource in ["- pods\n", "- pods/ephemeralcontainers\n", "- pods/resize\n"] {
        assert!(rules.contains(resource), "{rules}");
    }
    assert!(!rules.contains("pods/exec"), "{rules}");
}

#[test]
fn hostile_documents_of_gatekeeper_are_problems() {
    let template = fs::read_to_string(Path::new(GATOR).join("marked.yaml")).expect("read");
    let constraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Marked\nmetadata: {name: \"x\\n---\\nkind: Secret\"}\n\
                      spec: {enforcementAction: scoped, scopedEnforcementActions: [{action: deny, enforcementPoints: \
                      [{name: audit.gatekeeper.sh}]}], parameters: {limits: []}}\n";
    let injecting = folder(&[("t.yaml", &template), ("c.yaml", constraint)]);
    let (_, stdout, _) = gatepost(injecting.path(), &["policy", "import", "t.yaml", "c.yaml"]);
    assert!(!stdout.lines().any(|line| line == "---" || line == "kind: Secret"), "{stdout}");

    // Each of nine levels has ten of the next.
    let bomb = (0..9).fold("{type: string}".to_owned(), |inner, _| {
        let list = format!("[{}]", ["{}"; 10].join(", "));
        format!("{{type: object, properties: {{a: {{type: array, default: {list}, items: {inner}}}}}}}")
    });
    let bombed = template.replacen(
        "bound: {type: integer, default: 3}",
        &format!("bound: {{type: integer, default: 3}}\n            bomb: {bomb}"),
        1,
    );
    let constraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Marked\nmetadata: {name: b}\n\
                      spec: {parameters: {bomb: {}, limits: []}}\n";
    let folder = folder(&[("t.yaml", &bombed), ("c.yaml", constraint)]);
    let (code, stdout, stderr) = gatepost(folder.path(), &["policy", "import", "t.yaml", "c.yaml"]);
    let says = "c.yaml: has parameters of more than 1 MiB, with their defaults";
    assert!(code == Some(1) && stderr.contains(says), "{stdout}{stderr}");
}

#[test]
fn problems_of_gatekeeper_templates_have_their_place_there() {
    let template = fs::read_to_string(Path::new(GATOR).join("marked.yaml")).expect("read");
    for (from, to, says) in [
        ("variables.labels['mark'] ==", "absent ==", "spec.targets[0].code[0].source.validations[0].expression: "),
        ("'x'\"", "absent\"", "spec.targets[0].code[0].source.variables[1].expression: "),
        ("'exempt' in object", "'exempt' in params", "spec.targets[0].code[0].source.matchCondition[0].expression: "),
        ("matchCondition:", "matchConditions:", "source.matchConditions: is not a known key"),
        ("name: wanted", "name: params", "source.variables[1].name: is a name that Gatekeeper keeps for itself"),
    ] {
        let changed = template.replacen(from, to, 1);
        assert_ne!(changed, template);
        let constraint = fs::read_to_string(Path::new(GATOR).join("constraints/all.yaml")).expect("read");
        let folder = folder(&[("t.yaml", &changed), ("c.yaml", &constraint)]);
        let (code, _, stderr) = gatepost(folder.path(), &["policy", "import", "t.yaml", "c.yaml"]);
        assert!(code == Some(1) && stderr.contains(says), "{says}: {stderr}");
    }
}

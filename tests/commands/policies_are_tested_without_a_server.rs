//! `policy new`, `policy test` and `review --config`: what they print, and how they end.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/policies/no-latest-tag");

/// Runs the binary in a folder. Returns its exit code, stdout and stderr.
pub(crate) fn gatepost(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env_remove("GATEPOST_LOG");
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

/// Runs `policy test .` on these files.
fn tested(files: &[(&str, &str)], more: &[&str]) -> (Option<i32>, String) {
    let folder = folder(files);
    let (code, stdout, stderr) = gatepost(folder.path(), &[&["policy", "test", "."], more].concat());
    assert_eq!(stderr, "");
    (code, stdout)
}

/// A validating policy about every kind.
fn policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: \
         {name}}}\nspec:\n  matchConstraints: {{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: \
         ['*'], resources: ['*']}}]}}\n{spec}"
    )
}

/// A PolicyTest with these keys.
fn suite(keys: &str) -> String {
    format!("apiVersion: gatepost.dev/v1alpha1\nkind: PolicyTest\nmetadata: {{name: s}}\n{keys}")
}

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {team: a}}, spec: {n: 6}}";

#[test]
fn readme_leads_to_a_denial_without_a_server() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().expect("folder"));
    let readme = fs::read_to_string(root.join("README.md")).expect("read");
    let begin = readme.find("$ gatepost policy new ").expect("the first command");
    let commands = readme[begin..].lines().take_while(|line| !line.starts_with("```"));
    let mut codes = Vec::new();
    for command in
        commands.filter_map(|line| line.strip_prefix("$ gatepost ")).filter(|line| !line.starts_with("serve"))
    {
        let at_root = |word: &str| match word.starts_with("examples/") {
            true => root.join(word).display().to_string(),
            false => word.to_owned(),
        };
        let words: Vec<String> = command.split(' ').map(at_root).collect();
        let (code, stdout, _) = gatepost(folder.path(), &words.iter().map(String::as_str).collect::<Vec<_>>());
        codes.push((code, stdout));
    }
    let denied = codes.pop().expect("a review");
    assert!(codes.len() == 2 && codes.iter().all(|(code, _)| *code == Some(0)), "{codes:?}");
    assert!(denied.0 == Some(5) && denied.1.contains("DENIED"), "{denied:?}");
}

#[test]
fn policy_that_decides_as_expected_passes() {
    let (code, stdout, stderr) = gatepost(Path::new(EXAMPLE), &["policy", "test", "."]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("  ok    latest is denied\n") && stdout.ends_with("7 passed, 0 failed\n"), "{stdout}");
    assert!(!stdout.contains("cost"), "{stdout}");
    let (code, stdout, _) = gatepost(Path::new(EXAMPLE), &["policy", "test", "--costs", "."]);
    let costs: Vec<u64> = stdout
        .lines()
        .filter_map(|line| line.trim().strip_prefix("cost  no-latest-tag: ")?.strip_suffix(" of 10000000"))
        .map(|cost| cost.parse().expect("a number"))
        .collect();
    assert!(code == Some(0) && costs.len() == 6 && costs.iter().all(|cost| *cost > 0), "{stdout}");
    let excluded = "  ok    Pods of kube-system are left alone\n        no-latest-tag: its selectors, or its bindings, \
                    exclude this request\n";
    assert!(stdout.contains(excluded), "{stdout}");
}

#[test]
fn new_policy_passes_its_test_and_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("folder");
    let (code, stdout, stderr) = gatepost(folder.path(), &["policy", "new", "--list"]);
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.contains("no-latest-tag") && stdout.contains("  Containers must name a fixed version"), "{stdout}");
    for template in stdout.lines().filter_map(|line| line.split(' ').next()) {
        let new = ["policy", "new", "my-own", "--from", template, template];
        let (code, stdout, stderr) = gatepost(folder.path(), &new);
        assert_eq!((code, &*stderr), (Some(0), ""), "{template}: {stdout}");
        let written = fs::read_to_string(folder.path().join(template).join("policy.yaml")).expect("written");
        assert!(written.contains("name: my-own") && !written.contains(&format!("name: {template}\n")), "{written}");
        let (code, stdout, _) = gatepost(folder.path(), &["policy", "test", template]);
        assert_eq!(code, Some(0), "{template}: {stdout}");

        fs::write(folder.path().join(template).join("policy.yaml"), "mine").expect("written");
        let (code, stdout, stderr) = gatepost(folder.path(), &new);
        assert_eq!((code, &*stdout), (Some(1), ""));
        assert!(stderr.contains(" exists, and is not overwritten"), "{stderr}");
        let kept = fs::read_to_string(folder.path().join(template).join("policy.yaml")).expect("kept");
        assert_eq!(kept, "mine");
    }
    let (code, _, stderr) = gatepost(folder.path(), &["policy", "new", "A_b", "--from", "no-latest-tag"]);
    assert!(code == Some(1) && stderr.contains("\"A_b\" is not a name"), "{stderr}");
    for misused in [&["policy", "new"][..], &["policy", "new", "a", "--from", "nothing"], &["policy", "test"]] {
        assert_eq!(gatepost(folder.path(), misused).0, Some(2), "{misused:?}");
    }
    assert!(!folder.path().join("A_b").exists() && !folder.path().join("a").exists());
}

#[test]
fn failed_test_shows_the_parts_that_decided_with_their_values() {
    let policy = policy("few", "  validations: [{expression: 'object.spec.n <= 5 && true', message: too many}]\n");
    let tests = format!(
        "tests:\n- {{name: few, object: {POD}, expect: Allow}}\n- {{name: other, object: {POD}, expect: Deny, \
         policy: x, message: too few}}\n- {{name: fine, object: {POD}, expect: Deny, policy: few, message: too many}}\n"
    );
    let (code, stdout) = tested(&[("p.yaml", &policy), ("t.yaml", &suite(&tests))], &[]);
    assert_eq!(code, Some(1), "{stdout}");
    for line in [
        "  note  few has no binding, and is tested with one of its own",
        "  FAIL  few",
        "        expected Allow, got Deny: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'few' with binding \
         'few' denied request: too many",
        "          validations[0].expression: object.spec.n <= 5 && true",
        "            object.spec.n <= 5 = false",
        "            object.spec.n = 6",
        "  FAIL  other",
        "        policy: expected x, got few",
        "  ok    fine",
        "1 passed, 2 failed",
    ] {
        assert!(stdout.lines().any(|own| own == line), "{line:?} is missing:\n{stdout}");
    }
    assert!(stdout.contains("        message: expected a part \"too few\", got"), "{stdout}");
}

#[test]
fn secrets_are_not_shown() {
    let policy = policy("p", "  validations: [{expression: \"object.stringData.key == 'a'\"}]\n");
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {key: hunter2}}";
    let tests = format!("tests: [{{name: t, object: {secret}, expect: Allow}}]\n");
    let (code, stdout) = tested(&[("a.yaml", &format!("{policy}---\n{}", suite(&tests)))], &[]);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("values are not shown") && !stdout.contains("hunter2"), "{stdout}");
}

#[test]
fn unexpected_allowance_is_explained() {
    let rules = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: \
                 p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: \
                 [CREATE], resources: [deployments]}]}\n";
    let spec = "  matchConditions: [{name: c, expression: \"object.metadata.name != 'web'\"}]\n  validations: \
                [{expression: 'false'}]\n";
    let of = |kind: &str, api: &str| {
        format!(
            "- {{name: {kind}, object: {{apiVersion: {api}, kind: {kind}, metadata: {{name: web}}}}, expect: Deny}}\n"
        )
    };
    let tests = suite(&format!("tests:\n{}{}", of("Pod", "v1"), of("Deployment", "apps/v1")));
    let (code, stdout) = tested(&[("p.yaml", &format!("{rules}{spec}")), ("t.yaml", &tests)], &[]);
    assert_eq!(code, Some(1));
    for part in [
        "expected Deny, got Allow\n        no policy is about this request: CREATE of pods in v1\n",
        "p: a match condition is false\n          matchConditions[0].expression: object.metadata.name != 'web'\n",
        "            object.metadata.name = 'web'\n",
    ] {
        assert!(stdout.contains(part), "{part:?} is missing:\n{stdout}");
    }
}

#[test]
fn selectors_that_exclude_a_request_are_named() {
    let selector =
        "  validations: [{expression: 'false'}]\n  matchConstraints:\n    objectSelector: {matchLabels: {team: b}}\n";
    let policy =
        policy("p", "").replace("  matchConstraints: {", &format!("{selector}    ")).replace("]}]}\n", "]}]\n");
    let tests = suite(&format!("tests: [{{name: t, object: {POD}, expect: Deny}}]\n"));
    let (code, stdout) = tested(&[("p.yaml", &policy), ("t.yaml", &tests)], &[]);
    assert!(
        code == Some(1) && stdout.contains("p: its selectors, or its bindings, exclude this request\n"),
        "{stdout}"
    );
}

/// Explanations are of the evaluation that decided, as to its selectors, its namespace and the object.
#[test]
fn explanations_are_of_the_decision() {
    let binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: \
                   {name: b}\nspec: {policyName: p, validationActions: [Deny], matchResources: {SELECTOR}}\n";
    let mutation = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: \
                    m}\nspec:\n  reinvocationPolicy: Never\n  matchConstraints: {resourceRules: [{apiGroups: ['*'], \
                    apiVersions: ['*'], operations: ['*'], resources: ['*']}]}\n  mutations:\n  - patchType: \
                    JSONPatch\n    jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/labels\", value: \
                    {\"a\": \"b\"}}]'}\n";
    for (selector, object, expression, shows) in [
        // The name label of a new Namespace, which nobody writes.
        (
            "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}",
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
            "object.metadata.name != 'shop'",
            "object.metadata.name = 'shop'",
        ),
        // Another kind of that name has a namespace.
        (
            "",
            "{apiVersion: example.com/v1, kind: Namespace, metadata: {name: x, namespace: shop}}",
            "namespaceObject.metadata.name != 'shop'",
            "namespaceObject.metadata.name = 'shop'",
        ),
        // A label that a mutation has added.
        (
            "objectSelector: {matchLabels: {a: b}}",
            "{apiVersion: v1, kind: Pod, metadata: {name: web}}",
            "object.metadata.labels.a != 'b'",
            "object.metadata.labels.a = 'b'",
        ),
    ] {
        let policy = policy("p", &format!("  validations: [{{expression: \"{expression}\", message: no}}]\n"));
        let policies = [&policy, &binding.replace("SELECTOR", selector), mutation].concat();
        let tests = suite(&format!("tests: [{{name: t, object: {object}, expect: Allow}}]\n"));
        let (code, stdout) = tested(&[("p.yaml", &policies), ("t.yaml", &tests)], &[]);
        assert!(code == Some(1) && stdout.contains(" denied request: no\n"), "{stdout}");
        assert!(stdout.contains(shows), "{shows} is missing:\n{stdout}");
    }
}

#[test]
fn params_namespaces_and_access_come_from_fixtures() {
    let spec = "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations:\n  - {expression: 'object.spec.n <= \
                int(params.data.most)', message: params}\n  - {expression: \"namespaceObject.metadata.labels.team == \
                'a'\", message: namespace}\n  - {expression: \
                \"authorizer.group('').resource('secrets').check('get').allowed()\", message: access}\n";
    let binding = |which: &str| {
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: \
             {{name: b}}\nspec: {{policyName: p, validationActions: [Deny], paramRef: {{{which}, \
             parameterNotFoundAction: Deny}}}}\n"
        )
    };
    let params = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits, namespace: shop, labels: {is: \
                  param}}\ndata: {most: '6'}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, \
                  namespace: shop}\ndata: {most: '0'}\n";
    let pod = |namespace: &str, n: u8| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: {namespace}}}, spec: {{n: {n}}}}}")
    };
    let tests = suite(&format!(
        "cluster: [params.yaml, {{apiVersion: v1, kind: Namespace, metadata: {{name: shop, labels: {{team: \
         a}}}}}}]\nauthorizer: [{{user: ann, verb: get, resource: secrets, allow: true}}]\ntests:\n- {{name: fits, \
         object: {}, user: {{username: ann}}, expect: Allow}}\n- {{name: user, object: {}, user: {{username: bob}}, \
         expect: Deny, message: access}}\n- {{name: params, object: {}, user: {{username: ann}}, expect: Deny, \
         message: params}}\n- {{name: none, object: {}, user: {{username: ann}}, expect: Deny, message: no params \
         found}}\n",
        pod("shop", 6),
        pod("shop", 6),
        pod("shop", 7),
        pod("other", 1),
    ));
    for which in ["name: limits", "selector: {matchLabels: {is: param}}"] {
        let policy = policy("p", spec) + &binding(which);
        let files = [("p.yaml", &*policy), ("params.yaml", params), ("t.yaml", &tests)];
        let (code, stdout) = tested(&files, &[]);
        assert_eq!(code, Some(0), "{which}: {stdout}");
        assert!(stdout.ends_with("4 passed, 0 failed\n"), "{stdout}");
    }
    let (code, stdout) = tested(&[("p.yaml", &policy("p", spec)), ("params.yaml", params), ("t.yaml", &tests)], &[]);
    assert!(
        code == Some(1) && stdout.contains("int(params.data.most) = 0\n"),
        "an implied binding has all params: {stdout}"
    );
}

#[test]
fn warnings_annotations_and_results_are_compared() {
    let warning = policy(
        "w",
        "  validations: [{expression: 'object.spec.n < 6', message: many}]\n  auditAnnotations: [{key: n, \
         valueExpression: 'string(object.spec.n)'}]\n",
    );
    let warning = format!(
        "{warning}---\napiVersion: admissionregistration.k8s.io/v1\nkind: \
         ValidatingAdmissionPolicyBinding\nmetadata: {{name: w}}\nspec: {{policyName: w, validationActions: [Warn]}}\n"
    );
    let mutating = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: \
                    m}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], \
                    operations: [CREATE], resources: ['*']}]}\n  reinvocationPolicy: Never\n  mutations: \
                    [{patchType: JSONPatch, jsonPatch: {expression: \"[JSONPatch{op: 'add', path: '/spec/m', value: \
                    object.spec.n + 1}]\"}}]\n";
    let test = |name: &str, keys: &str| format!("- {{name: {name}, object: {POD}, expect: Allow, {keys}}}\n");
    let result = |m: u8| {
        format!(
            "result: {{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{team: a}}}}, spec: {{n: 6, m: \
             {m}}}}}"
        )
    };
    let good = ["warnings: [many]", "auditAnnotations: {w/n: '6', w/x: null}", &result(7)];
    let bad = ["warnings: []", "warnings: [few]", "auditAnnotations: {w/n: null}", &result(8)];
    let tests: String = good.iter().enumerate().map(|(index, keys)| test(&format!("good{index}"), keys)).collect();
    let wrong: String = bad.iter().enumerate().map(|(index, keys)| test(&format!("bad{index}"), keys)).collect();
    let tests = suite(&format!("tests:\n{tests}{wrong}"));
    let (code, stdout) = tested(&[("p.yaml", &warning), ("m.yaml", mutating), ("t.yaml", &tests)], &["--costs"]);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.ends_with("3 passed, 4 failed\n") && stdout.matches("  ok    good").count() == 3, "{stdout}");
    assert!(stdout.contains("        result: spec.m is 7, expected 8\n"), "{stdout}");
    assert!(stdout.contains("auditAnnotations: w/n: expected none, got \"6\""), "{stdout}");
    assert_eq!(stdout.matches("cost  m: ").count(), 7, "{stdout}");
}

#[test]
fn mistakes_are_reported_with_their_places_and_fixes() {
    let good = policy("p", "  validations: [{expression: 'true'}]\n");
    let test = |keys: &str| suite(&format!("tests: [{{name: t, object: {POD}, {keys}}}]\n"));
    for (tests, says) in [
        (test("expcet: Deny"), "t.yaml: tests[0].expcet: is not a known key, so it would have no effect; write expect"),
        (
            test("expect: deny"),
            "tests[0].expect: is not an outcome, so the test would show nothing; write Allow or Deny",
        ),
        (test("expect: Allow, message: a"), "tests[0].message: has no meaning with expect: \"Allow\""),
        (test("expect: Allow, oldObject: none.yaml"), "none.yaml: cannot be read"),
        (suite("tests: []\n"), "has no tests, so the test would show nothing"),
        (suite("tests: [{name: t, expect: Allow}]\n"), "tests[0]: has no object"),
        (test("expect: Allow").replace("v1alpha1", "v2"), "apiVersion: is not known"),
        (test("expect: Allow") + "policies: [absent.yaml]\n", "absent.yaml: cannot be read"),
        (test("expect: Allow") + "a: [\n", "cannot be read as YAML"),
    ] {
        let (code, stdout) = tested(&[("p.yaml", &good), ("t.yaml", &tests)], &[]);
        assert_eq!(code, Some(1), "{tests}: {stdout}");
        assert!(stdout.contains(says), "{says:?} is missing:\n{stdout}");
        assert!(stdout.ends_with("0 passed, 0 failed, 1 problem\n"), "{stdout}");
    }
    let broken = good.replace("'true'", "'object.spec.'");
    let (code, stdout) = tested(&[("p.yaml", &broken), ("t.yaml", &test("expect: Allow"))], &[]);
    assert!(
        code == Some(1) && stdout.contains("p.yaml: spec.validations[0].expression: cannot be evaluated"),
        "{stdout}"
    );
    let (code, stdout) = tested(&[("t.yaml", &test("expect: Allow"))], &[]);
    assert!(code == Some(1) && stdout.contains("has no policy in its folder, so there is nothing to test"), "{stdout}");
}

#[test]
fn nothing_to_test_is_a_failure() {
    let (code, stdout) = tested(&[("a/p.yaml", &policy("p", "  validations: [{expression: 'true'}]\n"))], &[]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains(".: has no PolicyTest, so nothing is tested"), "{stdout}");
    let folder = tempfile::tempdir().expect("folder");
    let (code, stdout, _) = gatepost(folder.path(), &["policy", "test", "absent"]);
    assert!(code == Some(1) && stdout.starts_with("absent: cannot be read"), "{stdout}");
}

#[test]
fn kyverno_tests_of_admission_policies_are_run() {
    let policy =
        |name: &str, expression: &str| policy(name, &format!("  validations: [{{expression: '{expression}'}}]\n"));
    let binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: \
                   ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: few, validationActions: \
                   [Audit], matchResources: {objectSelector: {matchLabels: {app: web}}}}\n";
    let policies = format!("{}{binding}---\n{}", policy("few", "object.spec.n < 5"), policy("never", "false"));
    let pod = |name: &str, app: &str, n: u8| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {app}}}}}, spec: {{n: {n}}}}}")
    };
    let pods = [pod("good", "web", 4), pod("bad", "web", 6), pod("other", "x", 6)].join("\n---\n");
    let test = |result: &str| {
        format!(
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {{name: k}}\npolicies: [p.yaml]\nresources: \
             [pods.yaml]\nresults:\n- {{policy: few, isValidatingAdmissionPolicy: true, kind: Pod, resources: \
             [good], result: {result}}}\n- {{policy: few, kind: Pod, resources: [bad], result: fail}}\n- {{policy: \
             few, resources: [other], result: skip}}\n- {{policy: another, resources: [good], result: pass}}\n"
        )
    };
    let files = |result: &str| {
        tested(&[("p.yaml", &policies), ("pods.yaml", &pods), ("kyverno-test.yaml", &test(result))], &[])
    };
    let (code, stdout) = files("pass");
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("kyverno-test.yaml (k/few)\n") && stdout.ends_with("3 passed, 0 failed\n"), "{stdout}");
    let (code, stdout) = files("fail");
    assert!(code == Some(1) && stdout.contains("  FAIL  few: Pod good: fail\n"), "{stdout}");
    let (code, stdout) = files("skip");
    assert!(
        code == Some(1) && stdout.contains("expected that the policy is not about the request, and it is"),
        "{stdout}"
    );
    assert!(files("pass").1.contains("note  results of other policies are left to Kyverno: 1\n"));
    let (code, stdout) = files("pass, generatedResource: x.yaml");
    assert!(code == Some(1) && stdout.contains("results[0].generatedResource: is a key of kyverno test"), "{stdout}");
}

/// A policy of `policies.kyverno.io` about new Pods.
fn kyverno_policy(kind: &str, metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n  matchConstraints: \
         {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}\n{spec}"
    )
}

const NO_LATEST: &str = "  validationActions: [Audit]\n  evaluation: {background: {enabled: true}}\n  validations:\n  - \
                         {expression: \"object.metadata.name == 'exempt' || object.spec.containers.all(c, \
                         !c.image.endsWith(':latest'))\", message: pin}\n";
const LABELLED: &str = "  mutations:\n  - patchType: JSONPatch\n    jsonPatch: {expression: '[JSONPatch{op: \"add\", \
                        path: \"/metadata/labels\", value: {\"a\": \"b\"}}]'}\n";

#[test]
fn kyverno_tests_of_kyverno_policies_are_run() {
    let policies = [
        kyverno_policy("ValidatingPolicy", "name: pinned", NO_LATEST),
        kyverno_policy("NamespacedMutatingPolicy", "name: labelled, namespace: shop", LABELLED),
    ];
    let container = |tag: &str| format!("{{containers: [{{name: c, image: 'a:{tag}'}}]}}");
    let pods = [
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: good}}, spec: {}}}", container("1")),
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: bad}}, spec: {}}}", container("latest")),
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: sold, namespace: shop}}, spec: {}}}", container("1")),
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{template: {{spec: {}}}}}}}",
            container("latest")
        ),
        format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: exempt}}, spec: {{jobTemplate: {{spec: {{template: \
             {{spec: {}}}}}}}}}}}",
            container("latest")
        ),
    ];
    let patched = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: sold, namespace: shop, labels: {{a: b}}}}, spec: {}}}",
        container("1")
    );
    let test = |wanted: &str| {
        format!(
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {{name: k}}\npolicies: [../p.yaml]\nresources: \
             [../pods.yaml]\nresults:\n- {{policy: pinned, isValidatingPolicy: true, kind: Pod, resources: [good], result: \
             {wanted}}}\n- {{policy: pinned, kind: Pod, resources: [default/bad], result: fail}}\n- {{policy: pinned, \
             kind: Deployment, resources: [web], result: fail}}\n- {{policy: pinned, kind: CronJob, resources: \
             [exempt], result: pass}}\n- {{policy: shop/labelled, isMutatingPolicy: true, kind: Pod, resources: \
             [shop/sold], patchedResources: ../patched.yaml, result: pass}}\n- {{policy: shop/labelled, kind: Pod, \
             resources: [good], result: skip}}\n"
        )
    };
    let run = |wanted: &str, patched: &str| {
        let policies = policies.join("---\n");
        let files = [
            ("p.yaml", &*policies),
            ("pods.yaml", &*pods.join("\n---\n")),
            ("patched.yaml", patched),
            (".kyverno-test/kyverno-test.yaml", &*test(wanted)),
        ];
        tested(&files, &[])
    };
    let (code, stdout) = run("pass", &patched);
    assert!(code == Some(0) && stdout.ends_with("6 passed, 0 failed\n"), "{stdout}");
    assert!(stdout.contains("note  evaluation.background is left out"), "{stdout}");
    let (code, stdout) = run("fail", &patched);
    assert!(code == Some(1) && stdout.contains("  FAIL  pinned: Pod good: fail\n"), "{stdout}");
    let (code, stdout) = run("pass", &patched.replace("a: b", "a: c"));
    assert!(code == Some(1) && stdout.contains("  FAIL  labelled: Pod shop/sold: pass\n"), "{stdout}");
}

#[test]
fn kyverno_pass_of_an_excluded_resource_fails() {
    let excluding = format!("  matchConditions: [{{name: c, expression: 'false'}}]\n{LABELLED}");
    let test = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: k}\npolicies: [p.yaml]\nresources: \
                [pod.yaml]\nresults: [{policy: m, kind: Pod, resources: [web], result: pass}]\n";
    for (spec, passes) in [(LABELLED, true), (&*excluding, false)] {
        let policy = kyverno_policy("MutatingPolicy", "name: m", spec);
        let (code, stdout) = tested(&[("p.yaml", &policy), ("pod.yaml", POD), ("kyverno-test.yaml", test)], &[]);
        assert_eq!(code == Some(0), passes, "{stdout}");
        let says = "expected that the policy is about the request, and it is not";
        assert_eq!(stdout.contains(says), !passes, "{stdout}");
    }
}

#[test]
fn kyverno_policies_become_admission_policies_that_are_served() {
    let policies = [
        kyverno_policy("ValidatingPolicy", "name: pinned", NO_LATEST),
        kyverno_policy("NamespacedMutatingPolicy", "name: labelled, namespace: shop", LABELLED),
    ];
    let folder = folder(&[("p.yaml", &policies.join("---\n"))]);
    let (code, stdout, stderr) = gatepost(folder.path(), &["policy", "import", "p.yaml"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("# pinned of p.yaml\n# evaluation.background is left out"), "{stdout}");
    fs::write(folder.path().join("served.yaml"), &stdout).expect("written");
    let (code, stdout, stderr) = gatepost(folder.path(), &["check", "served.yaml"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    for name in ["pinned", "pinned-autogen-defaults", "pinned-autogen-cronjobs", "shop.labelled"] {
        assert!(stdout.contains(&format!("  {name}, in process: ")), "{stdout}");
    }
}

#[test]
fn untranslatable_parts_are_problems_with_their_place() {
    for (kind, spec, says) in [
        (
            "ValidatingPolicy",
            "  validations: [{expression: 'images.x.size() > 0'}]\n",
            "spec.validations[0].expression: ",
        ),
        (
            "ValidatingPolicy",
            "  validations: [{expression: 'resource.Get(\"v1\", \"x\").a'}]\n",
            "resource is of Kyverno's own library",
        ),
        (
            "ValidatingPolicy",
            "  evaluation: {mode: JSON}\n  validations: [{expression: 'true'}]\n",
            "spec.evaluation.mode: is a key of Kyverno",
        ),
        (
            "ValidatingPolicy",
            "  evaluation: {admission: {enabled: false}}\n  validations: [{expression: 'true'}]\n",
            "spec.evaluation.admission: ",
        ),
        ("MutatingPolicy", "  targetMatchConstraints: {}\n", "spec.targetMatchConstraints: is a key of Kyverno"),
        ("ImageValidatingPolicy", "  x: 1\n", "kind: is neither a ValidatingPolicy nor a MutatingPolicy"),
    ] {
        let good = kyverno_policy("ValidatingPolicy", "name: good", "  validations: [{expression: 'true'}]\n");
        let folder = folder(&[("p.yaml", &format!("{good}---\n{}", kyverno_policy(kind, "name: bad", spec)))]);
        let (code, stdout, stderr) = gatepost(folder.path(), &["policy", "import", "."]);
        assert!(code == Some(1) && stderr.contains("p.yaml: [1].") && stderr.contains(says), "{says}: {stderr}");
        assert!(stdout.contains("name: good") && !stdout.contains("name: bad"), "{stdout}");
    }
    let policy = kyverno_policy("ValidatingPolicy", "name: good", "  validations: [{expression: 'true'}]\n");
    let item = policy.replace('\n', "\n  ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", item.trim_end());
    let folder_of_list = folder(&[("list.yaml", &list), ("empty.yaml", "")]);
    let (code, stdout, stderr) = gatepost(folder_of_list.path(), &["policy", "import", "list.yaml", "empty.yaml"]);
    assert!(code == Some(1) && stdout.contains("name: good"), "{stdout}{stderr}");
    assert!(
        stderr.starts_with("gatepost: empty.yaml: has no policy of policies.kyverno.io, and no constraint of Gate"),
        "{stderr}"
    );
    let cluster = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: c}\n";
    let (code, stdout, stderr) = gatepost(folder(&[("p.yaml", cluster)]).path(), &["policy", "import", "p.yaml"]);
    assert!(code == Some(1) && stderr.contains("is a ClusterPolicy of kyverno.io/v1"), "{stdout}{stderr}");
}

#[test]
fn policy_that_costs_more_than_its_baseline_is_slower() {
    let test = suite(&format!("tests: [{{name: t, object: {POD}, expect: Allow}}]\n"));
    let policy = |expression: &str| policy("p", &format!("  validations: [{{expression: '{expression}'}}]\n"));
    let folder = folder(&[("p.yaml", &policy("object.spec.n == 6")), ("t.yaml", &test)]);
    let bench = |more: &[&str]| {
        let ours = ["policy", "bench", "t.yaml", "--iterations", "5", "--min-threshold", "1h"];
        gatepost(folder.path(), &[&ours, more].concat())
    };
    let (code, stdout, stderr) = bench(&["--save", "base.json"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.starts_with("t.yaml (s) p\n  5 evaluations, p50 "), "{stdout}");
    let (code, stdout, _) = bench(&["--compare", "base.json", "--threshold", "0"]);
    assert!(code == Some(0) && !stdout.contains("SLOWER"), "{stdout}");
    fs::write(folder.path().join("p.yaml"), policy("[1, 2, 3].all(i, i < 4) && object.spec.n == 6")).expect("written");
    let (code, stdout, _) = bench(&["--compare", "base.json"]);
    assert!(code == Some(1) && stdout.contains("SLOWER  t.yaml (s) p: cost "), "{stdout}");
    assert!(stdout.contains("SLOWER  t.yaml (s) p: steps "), "{stdout}");
    let (code, stdout, _) = bench(&["--compare", "base.json", "--output", "json"]);
    assert!(code == Some(1) && stdout.contains("\"slower\": [\n"), "{stdout}");
    let (code, stdout, _) = bench(&["--compare", "base.json", "--save", "base.json"]);
    assert!(code == Some(1) && stdout.contains("SLOWER"), "compared with what it was before: {stdout}");
    let other = "apiVersion: gatepost.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: other}\n";
    fs::write(folder.path().join("other.yaml"), test.replace(&suite(""), other)).expect("written");
    let (code, stdout, _) = bench(&["other.yaml", "--compare", "base.json"]);
    assert!(code == Some(0) && stdout.contains("note    other.yaml (other) p is not in the baseline\n"), "{stdout}");
    fs::write(folder.path().join("base.json"), "{}").expect("written");
    let (code, _, stderr) = bench(&["--compare", "base.json"]);
    assert!(code == Some(1) && stderr.contains("the baseline has none of these policies"), "{stderr}");
}

#[test]
fn bench_without_tests_gives_advice() {
    let folder = folder(&[("p.yaml", &policy("p", "  validations: [{expression: 'true'}]\n"))]);
    for (arguments, exit, says) in [
        (&["missing"][..], 1, "missing: cannot be read: "),
        (&["."], 1, ".: has no PolicyTest, so nothing is tested; write one as `gatepost policy test --help` shows"),
        (&["p.yaml"], 1, "p.yaml: has no PolicyTest, so it tests nothing; name a folder with tests"),
        (&[".", "--threshold", "ten"], 2, "invalid value 'ten' for '--threshold <PERCENT>'"),
    ] {
        let (code, stdout, stderr) = gatepost(folder.path(), &[&["policy", "bench"], arguments].concat());
        assert_eq!((code, &*stdout), (Some(exit), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

/// Checks that elements are nested and that no text has a bare sign. Returns the names of all elements.
fn elements(xml: &str) -> Vec<String> {
    let body = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("a declaration");
    let (mut open, mut names, mut rest) = (Vec::new(), Vec::new(), body);
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>') && text.split('&').skip(1).all(|entity| entity.contains(';')), "{text:?}");
        let end = rest[at..].find('>').expect("an end") + at;
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_matches('/').split([' ', '/']).next().expect("a name").to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_ref(), Some(&name), "{xml}");
        } else {
            names.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{xml}");
    names
}

#[test]
fn junit_report_is_well_formed() {
    let policy =
        policy("p", "  validations: [{expression: \"object.metadata.name == '<&>'\", message: 'a < \"b\" & c'}]\n");
    let tests = format!(
        "tests:\n- {{name: 'a <b> & \"c\"', object: {POD}, expect: Allow}}\n- {{name: d, object: {POD}, expect: \
         Deny}}\n"
    );
    let files = [
        ("a/p.yaml", &*policy),
        ("a/t.yaml", &suite(&tests)),
        ("b/t.yaml", &suite("tests: []\n")),
        ("b/p.yaml", &policy),
    ];
    let (code, stdout) = tested(&files, &["-o", "junit"]);
    assert_eq!(code, Some(1));
    let names = elements(&stdout);
    let count = |name: &str| names.iter().filter(|own| *own == name).count();
    let counts = ["testsuites", "testsuite", "testcase", "failure", "error"].map(count);
    assert_eq!(counts, [1, 2, 3, 1, 1], "{stdout}");
    assert!(stdout.contains("<testsuites tests=\"3\" failures=\"1\" errors=\"1\""), "{stdout}");
    assert!(stdout.contains("name=\"a &lt;b&gt; &amp; &quot;c&quot;\""), "{stdout}");
}

#[test]
fn review_is_decided_by_the_policies_of_a_configuration() {
    let review = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest:\n  uid: u\n  operation: CREATE\n  \
                  kind: {group: '', version: v1, kind: Pod}\n  resource: {group: '', version: v1, resource: pods}\n  \
                  name: web\n  namespace: shop\n  object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: \
                  shop}, spec: {containers: [{name: web, image: IMAGE}]}}\n";
    let hooks = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: \
                 default}\nexternalAdmissionHooks:\n- name: a.example.com\n  clientConfig: {url: \
                 'grpc://127.0.0.1:1'}\n  rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], \
                 resources: ['*']}]\n";
    let policy = fs::read_to_string(Path::new(EXAMPLE).join("policy.yaml")).expect("the example");
    let folder = folder(&[
        ("config/policy.yaml", &policy),
        ("config/hooks.yaml", hooks),
        ("bad.yaml", &review.replace("IMAGE", "web")),
        ("good.yaml", &review.replace("IMAGE", "'web:1'")),
    ]);
    let (code, stdout, stderr) = gatepost(folder.path(), &["review", "good.yaml", "--config", "config"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("ALLOWED in ") && stdout.contains("  note     1 hook of the configuration: not called\n"));
    let (code, stdout, _) = gatepost(folder.path(), &["review", "bad.yaml", "--config", "config"]);
    assert_eq!(code, Some(5), "{stdout}");
    for part in
        ["CREATE v1/pods shop web\nDENIED in ", "  code     422 Invalid\n", "pin a version of these images: web"]
    {
        assert!(stdout.contains(part), "{part:?} is missing:\n{stdout}");
    }
    let (code, stdout, _) = gatepost(folder.path(), &["review", "bad.yaml", "--config", "config", "--phase", "mutate"]);
    assert_eq!(code, Some(0), "{stdout}");
    let both = ["review", "bad.yaml", "--config", "config", "--to", "grpc://127.0.0.1:1"];
    assert_eq!(gatepost(folder.path(), &both).0, Some(2));
}

#[test]
fn policy_of_an_older_version_is_decided_as_there() {
    let bound = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: \
                 {name: b}\nspec: {policyName: p, validationActions: [Deny]}\n";
    let of_version = |version: &str, expression: &str| {
        let spec = format!("  validations: [{{expression: \"{expression}\"}}]\n");
        let pinned = format!("{{name: p, annotations: {{gatepost.dev/compat: {version}}}}}");
        policy("p", &spec).replacen("{name: p}", &pinned, 1) + bound
    };
    let check = |text: &str| {
        let folder = folder(&[("p.yaml", text)]);
        let (code, stdout, stderr) = gatepost(folder.path(), &["check", "p.yaml"]);
        (code, stdout + &stderr)
    };
    // `indexOf` finds an empty text behind the end in 1.36 only.
    let found = "'abc'.indexOf('', 9) == 9";
    let tests = |expect: &str| suite(&format!("tests:\n- {{name: t, object: {POD}, expect: {expect}}}\n"));
    for (version, expect) in [("'1.36'", "Allow"), ("'1.37'", "Deny"), ("'1.38'", "Deny")] {
        let (code, stdout) = tested(&[("p.yaml", &of_version(version, found)), ("t.yaml", &tests(expect))], &[]);
        assert_eq!(code, Some(0), "{version}: {stdout}");
    }
    let (code, printed) = check(&of_version("'1.36'", "[1].includes(1)"));
    assert!(code == Some(1) && printed.contains("`includes` needs Kubernetes 1.37"), "{printed}");
    for (version, why) in [("1.36", "compat"), ("'1.35'", "did you mean 1.36?")] {
        let (code, printed) = check(&of_version(version, "true"));
        assert!(code == Some(1) && printed.contains(why), "{version}: {printed}");
    }
    let (code, printed) = check(&of_version("'1.36'", "true").replacen(
        "{name: b}",
        "{name: b, annotations: {gatepost.dev/compat: '1.36'}}",
        1,
    ));
    assert!(code == Some(1) && printed.contains("is not for a binding"), "{printed}");
    // Each expression that is otherwise elsewhere is named, of pinned policies also those that only cost otherwise.
    for (version, expression, named) in [
        ("'1.38'", "[1].includes(1)", Some("spec.validations[0].expression: compiles from 1.37 on: uses `includes`")),
        ("'1.38'", found, Some("spec.validations[0].expression: answers otherwise before 1.37: `indexOf`")),
        ("'1.37'", "'a'.startsWith('b')", Some("spec.validations[0].expression: costs otherwise before 1.37")),
        ("'1.38'", "'a'.startsWith('b')", None),
        ("'1.36'", "object.x == 1", None),
    ] {
        let (code, printed) = check(&of_version(version, expression));
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(printed.contains(" before 1.37") || printed.contains(" from 1.37"), named.is_some(), "{printed}");
        assert!(named.is_none_or(|named| printed.contains(named)), "{printed}");
    }
}

#[test]
fn apply_configuration_uses_a_custom_resource_s_definition() {
    let policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  \
                  reinvocationPolicy: Never\n  matchConstraints: {resourceRules: [{apiGroups: [example.com], \
                  apiVersions: ['*'], operations: [CREATE], resources: [widgets/status, widgets]}]}\n  mutations:\n  - \
                  patchType: ApplyConfiguration\n    applyConfiguration: {expression: 'Object{spec: Object.spec{ports: \
                  [Object.spec.ports{name: \"a\", port: 2}]}}'}\n---\napiVersion: \
                  admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: \
                  {policyName: p}\n";
    let definition = |list: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
             widgets.example.com}}\nspec:\n  group: example.com\n  names: {{plural: widgets, kind: Widget}}\n  scope: \
             Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      \
             openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, properties: {{ports: {{type: array, \
             x-kubernetes-list-type: {list}, x-kubernetes-list-map-keys: [name], items: {{type: object, properties: \
             {{name: {{type: string}}, port: {{type: integer}}}}}}}}}}}}}}}}\n"
        )
    };
    let check = |files: &[(&str, &str)]| {
        let folder = folder(files);
        let (code, stdout, stderr) = gatepost(folder.path(), &["check", "."]);
        (code, stdout + &stderr)
    };
    let (code, printed) = check(&[("p.yaml", policy), ("d.yaml", &definition("map"))]);
    assert!(code == Some(0) && !printed.contains("is missing"), "{printed}");
    let (code, printed) = check(&[("p.yaml", policy)]);
    let missing = "p.yaml: [0].spec.mutations: the schema of widgets of example.com in version * is missing";
    assert!(code == Some(0) && printed.contains(missing), "{printed}");
    assert!(printed.contains("kubectl get crd widgets.example.com -o yaml"), "{printed}");
    let (code, printed) = check(&[("p.yaml", policy), ("d.yaml", &definition("bag"))]);
    let wrong = "spec.versions[0].schema.openAPIV3Schema has at \".spec.ports\" the list type \"bag\"";
    assert!(code == Some(1) && printed.replace(": has", " has").contains(wrong), "{printed}");
    let (code, printed) = check(&[(
        "d.yaml",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.b}\nspec: {group: b}\n",
    )]);
    assert!(code == Some(1) && printed.contains("spec.names.plural: is missing"), "{printed}");
    // Else two definitions could be of one kind.
    let other = definition("map").replacen("{name: widgets.example.com}", "{name: other}", 1);
    let (code, printed) = check(&[("p.yaml", policy), ("d.yaml", &other)]);
    let wrong = "d.yaml: metadata.name: is not that of its resource and group";
    assert!(code == Some(1) && printed.contains(wrong), "{printed}");

    let review = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"example.com","version":"v1","kind":"Widget"},"resource":{"group":"example.com","version":"v1","resource":"widgets"},"name":"w","namespace":"default","operation":"CREATE","userInfo":{},"object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"ports":[{"name":"b"},{"name":"a","port":1}]}}}}"#;
    for (definition, expected) in [(Some(definition("map")), Some(0)), (None, Some(5))] {
        let mut files = vec![("p.yaml".to_owned(), policy.to_owned())];
        files.extend(definition.map(|text| ("d.yaml".to_owned(), text)));
        let files: Vec<_> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        let (config, reviews) = (folder(&files), folder(&[("r.json", review)]));
        let config = config.path().display().to_string();
        let (code, stdout, stderr) = gatepost(reviews.path(), &["review", "r.json", "--config", &config]);
        assert_eq!(code, expected, "{stdout}{stderr}");
    }
}

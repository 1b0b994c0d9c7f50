//! Every fault of a configuration is reported: all of them, each with its place and what to do.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{io, sync::OnceLock};

use bytes::Bytes;
use gatepost_config::{Snapshot, SourceFile, load};

const HEAD: &str =
    "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: default}\n";

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.into(), bytes: Bytes::copy_from_slice(text.as_bytes()) }
}

/// A certificate and its key, the same at every call.
fn certificate() -> &'static (String, String) {
    static MADE: OnceLock<(String, String)> = OnceLock::new();
    MADE.get_or_init(made)
}

fn made() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["hook.example.com".to_owned()]).expect("certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "good.crt" => Ok(certificate().0.clone().into_bytes()),
        "good.key" => Ok(certificate().1.clone().into_bytes()),
        "other.key" => Ok(made().1.into_bytes()),
        "text.pem" => Ok(b"hello".to_vec()),
        "cut.pem" => Ok(b"-----BEGIN CERTIFICATE-----\nAAAA\n".to_vec()),
        "junk.pem" => Ok(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()),
        "junk.key" => Ok(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn load_files(files: &[SourceFile]) -> Result<Snapshot, Vec<String>> {
    load(files, &read).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// The problems of one file `a.yaml`.
fn problems(text: &str) -> Vec<String> {
    load_files(&[file("a.yaml", text)]).err().unwrap_or_default()
}

/// The problems of a configuration with one hook, given as the keys of its entry.
fn of_hook(entry: &str) -> Vec<String> {
    problems(&format!("{HEAD}externalAdmissionHooks:\n- {{{entry}}}\n"))
}

const NAME: &str = "name: a.example.com";
const CLIENT: &str = "clientConfig: {url: 'grpc://127.0.0.1:9001'}";
const RULES: &str = "rules: []";

/// One hook with these extra keys has exactly one problem, at this path under the hook, that says this.
#[track_caller]
fn one_problem(extra: &str, path: &str, says: &str) {
    let found = of_hook(&format!("{NAME}, {CLIENT}, {RULES}, {extra}"));
    one(&found, path, says);
}

#[track_caller]
fn one(found: &[String], path: &str, says: &str) {
    assert_eq!(found.len(), 1, "{found:#?}");
    let place = format!("a.yaml: externalAdmissionHooks[0]{path}: ");
    assert!(found[0].starts_with(&place), "{} is not at {place}", found[0]);
    assert!(found[0].contains(says), "{} does not say {says:?}", found[0]);
    assert!(found[0].contains("; "), "{} has no fix", found[0]);
    let gives = [", so ", ", since ", ", which ", ", and "].into_iter().any(|word| found[0].contains(word));
    assert!(gives, "{} has no reason", found[0]);
}

#[track_caller]
fn one_client_problem(client: &str, path: &str, says: &str) {
    let found = of_hook(&format!("{NAME}, {RULES}, clientConfig: {{{client}}}"));
    one(&found, &format!(".clientConfig{path}"), says);
}

#[track_caller]
fn one_rule_problem(rule: &str, path: &str, says: &str) {
    let found = of_hook(&format!("{NAME}, {CLIENT}, rules: [{{{rule}}}]"));
    one(&found, &format!(".rules[0]{path}"), says);
}

#[test]
fn a_good_configuration_has_no_problem() {
    for entry in [
        format!("{NAME}, {CLIENT}, {RULES}"),
        format!("{NAME}, {CLIENT}, rules: [{{apiGroup: '', resources: [pods]}}]"),
        format!("{NAME}, {CLIENT}, rules: [{{verbs: [POST], apiGroups: ['*'], resources: [pods]}}]"),
        format!("{NAME}, {CLIENT}, rules: [{{apiGroup: '', resources: [a/x, 'a/*']}}]"),
        format!(
            "{NAME}, {CLIENT}, rules: [{{apiGroup: '', resources: [a, '*']}}, {{apiGroup: x, resources: ['*/*']}}]"
        ),
        format!("{NAME}, {CLIENT}, {RULES}, failurePolicy: Retry, sideEffects: None"),
        format!("{NAME}, {CLIENT}, {RULES}, namespaceSelector: null, objectSelector: {{}}"),
        format!("{NAME}, {RULES}, clientConfig: {{service: {{namespace: ns, name: svc, port: 8443}}}}"),
        format!("{NAME}, {RULES}, clientConfig: {{url: 'grpcs://h', caFile: good.crt, serverName: other.example.com}}"),
        format!(
            "{NAME}, {RULES}, clientConfig: {{url: 'grpcs://h', clientCertificateFile: good.crt, \
             clientKeyFile: good.key}}"
        ),
    ] {
        assert_eq!(of_hook(&entry), [""; 0], "{entry}");
    }
    assert!(problems("---\n---\n{apiVersion: v1, kind: List, items: []}\n").is_empty());
}

#[test]
fn many_problems_in_several_files_are_all_reported() {
    let first = format!(
        "{HEAD}surprise: 1
resourceInitializers:
- {{resource: pods, initializers: [A_b]}}
externalAdmissionHooks:
- name: Bad_Name
  clientConfig: {{url: 'ftp://x'}}
  rules:
  - {{operations: [WATCH], apiGroups: [''], apiVersions: [v1], resources: [], scope: World}}
  - 7
  failurePolicy: fail
  timeout: 1h
- {{name: a.example.com, name: a.example.com, {CLIENT}, {RULES}}}
---
kind: Namespace
apiVersion: v1
metadata: {{name: team, labels: {{tier: 1, 'a b': x}}}}
"
    );
    let second =
        format!("{}externalAdmissionHooks: [{{name: a.example.com, {CLIENT}}}]\n", HEAD.replace("default", "other"));
    let found = load_files(&[file("a.yaml", &first), file("b.yaml", &second), file("c.yaml", "a: [")])
        .expect_err("there are problems");
    let places = [
        "a.yaml: [0].externalAdmissionHooks[1].name: is written more than once",
        "a.yaml: [0].surprise: is not a known key",
        "a.yaml: [0].resourceInitializers[0].initializers[0]: \"A_b\"",
        "a.yaml: [0].externalAdmissionHooks[0].name: \"Bad_Name\"",
        "a.yaml: [0].externalAdmissionHooks[0].clientConfig.url: the scheme \"ftp\"",
        "a.yaml: [0].externalAdmissionHooks[0].rules[0].operations[0]: \"WATCH\"",
        "a.yaml: [0].externalAdmissionHooks[0].rules[0].resources: is empty",
        "a.yaml: [0].externalAdmissionHooks[0].rules[0].scope: \"World\"",
        "a.yaml: [0].externalAdmissionHooks[0].rules[1]: is a whole number, not a map",
        "a.yaml: [0].externalAdmissionHooks[0].failurePolicy: \"fail\" is not one of the allowed words, so what it is to mean would be a guess; did you mean Fail?",
        "a.yaml: [0].externalAdmissionHooks[0].timeout: \"1h\" is out of range",
        "a.yaml: [1].metadata.labels.tier: is a whole number, not a text, so what it is to mean would be a guess; put it in quotes",
        "a.yaml: [1].metadata.labels[\"a b\"]: \"a b\" is not a label key",
        "b.yaml: externalAdmissionHooks[0].name: the hook \"a.example.com\" is already defined at a.yaml: [0].externalAdmissionHooks[1].name",
        "b.yaml: externalAdmissionHooks[0].rules: is missing",
        "c.yaml: line 1, column ",
    ];
    for place in places {
        assert!(found.iter().any(|problem| problem.starts_with(place)), "{place} is not among {found:#?}");
    }
    assert_eq!(found.len(), places.len(), "{found:#?}");
    assert!(found.iter().all(|problem| !problem.contains('\n')));
}

#[test]
fn files_that_cannot_be_read() {
    let bad_utf8 = SourceFile { name: "a.yaml".into(), bytes: Bytes::from_static(b"a: \xff") };
    assert!(load_files(&[bad_utf8]).expect_err("refused")[0].contains("not UTF-8 text from byte 3"));
    assert!(problems("a: b\n  c: d\n")[0].starts_with("a.yaml: line 2, column "), "{:?}", problems("a: b\n  c: d\n"));
    let json = load_files(&[file("a.json", "{\n\"a\": }")]).expect_err("refused");
    assert_eq!(
        json,
        [
            "a.json: line 2, column 6: cannot be read as JSON: expected value, so nothing behind that place is known; correct the JSON"
        ]
    );
}

#[test]
fn documents_before_a_syntax_error_are_checked() {
    let found = problems(&format!("{HEAD}bypass: []\nextra: 1\n---\na: [\n"));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("a.yaml: line 7, column 4: cannot be read as YAML: "), "{found:#?}");
    assert!(found[1].starts_with("a.yaml: [0].extra: is not a known key"), "{found:#?}");
}

#[test]
fn a_tag_is_refused_where_it_stands() {
    let found = problems(&format!("{HEAD}bypass: []\n---\nkind: !secret x\n"));
    assert_eq!(
        found,
        [
            "a.yaml: line 6, column 15: cannot be read as YAML: unsupported tag `!secret`, so nothing behind that place is known; correct the YAML"
        ]
    );
}

#[test]
fn aliases_of_aliases_and_deep_nesting_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    let found = problems(&bomb);
    assert!(found.len() == 1 && found[0].contains("cannot be read as YAML"), "{found:#?}");
    for name in ["a.yaml", "a.json"] {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(load_files(&[file(name, &deep)]).is_err(), "{name}");
    }
}

#[test]
fn a_key_written_twice_is_found_in_json_too() {
    let text = r#"{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "x", "name": "y"}, "bypass": []}"#;
    let found = load_files(&[file("a.json", text)]).expect_err("refused");
    assert_eq!(
        found,
        [
            "a.json: metadata.name: is written more than once in the same map, so one of them would be lost; keep one of them"
        ]
    );
}

#[test]
fn documents_of_other_kinds_are_refused() {
    for (text, says) in [
        ("just text\n", "the document is a text, not a map"),
        ("kind: Namespace\n", "apiVersion: is missing"),
        ("apiVersion: v1\nkind: Pod\n", "\"Pod\" of \"v1\" is not read here"),
        ("apiVersion: gatepost.dev/v1\nkind: AdmissionControlConfiguration\n", "write gatepost.dev/v1alpha1"),
        (
            "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration\n",
            "write admissionregistration.k8s.io/v1",
        ),
        (
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfigurationList\nitems: [{apiVersion: v1, \
             kind: Namespace}]\n",
            "items[0].kind: is not what the list says",
        ),
        ("apiVersion: gatepost.dev/v1alpha1\nkind: Hook\n", "write AdmissionControlConfiguration"),
        ("apiVersion: v1\nkind: Namespace\n", "metadata.name: is missing"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: 7}\n", "put it in quotes"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n", "is not a name"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, label: {}}\n", "did you mean labels?"),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {kubernetes.io/metadata.name: b}}\n",
            "always the namespace's own name",
        ),
        ("apiVersion: v1\nkind: List\nitems: 7\n", "items: is a whole number, not a list"),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n",
            "a.yaml: items[0]: \"Pod\" of \"v1\" is not read here",
        ),
    ] {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:#?}");
    }
}

#[test]
fn names_are_unique_in_all_documents() {
    let hook = format!("externalAdmissionHooks: [{{{NAME}, {CLIENT}, {RULES}}}]\n");
    let found = problems(&format!("{HEAD}{hook}---\n{}{hook}", HEAD.replace("default", "second")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("is already defined at a.yaml: [0].externalAdmissionHooks[0].name"), "{found:#?}");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    for (text, says) in [
        (format!("{HEAD}bypass: []\n---\n{HEAD}bypass: []\n"), "the configuration \"default\" is already defined"),
        (format!("{namespace}---\n{namespace}"), "the namespace \"a\" is already defined"),
        (
            format!(
                "{HEAD}resourceInitializers: [{{resource: pods, initializers: []}}, \
                 {{apiGroup: '', resource: pods, initializers: []}}]\n"
            ),
            "the resource \"pods\" is already defined",
        ),
    ] {
        let found = problems(&text);
        assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:#?}");
    }
}

#[test]
fn hook_entries() {
    one(&of_hook(&format!("{CLIENT}, {RULES}")), ".name", "is missing");
    one(&of_hook(&format!("name: no, {CLIENT}")), ".rules", "is missing");
    one(&of_hook(&format!("{NAME}, {RULES}")), ".clientConfig", "is missing");
    one_problem("failurPolicy: Fail", ".failurPolicy", "did you mean failurePolicy?");
    one_problem("resourceNames: [a]", ".resourceNames", "remove it; known here: name, type");
    one_problem("matchPolicy: Similar", ".matchPolicy", "write Exact or Equivalent");
    one_problem("reinvocationPolicy: IfNeeded", ".reinvocationPolicy", "make the hook Mutating");
    one_problem("type: Mutating, reinvocationPolicy: Always", ".reinvocationPolicy", "write Never or IfNeeded");
    one_problem("dispatch: Serial", ".dispatch", "make the hook Mutating");
    one_problem("type: Mutating, dispatch: Both", ".dispatch", "write Serial or Speculative");
    let early = "type: Mutating, dispatch: Speculative, sideEffects: Unknown";
    one_problem(early, ".dispatch", "declare sideEffects: None");
    one_problem("type: Guessing", ".type", "write Validating or Mutating");
    one_problem("failurePolicy: Open", ".failurePolicy", "write Fail, Ignore or Retry");
    one_problem("failurePolicy: Retry", ".failurePolicy", "not declared free of side effects");
    one_problem("failurePolicy: Retry, sideEffects: Some", ".failurePolicy", "not declared free of side effects");
    one_problem("failurePolicy: Retry, sideEffects: NoneOnDryRun", ".failurePolicy", "NoneOnDryRun is not enough");
    one_problem("sideEffects: Lots", ".sideEffects", "write None, NoneOnDryRun, Some or Unknown");
    one_problem("timeout: 10", ".timeout", "not a time with its unit");
    one_problem("timeout: soon", ".timeout", "not a time with its unit");
    one_problem("timeout: 500us", ".timeout", "out of range");
    one_problem("timeout: 31s", ".timeout", "out of range");
    one_problem("timeoutSeconds: 0", ".timeoutSeconds", "from 1 to 30");
    one_problem("timeoutSeconds: 31", ".timeoutSeconds", "from 1 to 30");
    one_problem("timeoutSeconds: 1.5", ".timeoutSeconds", "not a whole number");
    one_problem("timeout: 1s, timeoutSeconds: 1", ".timeoutSeconds", "keep one of the two");
    one_problem("rollout: {createAs: Fail}", ".rollout.createAs", "write Ignore");
    one_problem("rollout: {}", ".rollout", "is empty");
    one_problem("rollout: {probeWithin: 10ms}", ".rollout.probeWithin", "out of range");
    one_problem("rollout: {probeWithin: 25h}", ".rollout.probeWithin", "out of range");
    one_problem("rollout: {probeWithin: soon}", ".rollout.probeWithin", "not a time with its unit");
    one_problem("rollout: {probeWithin: 5}", ".rollout.probeWithin", "not a time with its unit");
    one_problem("rollout: {onProbeFailure: Never}", ".rollout.onProbeFailure", "write Wait or Enforce");
    one_problem("rollout: yes", ".rollout", "not a map");
}

#[test]
fn empty_configuration_must_be_explicit() {
    for nothing in ["", "\n", "# hooks\n", "---\n---\n# nothing\n", "null\n", "---\nnull\n...\n"] {
        let message = problems(nothing);
        assert!(message.len() == 1 && message[0].to_string().contains("holds no document"), "{nothing:?}: {message:?}");
    }
    for list in ["{apiVersion: v1, kind: List}", "{apiVersion: v1, kind: List, items: null}"] {
        let message = problems(list);
        assert!(message.len() == 1 && message[0].to_string().contains("items: is missing"), "{list}: {message:?}");
    }
}

#[test]
fn protocols() {
    let of = |keys: &str| of_hook(&format!("{NAME}, {RULES}, {keys}"));
    let over = |url: &str, protocol: &str| of(&format!("clientConfig: {{url: '{url}'}}, {protocol}"));
    let by_service = |service: &str, protocol: &str| {
        of(&format!("clientConfig: {{service: {{namespace: a, name: b{service}}}}}, {protocol}"))
    };
    for found in [
        over("grpcs://h", "protocol: grpc"),
        over("https://h/x?y=z", "protocol: json, admissionReviewVersions: [v9, v1beta1]"),
        over("http://[::1]:1", "protocol: protobuf, admissionReviewVersions: [v1]"),
        over("http+unix:///run/x:/y", "protocol: legacy"),
        by_service("", "protocol: grpc"),
        by_service(", path: /x/", "protocol: json"),
    ] {
        assert_eq!(found, [""; 0]);
    }
    one(&over("grpcs://h", "protocol: json"), ".protocol", "write grpc, or change the URL");
    one(&over("https://h", "protocol: grpc"), ".protocol", "write json, protobuf or legacy");
    one(&over("https://h", "protocol: soap"), ".protocol", "write grpc, json, protobuf or legacy");
    one(&over("grpc://h:1", "admissionReviewVersions: [v1]"), ".admissionReviewVersions", "no meaning");
    one(
        &over("https://h", "protocol: legacy, admissionReviewVersions: [v1]"),
        ".admissionReviewVersions",
        "no meaning",
    );
    one(&over("https://h", "admissionReviewVersions: []"), ".admissionReviewVersions", "is empty");
    one(&over("https://h", "admissionReviewVersions: [v2]"), ".admissionReviewVersions", "no supported version");
    one(&over("https://h", "admissionReviewVersions: [v1, v1]"), ".admissionReviewVersions[1]", "listed twice");
    one(&over("https://h", "admissionReviewVersions: [v1, V2]"), ".admissionReviewVersions[1]", "is not a version");
    let path = ".clientConfig.service.path";
    one(&by_service(", path: x", "protocol: json"), path, "does not begin with /");
    one(&by_service(", path: /x//y", "protocol: json"), path, "an empty step");
    one(&by_service(", path: /X", "protocol: json"), path, "is not a step");
}

#[test]
fn client_configs() {
    one_client_problem("", "", "neither url nor service");
    one_client_problem("url: 'grpcs://h', service: {namespace: a, name: b}", "", "both url and service");
    one_client_problem("url: 7", ".url", "not a text");
    one_client_problem("url: 'http://h'", ".url", "in the clear");
    one_client_problem("url: 'grpc://h'", ".url", "no port");
    one_client_problem("service: {name: b}", ".service.namespace", "is missing");
    one_client_problem("service: {namespace: A, name: b}", ".service.namespace", "is not a name");
    one_client_problem("service: {namespace: a, name: b, port: 0}", ".service.port", "from 1 to 65535");
    one_client_problem(
        "service: {namespace: a, name: b, path: /x}",
        ".service.path",
        "no meaning in this hook's protocol",
    );
    one_client_problem("service: {namespace: a, name: b, paths: /x}", ".service.paths", "did you mean path?");
    one_client_problem("url: 'http://localhost:1', caFile: good.crt", ".caFile", "use https://");
    one_client_problem("url: 'http+unix:///x:/y', serverName: a", ".serverName", "no meaning on a plaintext");
    one_client_problem("url: 'grpc://h:1', caFile: good.crt", ".caFile", "no meaning on a plaintext");
    one_client_problem("url: 'unix:///x', serverName: a", ".serverName", "no meaning on a plaintext");
    one_client_problem("url: 'grpcs://h', serverName: 'a b'", ".serverName", "not a host name");
    one_client_problem("url: 'grpcs://h', caFile: none.pem", ".caFile", "\"none.pem\" cannot be read");
    one_client_problem("url: 'grpcs://h', caFile: text.pem", ".caFile", "no CERTIFICATE section");
    one_client_problem("url: 'grpcs://h', caFile: cut.pem", ".caFile", "no END line");
    one_client_problem("url: 'grpcs://h', caFile: junk.pem", ".caFile", "section 1 holds no X.509 certificate");
    one_client_problem("url: 'grpcs://h', caBundle: '!'", ".caBundle", "not base64");
    one_client_problem("url: 'grpcs://h', caBundle: aGVsbG8=", ".caBundle", "no CERTIFICATE section");
    one_client_problem(
        "url: 'grpcs://h', caBundle: aGVsbG8=, caFile: x",
        ".caFile",
        "caFile and caBundle are both set",
    );
    let authorization = ".authorizationFile";
    one_client_problem(
        "url: 'grpc://h:1', authorizationFile: text.pem",
        authorization,
        "is set for a plaintext address",
    );
    one_client_problem("url: 'grpcs://h', authorizationFile: good.key", authorization, "holds no value of a header");
    one_client_problem("url: 'grpcs://h', authorizationFile: nothing", authorization, "cannot be read");
    one_client_problem("url: 'grpcs://h', clientCertificateFile: good.crt", ".clientKeyFile", "is missing");
    one_client_problem("url: 'grpcs://h', clientKeyFile: good.key", ".clientCertificateFile", "is missing");
    one_client_problem(
        "url: 'grpcs://h', clientCertificateFile: good.crt, clientKeyFile: good.crt",
        ".clientKeyFile",
        "no PRIVATE KEY section",
    );
    one_client_problem(
        "url: 'grpcs://h', clientCertificateFile: good.crt, clientKeyFile: junk.key",
        ".clientKeyFile",
        "cannot be read",
    );
    one_client_problem(
        "url: 'grpcs://h', clientCertificateFile: good.crt, clientKeyFile: other.key",
        ".clientKeyFile",
        "is not the key of the first certificate",
    );
}

#[test]
fn rules() {
    one_rule_problem("apiVersions: [v1], resources: [a]", ".apiGroups", "is missing");
    one_rule_problem("apiGroups: [''], resources: [a]", ".apiVersions", "is missing");
    one_rule_problem("apiGroup: ''", ".resources", "is missing");
    one_rule_problem("apiGroup: '', apiGroups: [''], resources: [a]", ".apiGroup", "keep one of the two");
    one_rule_problem("apiGroup: '', verbs: ['*'], operations: ['*'], resources: [a]", ".verbs", "keep one of the two");
    one_rule_problem("apiGroup: '', verbs: [], resources: [a]", ".verbs", "is empty");
    one_rule_problem("apiGroup: '', verbs: [POST, '*'], resources: [a]", ".verbs", "stand alone");
    one_rule_problem("apiGroup: '', verbs: [get], resources: [a]", ".verbs[0]", "is not one of the allowed words");
    one_rule_problem("apiGroup: '', verbs: POST, resources: [a]", ".verbs", "write it as a list of one");
    one_rule_problem("verbs: ['*'], apiGroups: ['', '*'], resources: [a]", ".apiGroups", "stand alone");
    one_rule_problem("apiGroup: '', apiVersions: [''], resources: [a]", ".apiVersions[0]", "is empty");
    one_rule_problem("apiGroup: '', apiVersions: [1.0], resources: [a]", ".apiVersions[0]", "put it in quotes");
    one_rule_problem("apiGroup: '', resources: ['']", ".resources[0]", "is empty");
    one_rule_problem("apiGroup: '', resources: [Pod]", ".resources[0]", "plural in lower case");
    one_rule_problem("apiGroup: '', resources: ['*', a]", ".resources", "* beside another resource");
    one_rule_problem("apiGroup: '', resources: ['a/*', a/x]", ".resources[1]", "is contained in a/*");
    one_rule_problem("apiGroup: '', resources: ['*/x', a/x]", ".resources[1]", "is contained in */x");
    one_rule_problem("apiGroup: '', resources: ['*/*', a]", ".resources", "*/* beside other entries");
    one_rule_problem("apiGroup: '', resources: [a], scope: Galaxy", ".scope", "write *, Namespaced or Cluster");
    one_rule_problem("apiGroup: '', resources: [a/b], subresources: [c]", ".resources[0]", "one of the two forms");
    one_rule_problem("apiGroup: '', resources: [a], subresources: [b, '*']", ".subresources", "stand alone");
    one_rule_problem("apiGroup: '', resources: [a], resourceNames: [b]", ".resourceNames", "is not a known key");
}

#[test]
fn selectors() {
    let one = |selector: &str, path: &str, says: &str| {
        one_problem(&format!("objectSelector: {selector}"), &format!(".objectSelector{path}"), says);
    };
    let expressions = |list: &str, path: &str, says: &str| {
        one(&format!("{{matchExpressions: [{list}]}}"), path, says);
    };
    one("[]", "", "is a list, not a map");
    one("{matchlabels: {}}", ".matchlabels", "did you mean matchLabels?");
    one("{matchLabels: {a: 'b c'}}", ".matchLabels.a", "is not a label value");
    one("{matchLabels: {a/b/c: x}}", ".matchLabels[\"a/b/c\"]", "is not a label key");
    one("{matchLabels: {a: true}}", ".matchLabels.a", "put it in quotes");
    expressions("{operator: Exists}", ".matchExpressions[0].key", "is missing");
    expressions("{key: a}", ".matchExpressions[0].operator", "is missing");
    expressions("{key: a, operator: Equals}", ".matchExpressions[0].operator", "write In, NotIn");
    expressions("{key: a, operator: In}", ".matchExpressions[0].values", "need at least one value");
    expressions("{key: a, operator: NotIn, values: []}", ".matchExpressions[0].values", "need at least one value");
    expressions("{key: a, operator: Exists, values: [b]}", ".matchExpressions[0].values", "take no values");
    expressions("{key: a, operator: In, values: ['-']}", ".matchExpressions[0].values[0]", "is not a label value");
    expressions("{key: a, operator: In, values: [1]}", ".matchExpressions[0].values[0]", "put it in quotes");
    let never = "can never hold";
    expressions("{key: a, operator: In, values: [x]}, {key: a, operator: NotIn, values: [x, y]}", "", never);
    expressions("{key: a, operator: In, values: [x]}, {key: a, operator: In, values: [y]}", "", never);
    expressions("{key: a, operator: Exists}, {key: a, operator: DoesNotExist}", "", never);
    one("{matchLabels: {a: x}, matchExpressions: [{key: a, operator: DoesNotExist}]}", "", never);
}

#[test]
fn initializers() {
    let of = |entry: &str| problems(&format!("{HEAD}resourceInitializers: [{{{entry}}}]\n"));
    assert!(of("resource: pods, initializers: [a.b.c, {name: d.e.f, failurePolicy: Fail}]").is_empty());
    for (entry, says) in [
        ("initializers: []", "resourceInitializers[0].resource: is missing"),
        ("resource: pods", "resourceInitializers[0].initializers: is missing"),
        ("resource: pods/status, initializers: []", "without a subresource"),
        ("resource: '*', initializers: []", "without a subresource or wildcard"),
        ("apiGroup: A, resource: pods, initializers: []", "is not an API group"),
        ("resource: pods, initializers: [{name: a.b.c, failurePolicy: Retry}]", "write Ignore or Fail"),
        ("resource: pods, initializers: [{}]", "initializers[0].name: is missing"),
        ("resource: pods, initializers: [a.b.c, {name: a.b.c}]", "is listed twice"),
        ("resource: pods, initializer: [], initializers: []", "did you mean initializers?"),
    ] {
        let found = of(entry);
        assert!(found.len() == 1 && found[0].contains(says), "{entry}: {found:#?}");
    }
    // Requests are held for 30 s, objects that are stored unfinished may wait for a day.
    let claimed = "attach: {commonNames: [a]}";
    for (entry, says) in [
        (format!("resource: pods, initializers: [{{name: a.b.c, timeout: 31s, {claimed}}}]"), "stored: Label"),
        ("resource: pods, initializers: [{name: a.b.c, timeout: 1h, builtIn: {labels: {a: b}}}]".into(), "than 30s"),
        ("resource: pods, initializers: [{name: a.b.c, timeout: 25h}]".into(), "from 1ms to 24h"),
        (
            format!("resource: configmaps, stored: Label, initializers: [{{name: a.b.c, timeout: 25h, {claimed}}}]"),
            "from 1ms to 24h",
        ),
    ] {
        let found = of(&entry);
        assert!(found.len() == 1 && found[0].contains(says), "{entry}: {found:#?}");
    }
    assert!(of("resource: pods, initializers: [{name: a.b.c, timeout: 24h}]").is_empty());
    assert!(
        of(&format!("resource: configmaps, stored: Label, initializers: [{{name: a.b.c, timeout: 24h, {claimed}}}]"))
            .is_empty()
    );
    let names = |count: usize| (0..count).map(|n| format!("i{n}.example.com")).collect::<Vec<_>>().join(", ");
    let many = |count| of(&format!("resource: pods, initializers: [{}]", names(count)));
    assert!(many(128).is_empty());
    assert!(many(129)[0].contains("has more than 128 initializers"), "{:#?}", many(129));
}

#[test]
fn resources_without_unfinished_storage_are_rejected() {
    let of = |entry: &str| problems(&format!("{HEAD}resourceInitializers: [{{stored: Label, {entry}}}]\n"));
    let changes = |text: &str| format!("resource: pods, initializers: [{{name: a.b.c, {text}}}]");
    let leaves = ["owners: {users: [a]}, changes: Metadata", "builtIn: {labels: {a: b}, annotations: {c: d}}"];
    for fits in [&changes(leaves[0]), &changes(leaves[1]), "resource: configmaps, initializers: [a.b.c]"] {
        assert_eq!(of(fits), Vec::<String>::new());
    }
    for (entry, says) in [
        (&*changes("owners: {users: [a]}"), "and the spec of a stored Pod cannot be changed"),
        (&*changes("builtIn: {env: [{name: A, value: b}]}"), "and the spec of a stored Pod cannot be changed"),
        ("resource: nodes, initializers: []", "must be seen"),
        ("apiGroup: authorization.k8s.io, resource: subjectaccessreviews, initializers: []", "marks objects that are"),
    ] {
        let found = of(entry);
        assert!(found.len() == 1 && found[0].contains(says), "{entry}: {found:#?}");
    }
}

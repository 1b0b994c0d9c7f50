//! Hooks of a good configuration: defaults, earlier forms of the schema, order, and the description of it.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use bytes::Bytes;
use gatepost_api::{
    FailurePolicy, Gvk, Gvr, HookType, HttpForm, MatchPolicy, Operation, Protocol, Review, ReviewVersion, Rope, Scope,
    SideEffects,
    hook::{Address, Endpoint},
};
use gatepost_config::{Match, MatchKind, MatchSet, Snapshot, SourceFile, load};

fn snapshot(files: &[(&str, &str)]) -> Snapshot {
    let files: Vec<SourceFile> = files
        .iter()
        .map(|(name, text)| SourceFile { name: (*name).into(), bytes: Bytes::copy_from_slice(text.as_bytes()) })
        .collect();
    let made = rcgen::generate_simple_self_signed(["h".to_owned()]).expect("certificate");
    let read = |path: &str| match path {
        "tls.key" | "certificates/gatepost.key" => Ok(made.signing_key.serialize_pem().into_bytes()),
        _ => Ok(made.cert.pem().into_bytes()),
    };
    load(&files, &read).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn pod_review(operation: Operation) -> Review {
    Review {
        uid: "u".into(),
        kind: Gvk { group: "".into(), version: "v1".into(), kind: "Pod".into() },
        resource: Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() },
        sub_resource: "".into(),
        request_kind: None,
        request_resource: None,
        request_sub_resource: "".into(),
        name: "p".into(),
        namespace: "ns".into(),
        operation,
        username: "".into(),
        dry_run: false,
        user: None,
        object: None,
        object_ends: None,
        old_object: None,
        old_object_ends: None,
        options: None,
        encoding: gatepost_api::Encoding::Grpc,
        message: 0..0,
        bytes: Rope::new(Vec::new()),
    }
}

const TWO: &str = "
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: zebra, labels: {a: b}}
externalAdmissionHooks:
- name: last.example.com
  clientConfig: {url: 'grpc://[::1]:9001'}
  rules: [{operations: [CREATE, DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods], scope: Namespaced}]
  failurePolicy: Ignore
  timeout: 250ms
  sideEffects: None
  namespaceSelector:
    matchExpressions: [{key: runlevel, operator: NotIn, values: ['0', '1']}]
---
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: ant}
resourceInitializers:
- {apiGroup: '', resource: pods, initializers: [one.example.com, {name: two.example.com, failurePolicy: Fail}]}
externalAdmissionHooks:
- name: first.example.com
  clientConfig: {service: {namespace: ns, name: svc}}
  rules: [{apiGroup: '*', resources: ['*']}]
- name: second.example.com
  clientConfig: {url: 'unix:///run/hook.sock'}
  rules: [{verbs: [POST, PUT], apiGroup: '', resources: [pods], subresources: ['', status]}]
  rollout: {createAs: Ignore}
";

#[test]
fn hooks_are_ordered_by_configuration_and_then_as_written() {
    let snapshot = snapshot(&[("b.yaml", TWO)]);
    let names: Vec<&str> = snapshot.hooks.iter().map(|hook| &*hook.name).collect();
    assert_eq!(names, ["first.example.com", "second.example.com", "last.example.com"]);
    assert_eq!(snapshot.origin(2).map(|origin| &*origin.configuration), Some("zebra"));
    assert_eq!(snapshot.origin(3), None);
    let matching = |operation| {
        let mut matched = MatchSet::new();
        snapshot.matching(&pod_review(operation), None, &mut matched);
        matched.iter().map(|matched| matched.index).collect::<Vec<_>>()
    };
    assert_eq!(matching(Operation::Create), [0, 1, 2]);
    assert_eq!(matching(Operation::Delete), [0, 2]);
    assert_eq!(matching(Operation::Connect), [0]);
}

#[test]
fn omitted_fields_have_the_defaults_of_kubernetes() {
    let snapshot = snapshot(&[("b.yaml", TWO)]);
    let hook = &snapshot.hooks[0];
    assert_eq!(hook.hook_type, HookType::Validating);
    assert_eq!(hook.failure_policy, FailurePolicy::Fail);
    assert_eq!(hook.timeout, Duration::from_secs(10));
    assert_eq!(hook.side_effects, SideEffects::Undeclared);
    assert!(hook.namespace_selector.is_empty() && hook.object_selector.is_empty());
    assert_eq!(hook.rules[0].operations, Operation::ALL);
    assert_eq!(hook.rules[0].api_versions, ["*".into()]);
    assert_eq!(hook.rules[0].scope, Scope::Any);
    let Endpoint { address: Address::Tcp { host, port: 443 }, tls: Some(tls), .. } = &hook.endpoint else {
        panic!("{:?}", hook.endpoint);
    };
    assert_eq!((&**host, &*tls.server_name), ("svc.ns.svc", "svc.ns.svc"));
}

#[test]
fn the_earlier_forms_mean_the_same() {
    let hook = snapshot(&[("b.yaml", TWO)]).hooks[1].clone();
    assert_eq!(hook.rules[0].operations, [Operation::Create, Operation::Update]);
    assert_eq!(hook.rules[0].resources, ["pods".into(), "pods/status".into()]);
    assert_eq!(hook.endpoint.address, Address::Unix("/run/hook.sock".into()));
}

#[test]
fn rollout_fails_open_and_keeps_the_later_settings() {
    let snapshot = snapshot(&[("b.yaml", TWO)]);
    assert_eq!(snapshot.hooks[1].failure_policy, FailurePolicy::Ignore);
    let origin = snapshot.origin(1).expect("origin");
    assert_eq!((origin.rolling_out, origin.declared_policy), (true, FailurePolicy::Fail));
}

#[test]
fn http_hooks_choose_the_form_of_the_review() {
    let hook = |n: usize, keys: &str| format!("- {{name: hook{n}, rules: [], {keys}}}\n");
    let asked = [
        "clientConfig: {url: 'https://h/a?b=c'}, admissionReviewVersions: [v1beta1]",
        "clientConfig: {url: 'http://127.0.0.1:1'}, protocol: protobuf",
        "clientConfig: {url: 'http+unix:///run/hook.sock:/a'}, protocol: legacy",
        "clientConfig: {service: {namespace: ns, name: svc, path: /a}}, protocol: json, matchPolicy: Exact",
        "clientConfig: {service: {namespace: ns, name: svc}}",
    ];
    let mut text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\n\
                    metadata: {name: x.static.k8s.io}\nexternalAdmissionHooks:\n"
        .to_owned();
    asked.iter().enumerate().for_each(|(n, keys)| text.push_str(&hook(n, keys)));
    let snapshot = snapshot(&[("a.yaml", &text)]);
    let http = |path: &str, form| Protocol::Http { path: path.into(), form };
    let found: Vec<_> = snapshot.hooks.iter().map(|hook| (hook.endpoint.to_string(), hook.protocol.clone())).collect();
    assert_eq!(
        found,
        [
            ("https://h:443".into(), http("/a?b=c", HttpForm::Json(ReviewVersion::V1beta1))),
            ("http://127.0.0.1:1".into(), http("/", HttpForm::Protobuf(ReviewVersion::V1))),
            ("http+unix:///run/hook.sock".into(), http("/a", HttpForm::Legacy)),
            ("https://svc.ns.svc:443".into(), http("/a", HttpForm::Json(ReviewVersion::V1))),
            ("grpcs://svc.ns.svc:443".into(), Protocol::Grpc),
        ]
    );
    let policies: Vec<_> = snapshot.hooks.iter().map(|hook| hook.match_policy).collect();
    let equivalent = MatchPolicy::Equivalent;
    assert_eq!(policies, [equivalent, equivalent, equivalent, MatchPolicy::Exact, equivalent]);
    assert!(snapshot.hooks.iter().all(|hook| !hook.sees_admission_config), "whatever its name, ours is not static");
}

#[test]
fn initializers_keep_their_order() {
    let snapshot = snapshot(&[("b.yaml", TWO)]);
    let [pods] = snapshot.initializers() else { panic!("{:?}", snapshot.initializers()) };
    let names: Vec<_> = pods.initializers.iter().map(|one| (&*one.name, one.failure_policy)).collect();
    assert_eq!(names, [("one.example.com", FailurePolicy::Ignore), ("two.example.com", FailurePolicy::Fail)]);
}

#[test]
fn namespaces_come_from_lists_and_json_as_well() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"tier": "x"}},
         "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}]}"#;
    let yaml = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n";
    let snapshot = snapshot(&[("namespaces.json", list), ("b.yaml", yaml)]);
    let labels = snapshot.namespace_labels("a").expect("a");
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("kubernetes.io/metadata.name", "a"), ("tier", "x")]);
    assert_eq!(snapshot.namespace_labels("b").and_then(|labels| labels.get("kubernetes.io/metadata.name")), Some("b"));
    assert!(snapshot.namespace_labels("c").is_none());
}

#[test]
fn shown_configuration_is_effective_and_without_keys() {
    let text = "apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: default}
externalAdmissionHooks:
- name: a.example.com
  clientConfig: {url: 'grpcs://h:1', caFile: ca.crt, clientCertificateFile: tls.crt, clientKeyFile: tls.key}
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  rollout: {createAs: Ignore}
  objectSelector: {matchLabels: {b: c}, matchExpressions: [{key: a, operator: Exists}]}
";
    let shown = snapshot(&[("a.yaml", text)]).describe();
    assert_eq!(
        shown["hooks"][0],
        serde_json::json!({
            "name": "a.example.com",
            "id": "default/a.example.com/0",
            "configuration": "default",
            "type": "Validating",
            "endpoint": "grpcs://h:1",
            "tls": {"serverName": "h", "authorities": "own", "clientCertificate": true},
            "authorization": false,
            "phase": null,
            "after": [],
            "protocol": "grpc", "objectEncoding": null,
            "matchPolicy": "Equivalent",
            "seesAdmissionConfiguration": false,
            "rules": [{
                "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"],
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "resources": ["deployments"],
                "scope": "*",
            }],
            "failurePolicy": "Ignore",
            "enforcement": "Deny",
            "canary": null,
            "rollout": {"createAs": "Ignore", "then": "Fail", "probeWithin": "5m", "onProbeFailure": "Wait"},
            "timeoutMilliseconds": 10_000.0,
            "sideEffects": "",
            "namespaceSelector": "",
            "objectSelector": "a,b=c",
        })
    );
    assert!(!shown.to_string().contains("BEGIN"));
}

#[test]
fn anchors_and_merge_keys_spare_writing() {
    let mut text = String::from(
        "apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: default}
externalAdmissionHooks:
- &first
  name: hook0
  clientConfig: {url: 'grpc://127.0.0.1:9001'}
  rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]
  failurePolicy: Ignore
",
    );
    (1..500).for_each(|n| text.push_str(&format!("- {{<<: *first, name: hook{n}, timeout: 1s}}\n")));
    let snapshot = snapshot(&[("a.yaml", &text)]);
    let last = snapshot.hooks.last().expect("a hook");
    assert_eq!((snapshot.hooks.len(), &*last.name, last.timeout), (500, "hook499", Duration::from_secs(1)));
    assert_eq!((last.failure_policy, &last.rules), (FailurePolicy::Ignore, &snapshot.hooks[0].rules));
}

#[test]
fn every_example_is_good() {
    let root = std::path::Path::new("examples/config");
    let folders = ["minimal", "namespaces", "mtls", "webhooks", "bypass"];
    for folder in folders {
        let mut files: Vec<_> = std::fs::read_dir(root.join(folder))
            .expect(folder)
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
            .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("text")))
            .collect();
        files.sort();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        assert!(!snapshot(&files).hooks.is_empty(), "{folder}");
    }
}

#[test]
fn the_empty_snapshot_matches_nothing() {
    let mut matched = MatchSet::from_slice(&[Match { index: 7, how: MatchKind::AsMade }]);
    Snapshot::empty().matching(&pod_review(Operation::Create), None, &mut matched);
    assert!(matched.is_empty());
}

#[test]
fn hooks_follow_those_that_their_after_names() {
    let document = |name: &str, hooks: &[(&str, &str)]| {
        let entry = |(hook, after): &(&str, &str)| {
            format!(
                "- name: {hook}.example.com\n  type: Mutating\n  clientConfig: {{url: 'grpcs://h'}}\n  rules: []\n  sideEffects: None\n{after}"
            )
        };
        format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
             externalAdmissionHooks:\n{}",
            hooks.iter().map(entry).collect::<String>()
        )
    };
    let after = |names: &str| format!("  after: [{names}]\n");
    let one = document("a", &[("first", &after("last.example.com, none.example.com")), ("second", "")]);
    let other = document("b", &[("x", &after("y.example.com")), ("y", &after("x.example.com")), ("last", "")]);
    let snapshot = snapshot(&[("a.yaml", &one), ("b.yaml", &other)]);
    let names: Vec<_> = snapshot.hooks.iter().map(|hook| hook.name.trim_end_matches(".example.com")).collect();
    assert_eq!(names, ["last", "first", "second", "x", "y"]);
    let notes: Vec<_> = snapshot.notes().iter().map(|note| &*note.what).collect();
    let waiting = "hooks wait for each other: x.example.com after y.example.com after x.example.com";
    assert_eq!(notes, ["no hook is called \"none.example.com\"", waiting]);
}

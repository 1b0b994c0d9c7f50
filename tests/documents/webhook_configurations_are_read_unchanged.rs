//! Kubernetes' own webhook configurations: read as kubectl prints them, and refused where kube-apiserver would refuse
//! them on creation. Upstream's own cases are in `tests/conformance.rs`.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use bytes::Bytes;
use gatepost_api::{
    Dispatch, Enforcement, FailurePolicy, HookType, HttpForm, MatchPolicy, OnProbeFailure, Protocol, Reinvocation,
    ReviewVersion, Transport,
};
use gatepost_config::{Snapshot, SourceFile, checked_webhook_configuration, load};
use serde_json::{Value, json};

fn loaded(files: &[(&str, &str)]) -> Result<Snapshot, Vec<String>> {
    let files: Vec<SourceFile> = files
        .iter()
        .map(|(name, text)| SourceFile { name: (*name).into(), bytes: Bytes::copy_from_slice(text.as_bytes()) })
        .collect();
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    load(&files, &nothing).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// As `kubectl get validatingwebhookconfigurations -o yaml` prints it.
const LIVE: &str = "
apiVersion: v1
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata:
    annotations: {cert-manager.io/inject-ca-from: policy/serving}
    creationTimestamp: '2026-01-01T00:00:00Z'
    generation: 2
    managedFields:
    - apiVersion: admissionregistration.k8s.io/v1
      fieldsType: FieldsV1
      fieldsV1: {'f:webhooks': {.: {}, 'k:{\"name\":\"validate.policy.example.com\"}': {'f:rules': {}}}}
      manager: kubectl
      operation: Update
      time: '2026-01-01T00:00:00Z'
    name: policy
    resourceVersion: '12345'
    uid: 3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11
  webhooks:
  - admissionReviewVersions: [v2, v1beta1, v1]
    clientConfig:
      service: {name: policy, namespace: policy-system, path: /validate, port: 8443}
    failurePolicy: Ignore
    matchPolicy: Exact
    name: validate.policy.example.com
    namespaceSelector: {}
    objectSelector: {matchLabels: {a: b}}
    rules:
    - apiGroups: ['']
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [pods, POds]
      scope: Namespaced
    sideEffects: None
    timeoutSeconds: 3
  - admissionReviewVersions: [v1]
    clientConfig: {url: 'https://h.example.com/check?'}
    name: other.policy.example.com
    namespaceSelector: null
    sideEffects: NoneOnDryRun
kind: List
metadata: {resourceVersion: ''}
";

#[test]
fn a_live_object_is_read_as_it_is_printed() {
    let snapshot = loaded(&[("live.yaml", LIVE)]).expect("good");
    let [said, unsaid] = &snapshot.hooks[..] else { panic!("{:?}", snapshot.hooks) };
    assert_eq!((&*said.id, &*said.name), ("policy/validate.policy.example.com/0", "validate.policy.example.com"));
    assert_eq!(said.endpoint.to_string(), "https://policy.policy-system.svc:8443");
    assert_eq!(said.endpoint.transport, Transport::Http);
    let form = HttpForm::Json(ReviewVersion::V1beta1);
    assert_eq!(said.protocol, Protocol::Http { path: "/validate".into(), form });
    assert_eq!((said.failure_policy, said.match_policy), (FailurePolicy::Ignore, MatchPolicy::Exact));
    assert_eq!((said.timeout, said.object_selector.to_string()), (Duration::from_secs(3), "a=b".to_owned()));
    assert_eq!(said.rules.len(), 1);
    assert!(!said.sees_admission_config);

    assert_eq!(unsaid.endpoint.to_string(), "https://h.example.com:443");
    let form = HttpForm::Json(ReviewVersion::V1);
    assert_eq!(unsaid.protocol, Protocol::Http { path: "/check".into(), form });
    assert_eq!((unsaid.failure_policy, unsaid.match_policy), (FailurePolicy::Fail, MatchPolicy::Equivalent));
    assert_eq!((unsaid.timeout, unsaid.rules.len()), (Duration::from_secs(10), 0));
    assert!(unsaid.namespace_selector.is_empty() && unsaid.object_selector.is_empty());
    assert!(snapshot.notes().is_empty());
}

/// A configuration of one webhook.
fn one(kind: &str, name: &str, hook: &str, more: &str) -> String {
    format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: {kind}, metadata: {{name: {name}}}, webhooks: [{{\
         name: {hook}, clientConfig: {{url: 'https://h'}}, admissionReviewVersions: [v1], sideEffects: None, {more}}}]}}"
    )
}

const VALIDATING: &str = "ValidatingWebhookConfiguration";
const MUTATING: &str = "MutatingWebhookConfiguration";

#[test]
fn static_configurations_come_first() {
    let ours = "{apiVersion: gatepost.dev/v1alpha1, kind: AdmissionControlConfiguration, metadata: {name: m}, \
                externalAdmissionHooks: [{name: ours, clientConfig: {url: 'https://h'}, rules: []}]}";
    let text = [
        one(VALIDATING, "z", "a.b.c", ""),
        one(VALIDATING, "y.static.k8s.io", "a.b.c", ""),
        ours.to_owned(),
        one(VALIDATING, "a", "a.b.c", ""),
        one(VALIDATING, "x.static.k8s.io", "a.b.c", ""),
    ]
    .join("\n---\n");
    let snapshot = loaded(&[("all.yaml", &text)]).expect("good");
    let found: Vec<_> = snapshot.hooks.iter().map(|hook| (&*hook.id, hook.sees_admission_config)).collect();
    assert_eq!(
        found,
        [
            ("manifest/x.static.k8s.io/a.b.c/0", true),
            ("manifest/y.static.k8s.io/a.b.c/0", true),
            ("a/a.b.c/0", false),
            ("m/ours/0", false),
            ("z/a.b.c/0", false),
        ]
    );
}

#[test]
fn a_static_configuration_names_no_service() {
    let by_service = |name: &str| {
        let text = one(VALIDATING, name, "a.b.c", "");
        loaded(&[("a.yaml", &text.replace("url: 'https://h'", "service: {namespace: a, name: b}"))]).map(|_| ())
    };
    assert_eq!(by_service("plain"), Ok(()));
    let found = by_service("x.static.k8s.io").expect_err("refused");
    assert!(found.len() == 1 && found[0].starts_with("a.yaml: webhooks[0].clientConfig.service: "), "{found:#?}");
}

#[test]
fn stored_objects_are_not_static_by_name() {
    for sign in ["annotations: {gatepost.dev/static: 'false'}", "uid: 0e2f1f0a-2f0c-4d69-9a4e-0a7c9b54d1f3"] {
        let text = one(VALIDATING, "x.static.k8s.io", "a.b.c", "")
            .replace("url: 'https://h'", "service: {namespace: a, name: b}")
            .replace("name: x.static.k8s.io", &format!("name: x.static.k8s.io, {sign}"));
        let snapshot = loaded(&[("a.yaml", &text)]).expect(sign);
        let found: Vec<_> = snapshot.hooks.iter().map(|hook| (&*hook.id, hook.sees_admission_config)).collect();
        assert_eq!(found, [("x.static.k8s.io/a.b.c/0", false)], "{sign}");
    }
}

#[test]
fn mutating_and_validating_hooks_may_share_a_name() {
    let text = one(MUTATING, "m", "a.b.c", "reinvocationPolicy: IfNeeded");
    let snapshot = loaded(&[("m.yaml", &text), ("v.yaml", &one(VALIDATING, "m", "a.b.c", ""))]).expect("good");
    let types: Vec<_> = snapshot.hooks.iter().map(|hook| hook.hook_type).collect();
    assert_eq!(types, [HookType::Mutating, HookType::Validating]);
    assert_eq!(snapshot.hooks[0].reinvocation, Reinvocation::IfNeeded);
    let ids: Vec<_> = snapshot.hooks.iter().map(|hook| &*hook.id).collect();
    assert_eq!(ids, ["m/a.b.c/0", "m/a.b.c/1"], "each has its own");
    assert!(snapshot.notes().is_empty(), "{:?}", snapshot.notes());
    let document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": MUTATING, "metadata": {"name": "m"}, "webhooks": [
            {"name": "a.b.c", "clientConfig": {"url": "https://h"}, "admissionReviewVersions": ["v1"],
             "sideEffects": "None"}]});
    let hooks = checked_webhook_configuration("m", &document).expect("good");
    assert_eq!((hooks[0].hook_type, &*hooks[0].id), (HookType::Mutating, "m/a.b.c/0"));
}

#[test]
fn rejections_name_the_place_in_the_document() {
    for (kind, more, place) in [
        (VALIDATING, "reinvocationPolicy: Never", "webhooks[0].reinvocationPolicy: is not a known key"),
        (MUTATING, "reinvocationPolicy: Always", "webhooks[0].reinvocationPolicy: \"Always\""),
        (VALIDATING, "timeout: 1s", "webhooks[0].timeout: is not a known key"),
        (VALIDATING, "failurePolicy: Retry", "webhooks[0].failurePolicy: \"Retry\""),
        (VALIDATING, "matchPolicy: Similar", "webhooks[0].matchPolicy: \"Similar\""),
        (VALIDATING, "rules: [{}]", "webhooks[0].rules[0].operations: is missing"),
        (
            VALIDATING,
            "rules: [{operations: [POST], apiGroups: [a], apiVersions: [b], resources: [c]}]",
            "webhooks[0].rules[0].operations[0]: \"POST\"",
        ),
        (
            VALIDATING,
            "rules: [{verbs: [POST], operations: ['*'], apiGroups: [a], apiVersions: [b], resources: [c]}]",
            "webhooks[0].rules[0].verbs: is not a known key",
        ),
        (
            VALIDATING,
            "matchConditions: [{name: a, expression: 'object.kind'}]",
            "webhooks[0].matchConditions[0].expression: cannot be evaluated: must evaluate to bool but got dyn, so \
             whether the hook is asked could not be decided; correct the expression; where an apiserver \
             accepts it as it is, leave this webhook registered there",
        ),
        (VALIDATING, "matchConditions: [{name: a}]", "webhooks[0].matchConditions[0].expression: is missing"),
        (VALIDATING, "namespaceSelector: {matchLabels: {a: 'b c'}}", "webhooks[0].namespaceSelector.matchLabels.a: "),
        (VALIDATING, "objectSelector: {matchExpressions: [{key: a, operator: In}]}", "webhooks[0].objectSelector."),
    ] {
        let found = loaded(&[("a.yaml", &one(kind, "n", "a.b.c", more))]).expect_err(more);
        assert!(found.iter().any(|problem| problem.starts_with(&format!("a.yaml: {place}"))), "{place}: {found:#?}");
    }
    // Kubernetes allows what nothing can meet.
    let never = "objectSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}";
    assert!(loaded(&[("a.yaml", &one(VALIDATING, "n", "a.b.c", never))]).is_ok());
}

#[test]
fn configuration_and_hook_names_are_unique() {
    let two = |first: (&str, &str), second: (&str, &str)| {
        let [first, second] = [first, second].map(|(kind, name)| one(kind, name, "a.b.c", ""));
        loaded(&[("a.yaml", &first), ("b.yaml", &second)]).map(|_| ())
    };
    assert_eq!(two((VALIDATING, "n"), (VALIDATING, "m")), Ok(()));
    assert_eq!(two((VALIDATING, "n"), (MUTATING, "n")), Ok(()));
    assert_eq!(
        two((VALIDATING, "n"), (VALIDATING, "n")),
        Err(vec![
            "b.yaml: metadata.name: the configuration \"n\" is already defined at a.yaml: metadata.name, and \
             logs, metrics and denials tell them apart by their names; rename one, or remove one"
                .to_owned()
        ])
    );
}

#[test]
fn items_of_a_typed_list_need_no_kind() {
    let list = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfigurationList",
        "metadata": {"resourceVersion": "1"},
        "items": [{"metadata": {"name": "n"}, "webhooks": [{
            "name": "a.b.c", "clientConfig": {"url": "https://h"}, "admissionReviewVersions": ["v1"],
            "sideEffects": "None"}]}]});
    let snapshot = loaded(&[("list.json", &list.to_string())]).expect("good");
    assert_eq!(&*snapshot.hooks[0].id, "n/a.b.c/0");
}

/// Annotations of a configuration of webhooks say what our own kind says for each hook by keys.
#[test]
fn annotation_sets_the_enforcement_of_webhooks() {
    let written = |kind: &str, annotation: &str| {
        let webhook = "clientConfig: {url: 'https://h.example.com/'}, admissionReviewVersions: [v1], sideEffects: None";
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: m, annotations: {{{annotation}}}}}\n\
             webhooks: [{{name: a.b.c, {webhook}}}, {{name: d.e.f, {webhook}}}]\n"
        )
    };
    for kind in [MUTATING, "ValidatingWebhookConfiguration"] {
        for (word, wanted) in [
            ("Deny", Enforcement::Deny),
            ("Warn", Enforcement::Warn),
            ("Audit", Enforcement::Audit),
            ("Shadow", Enforcement::Shadow),
        ] {
            let text = written(kind, &format!("gatepost.dev/enforcement: {word}"));
            let snapshot = loaded(&[("a.yaml", &text)]).expect("good");
            assert!(snapshot.hooks.iter().all(|hook| hook.enforcement == wanted), "{kind} {word}");
            let noted =
                snapshot.notes().iter().filter(|note| note.what.ends_with(&format!("has the enforcement {word}")));
            assert_eq!(noted.count(), if wanted == Enforcement::Deny { 0 } else { 2 }, "{kind} {word}");
        }
        let none = loaded(&[("a.yaml", &written(kind, ""))]).expect("good");
        assert_eq!(none.hooks[0].enforcement, Enforcement::Deny);
        let problems = loaded(&[("a.yaml", &written(kind, "gatepost.dev/enforcement: warn"))]).expect_err("one letter");
        assert!(
            matches!(&problems[..], [one] if one.contains("gatepost.dev/enforcement") && one.contains("did you mean Warn?")),
            "{problems:?}"
        );
    }
}

#[test]
fn an_annotation_makes_a_configuration_of_one_webhook_a_canary() {
    let webhook = |name: &str| {
        format!(
            "{{name: {name}, clientConfig: {{url: 'https://h.example.com/'}}, admissionReviewVersions: [v1], sideEffects: None}}"
        )
    };
    let written = |name: &str, annotations: &str, webhooks: &[String]| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: {MUTATING}\nmetadata: {{name: {name}, annotations: \
             {{{annotations}}}}}\nwebhooks: [{}]\n",
            webhooks.join(", ")
        )
    };
    let canary = "gatepost.dev/canary: 0.5% of a.b.c";
    let old = written("old", "", &[webhook("a.b.c")]);
    let load = |text: &str| loaded(&[("a.yaml", &old), ("b.yaml", text)]);
    let snapshot = load(&written("new", canary, &[webhook("d.e.f")])).expect("good");
    let [pair] = snapshot.hook_canaries().pairs() else { panic!("{:?}", snapshot.hook_canaries()) };
    assert_eq!((&*pair.name, &*pair.canary.to_string()), ("d.e.f", "0.50% of a.b.c"));
    let noted: Vec<_> = snapshot.notes().iter().map(|note| &*note.what).collect();
    assert!(noted.contains(&"hook \"d.e.f\" is a canary: it decides 0.50% of a.b.c"), "{noted:?}");
    for (text, says) in [
        (written("new", canary, &[webhook("d.e.f"), webhook("g.h.i")]), "only a configuration of one webhook has it"),
        (
            written("new", &format!("{canary}, gatepost.dev/enforcement: Warn"), &[webhook("d.e.f")]),
            "only what has the enforcement Deny",
        ),
        (written("new", "gatepost.dev/canary: 5%", &[webhook("d.e.f")]), "\"5%\" is no share of the requests"),
    ] {
        let problems = load(&text).expect_err(says);
        assert!(
            matches!(&problems[..], [one] if one.contains(says) && one.contains("gatepost.dev/canary")),
            "{problems:?}"
        );
    }
}

/// A name that is not there, or that cannot share requests, is noted: the canary then decides every request.
#[test]
fn canary_without_a_counterpart_is_noted() {
    let head = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: n}\nexternalAdmissionHooks:\n";
    let hook = |name: &str, more: &str| {
        format!("- {{name: {name}, clientConfig: {{url: 'grpc://[::1]:1'}}, rules: []{more}}}\n")
    };
    let canary = hook("new", ", canary: 5% of old");
    for (others, reason) in [
        (String::new(), "no hook of its type is called \"old\""),
        (hook("old", ", type: Mutating"), "no hook of its type is called \"old\""),
        (hook("old", ", enforcement: Audit"), "\"old\" denies nothing"),
        (
            hook("old", ", matchPolicy: Exact"),
            "its rules name other groups or versions than those of \"old\", or have another matchPolicy",
        ),
        (hook("old", ", phase: Transactional, sideEffects: None"), "hooks that keep accounts cannot share requests"),
        (hook("old", ", canary: 5% of new"), "\"old\" is a canary itself"),
        (hook("old", "") + &hook("another", ", canary: 1% of old"), "\"old\" has another canary"),
    ] {
        let text = format!("{head}{others}{canary}");
        let snapshot = loaded(&[("a.yaml", &text)]).expect("good");
        let noted: Vec<_> = snapshot.notes().iter().map(|note| &*note.what).collect();
        let wanted = format!("hook \"new\" is a canary of nothing: {reason}");
        assert!(noted.contains(&&*wanted), "{noted:?}");
        assert!(snapshot.hook_canaries().canary(HookType::Validating, "new").is_none());
    }
}

/// What is registered apart, or wants another version, is called by another review, whose UID is another.
#[test]
fn only_what_is_called_by_one_review_shares_requests() {
    let head = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: n}\nexternalAdmissionHooks:\n";
    let hook = |name: &str, more: &str, rules: &[(&str, &str)]| {
        let rule = |(group, version): &(&str, &str)| {
            format!("{{apiGroups: ['{group}'], apiVersions: ['{version}'], operations: ['*'], resources: ['*']}}")
        };
        let rules: Vec<_> = rules.iter().map(rule).collect();
        format!(
            "- {{name: {name}, type: Mutating, clientConfig: {{url: 'grpc://[::1]:1'}}, rules: [{}]{more}}}\n",
            rules.join(", ")
        )
    };
    let canary = ", canary: 5% of old";
    for (old, new, paired) in [
        (hook("old", "", &[("apps", "v1")]), hook("new", canary, &[("apps", "v1")]), true),
        (hook("old", "", &[("apps", "v1")]), hook("new", canary, &[("apps", "v1"), ("batch", "v1")]), false),
        (hook("old", "", &[("apps", "v1")]), hook("new", canary, &[("apps", "v1beta1")]), false),
        (hook("old", "", &[("apps", "v1")]), hook("new", canary, &[("apps", "v1"), ("apps", "v1beta1")]), false),
        (hook("old", "", &[("apps", "v1")]), hook("new", canary, &[("*", "v1")]), false),
        (
            hook("old", ", matchPolicy: Exact", &[("apps", "v1")]),
            hook("new", &format!("{canary}, matchPolicy: Exact"), &[("apps", "v1beta1"), ("batch", "v1")]),
            true,
        ),
        (hook("old", "", &[("*", "*")]), hook("new", canary, &[("*", "*")]), true),
        (
            hook("old", "", &[("apps", "v1")]),
            hook("new", &format!("{canary}, isolate: true"), &[("apps", "v1")]),
            false,
        ),
    ] {
        let snapshot = loaded(&[("a.yaml", &format!("{head}{old}{new}"))]).expect("good");
        let canary = snapshot.hook_canaries().canary(HookType::Mutating, "new");
        assert_eq!(canary.is_some(), paired, "{old}{new}{:?}", snapshot.notes());
    }
}

#[test]
fn annotations_configure_calls_of_mutating_webhooks() {
    let written = |kind: &str, annotations: &str| {
        let webhook = "{name: a.b.c, clientConfig: {url: 'https://h.example.com/'}, admissionReviewVersions: [v1], sideEffects: None}";
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: m, annotations: {{{annotations}}}}}\n\
             webhooks: [{webhook}]\n"
        )
    };
    let validating = "ValidatingWebhookConfiguration";
    for (kind, annotations, dispatch, isolated) in [
        (MUTATING, "", None, false),
        (MUTATING, "gatepost.dev/dispatch: Serial", Some(Dispatch::Serial), false),
        (MUTATING, "gatepost.dev/dispatch: Speculative", Some(Dispatch::Speculative), false),
        (MUTATING, "gatepost.dev/isolate: 'true', gatepost.dev/dispatch: Serial", Some(Dispatch::Serial), true),
        (validating, "gatepost.dev/isolate: 'true', gatepost.dev/dispatch: Serial", None, false),
        (validating, "gatepost.dev/dispatch: never", None, false),
    ] {
        let snapshot = loaded(&[("a.yaml", &written(kind, annotations))]).expect("good");
        assert_eq!((snapshot.hooks[0].dispatch, snapshot.hooks[0].isolated), (dispatch, isolated), "{annotations}");
    }
    let problems = loaded(&[("a.yaml", &written(MUTATING, "gatepost.dev/dispatch: serial"))]).expect_err("one letter");
    assert!(
        matches!(&problems[..], [one] if one.contains("gatepost.dev/dispatch") && one.contains("Serial")),
        "{problems:?}"
    );
    for kind in [MUTATING, validating] {
        let on_probe_failure = |annotations: &str| {
            let snapshot = loaded(&[("a.yaml", &written(kind, annotations))])?;
            Ok::<_, Vec<String>>(snapshot.origin(0).expect("a hook").rollout.on_probe_failure)
        };
        assert_eq!(on_probe_failure(""), Ok(OnProbeFailure::Wait));
        assert_eq!(on_probe_failure("gatepost.dev/on-probe-failure: Wait"), Ok(OnProbeFailure::Wait));
        assert_eq!(on_probe_failure("gatepost.dev/on-probe-failure: Enforce"), Ok(OnProbeFailure::Enforce));
        let problems = on_probe_failure("gatepost.dev/on-probe-failure: enforce").expect_err("one letter");
        let names = |one: &str| one.contains("gatepost.dev/on-probe-failure") && one.contains("did you mean Enforce?");
        assert!(matches!(&problems[..], [one] if names(one)), "{problems:?}");
    }
}

/// An apiserver decodes null as a field that is not there: in a list, a map and a text alike.
#[test]
fn null_is_read_as_absent_in_every_field_that_may_be_left_out() {
    let full = json!({"name": "a.b.c", "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 1, "path": "/p"},
            "caBundle": null, "url": null}, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}],
        "failurePolicy": "Ignore", "matchPolicy": "Exact", "timeoutSeconds": 3, "reinvocationPolicy": "IfNeeded",
        "namespaceSelector": {"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "Exists", "values": []}]},
        "objectSelector": {"matchLabels": {"a": "b"}}, "matchConditions": [{"name": "d", "expression": "true"}]});
    let optional = [
        "/failurePolicy",
        "/matchPolicy",
        "/timeoutSeconds",
        "/reinvocationPolicy",
        "/rules",
        "/rules/0/scope",
        "/namespaceSelector",
        "/namespaceSelector/matchLabels",
        "/namespaceSelector/matchExpressions",
        "/namespaceSelector/matchExpressions/0/values",
        "/objectSelector",
        "/matchConditions",
        "/clientConfig/service/port",
        "/clientConfig/service/path",
    ];
    let read = |webhooks: Value| {
        let document = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": MUTATING,
            "metadata": {"name": "m", "annotations": null, "labels": null}, "webhooks": webhooks});
        let snapshot = loaded(&[("a.json", &document.to_string())]).unwrap_or_else(|problems| panic!("{problems:?}"));
        snapshot.hooks.iter().map(|hook| format!("{hook:?}")).collect::<Vec<_>>()
    };
    for pointer in optional {
        let (mut nulled, mut absent) = (full.clone(), full.clone());
        let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
        *nulled.pointer_mut(pointer).expect("a field") = Value::Null;
        absent.pointer_mut(parent).and_then(Value::as_object_mut).expect("a map").remove(key);
        assert_eq!(read(json!([nulled])), read(json!([absent])), "{pointer}");
    }
    for kind in [MUTATING, "ValidatingWebhookConfiguration"] {
        let written = format!("apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: m}}\n");
        let cut = loaded(&[("a.yaml", &format!("{written}webhooks:\n"))]).expect_err("perhaps still being written");
        assert!(cut.len() == 1 && cut[0].contains("webhooks: is empty, not a list"), "{cut:?}");
        for webhooks in ["", "webhooks: null\n", "webhooks: ~\n", "webhooks: []\n", "webhooks:\n---\n"] {
            let hooks = loaded(&[("a.yaml", &(written.clone() + webhooks))]).map(|snapshot| snapshot.hooks.len());
            assert_eq!(hooks, Ok(0), "{kind} {webhooks:?}");
        }
    }
}

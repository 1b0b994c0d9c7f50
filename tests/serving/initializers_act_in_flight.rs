//! Initializers act on a new object while the call that creates it is held: in order, between mutating and validating
//! hooks, each on what those before it have made of the object.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{
    gate::{caller, gate, open_break_glass},
    http_hook::{HttpHook, HttpScript, Judge},
    reviews::{create_pod, message, pod},
};
use bytes::Bytes;
use gatepost::{
    live::Namespaces,
    review::{AdmissionDeps, Caller, Reasons, decide},
};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_base::memory::MemoryBudget;
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::runtime::RawExtension,
    },
};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(20);

/// Initializers of Pods, and hooks, in one configuration; the namespace `shop` is of team red.
fn configured(initializers: &str, hooks: &str) -> Arc<AdmissionDeps> {
    let yaml = format!(
        r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: test}}
resourceInitializers:
- resource: pods
  mayInitialize: {{users: [admin], groups: [ops]}}
  initializers:
{initializers}
externalAdmissionHooks: [{hooks}]
---
apiVersion: v1
kind: Namespace
metadata: {{name: shop, labels: {{team: red}}}}
"
    );
    gate(&yaml, Reasons::First)
}

fn labels(name: &str, more: &str, labels: &str) -> String {
    format!("  - {{name: {name}.example.com, {more} builtIn: {{labels: {{{labels}}}}}}}\n")
}

async fn ask(gate: &AdmissionDeps, phase: Phase, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase, ..caller(LONG) }).await
}

fn with_object(request: AdmissionRequest, change: impl FnOnce(&mut Value)) -> AdmissionRequest {
    let raw = request.object.clone().unwrap().raw.unwrap();
    let mut object: Value = serde_json::from_slice(&raw).unwrap();
    change(&mut object);
    AdmissionRequest { object: Some(RawExtension { raw: Some(object.to_string().into()) }), ..request }
}

fn by(user: &str, groups: &[&str], request: AdmissionRequest) -> AdmissionRequest {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    let user_info = Some(UserInfo { username: Some(user.to_owned()), groups, ..Default::default() });
    AdmissionRequest { user_info, ..request }
}

fn annotated(key: &str, value: &str, request: AdmissionRequest) -> AdmissionRequest {
    with_object(request, |object| object["metadata"]["annotations"][key] = value.into())
}

/// The object as the verdict leaves it.
fn object(verdict: &Verdict, arrived: Bytes) -> Value {
    let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).unwrap();
    let patched = Document::new(Rope::new([arrived])).unwrap().patched(&patch, PatchLimits::default()).unwrap();
    serde_json::from_slice(&patched.rope().to_bytes()).unwrap()
}

fn labels_of(verdict: &Verdict) -> Value {
    object(verdict, pod(0))["metadata"]["labels"].clone()
}

fn hook(name: &str, hook_type: &str, at: &HttpHook) -> String {
    format!(
        "{{name: {name}.example.com, type: {hook_type}, protocol: json, sideEffects: None, clientConfig: {{url: '{}/'}}, \
         rules: [{{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}]}}",
        at.url()
    )
}

#[tokio::test]
async fn each_acts_in_order_between_mutating_and_validating_hooks() {
    let mutating = HttpHook::plain(HttpScript::Judge(Judge::new(|_| {
        use base64::Engine as _;
        let patch = json!([{"op": "add", "path": "/metadata/labels/hook", "value": "first"}]);
        let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
    })))
    .await;
    let validating = HttpHook::plain(HttpScript::Judge(Judge::new(
        |request| json!({"allowed": request["object"]["metadata"]["labels"]["c"] == "red after first in red"}),
    )))
    .await;
    let hooks = format!("{}, {}", hook("m", "Mutating", &mutating), hook("v", "Validating", &validating));
    // As written c is first; it says that it acts behind a and b.
    let initializers = labels("c", "after: [b.example.com],", "c: '${labels.a} after ${labels.b}'")
        + &labels("a", "", "a: '${namespace.labels.team}'")
        + &labels("b", "after: [a.example.com],", "b: '${labels.hook} in ${labels.a}', gone: '${labels.no}'");
    let gate = configured(&initializers, &hooks);

    let verdict = ask(&gate, Phase::Review, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    let expected =
        json!({"app": "web", "hook": "first", "a": "red", "b": "first in red", "c": "red after first in red"});
    assert_eq!(labels_of(&verdict), expected);
    let acted: Vec<_> = verdict.audit_annotations.iter().filter(|(key, _)| key.starts_with("initialize.")).collect();
    assert_eq!(acted.len(), 3);
    assert_eq!(acted[0].0, "initialize.gatepost.dev/index_0");
    let said: Value = serde_json::from_str(&acted[0].1).unwrap();
    assert_eq!(said, json!({"initializer": "a.example.com", "outcome": "changed"}));

    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(labels_of(&verdict), expected, "the mutating phase alone does the same");
    let verdict = ask(&gate, Phase::Validate, create_pod("u", 0)).await;
    assert!(!verdict.allowed(), "nothing is initialized in the validating phase");

    // The object as it is then, once more, as kube-apiserver does where another webhook changes it: nothing is left to
    // do.
    let again = with_object(create_pod("u", 0), |object| object["metadata"]["labels"] = expected);
    assert_eq!(ask(&gate, Phase::Mutate, again).await.patch, None);
    assert!(
        gate.metrics
            .render()
            .unwrap()
            .contains(r#"gatepost_initializer_runs_total{initializer="a.example.com",outcome="changed"} 2"#)
    );
}

#[tokio::test]
async fn nothing_but_new_objects_of_that_resource_is_initialized() {
    let gate = configured(&labels("a", "", "a: x"), "");
    assert_eq!(labels_of(&ask(&gate, Phase::Mutate, create_pod("u", 0)).await)["a"], "x");
    let update = AdmissionRequest {
        operation: Some("UPDATE".into()),
        old_object: create_pod("u", 0).object,
        ..create_pod("u", 0)
    };
    let binding = AdmissionRequest { sub_resource: Some("binding".into()), ..create_pod("u", 0) };
    let mut service = create_pod("u", 0);
    service.resource.as_mut().unwrap().resource = Some("services".into());
    service.kind.as_mut().unwrap().kind = Some("Service".into());
    for other in [update, binding, service] {
        let verdict = ask(&gate, Phase::Mutate, other).await;
        assert_eq!((verdict.refusal, verdict.patch), (None, None));
    }
}

#[tokio::test]
async fn initializer_acts_only_on_selected_objects() {
    let web = "objectSelector: {matchLabels: {app: web}},";
    let blue = "namespaceSelector: {matchLabels: {team: blue}},";
    let made = "objectSelector: {matchLabels: {a: x}},";
    let initializers = labels("a", web, "a: x") + &labels("b", blue, "b: x") + &labels("c", made, "c: x");
    let gate = configured(&initializers, "");
    let labelled = labels_of(&ask(&gate, Phase::Mutate, create_pod("u", 0)).await);
    assert_eq!(labelled, json!({"app": "web", "a": "x"}), "the list is settled before the first one acts");
}

#[tokio::test]
async fn only_permitted_users_write_the_initializer_list() {
    let gate = configured(&(labels("a", "", "a: x") + &labels("b", "", "b: x")), "");
    let listing = |names: &str| annotated("gatepost.dev/initializers", names, create_pod("u", 0));
    for names in ["", "b.example.com"] {
        let refusal = ask(&gate, Phase::Mutate, listing(names)).await.refusal.unwrap();
        assert_eq!((refusal.code, &*refusal.reason), (403, "Forbidden"), "{names:?}");
        assert!(refusal.message.starts_with("metadata.annotations[gatepost.dev/initializers] may only"), "{refusal:?}");
    }
    for (user, groups) in [("admin", &[][..]), ("bob", &["ops"])] {
        let verdict = ask(&gate, Phase::Mutate, by(user, groups, listing(""))).await;
        assert_eq!((verdict.refusal, verdict.patch), (None, None), "the empty list passes all by");
    }
    let request = by("admin", &[], listing("b.example.com"));
    let arrived = request.object.clone().unwrap().raw.unwrap();
    let verdict = ask(&gate, Phase::Mutate, request).await;
    assert_eq!(object(&verdict, arrived)["metadata"]["labels"], json!({"app": "web", "b": "x"}));
    let twice = ask(&gate, Phase::Mutate, by("admin", &[], listing("a, a"))).await.refusal.unwrap();
    assert_eq!((twice.code, &*twice.reason), (422, "Invalid"));
    let misspelt = ask(&gate, Phase::Mutate, by("admin", &[], listing("b.exmaple.com"))).await.refusal.unwrap();
    let why =
        "pending[0].name \"b.exmaple.com\" is no initializer of this resource; it has: a.example.com, b.example.com";
    let field = "metadata.annotations[gatepost.dev/initializers]";
    assert_eq!((misspelt.code, misspelt.message), (422, format!("{field}: Invalid value: {why}")));
    assert_eq!(misspelt.causes[0].field, field);
    let page = gate.metrics.render().unwrap();
    assert!(page.contains("gatepost_requests_total{outcome=\"denied\"} 4"), "no fault of ours:\n{page}");
}

#[tokio::test]
async fn mirror_pods_pass_only_from_kubelets() {
    let gate = configured(&labels("a", "", "a: x"), "");
    let mirror = || annotated("kubernetes.io/config.mirror", "hash", create_pod("u", 0));
    assert_eq!(ask(&gate, Phase::Mutate, by("system:node:n", &["system:nodes"], mirror())).await.patch, None);
    assert!(ask(&gate, Phase::Mutate, mirror()).await.patch.is_some());
}

#[tokio::test]
async fn incomplete_object_is_initialized_before_validation() {
    let added = "  - {name: main.example.com, builtIn: {containers: [{name: main, image: app}]}}\n";
    let request = with_object(create_pod("u", 0), |object| object["spec"] = json!({}));
    let arrived = request.object.clone().unwrap().raw.unwrap();
    let verdict = ask(&configured(added, ""), Phase::Mutate, request).await;
    assert_eq!(object(&verdict, arrived)["spec"]["containers"], json!([{"name": "main", "image": "app"}]));
}

#[tokio::test]
async fn failed_initializer_is_passed_over_or_rejects_by_policy() {
    let env = |policy: &str| {
        format!(
            "  - {{name: env.example.com, failurePolicy: {policy}, builtIn: {{env: [{{name: A, value: secret}}]}}}}\n"
        )
    };
    let odd = || with_object(create_pod("u", 0), |object| object["spec"]["containers"] = "secret".into());
    let open = configured(&(env("Ignore") + &labels("a", "", "a: x")), "");
    let verdict = ask(&open, Phase::Review, odd()).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(verdict.warnings.len(), 1);
    assert!(verdict.warnings[0].starts_with("initializer \"env.example.com\" could not act: the object's spec"));
    assert!(!verdict.warnings[0].contains("secret"));
    assert!(verdict.patch.is_some(), "those behind it act");

    let closed = configured(&env("Fail"), "");
    let refusal = ask(&closed, Phase::Review, odd()).await.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.reason), (500, "InternalError"));
    assert_eq!((&*refusal.causes[0].reason, &*refusal.causes[0].field), ("InitializationFailed", "env.example.com"));
    assert!(!refusal.message.contains("secret"), "{}", refusal.message);
}

#[tokio::test]
async fn expired_request_follows_the_failure_policy() {
    let late = |policy: &'static str| async move {
        let process = format!("  - {{name: a.example.com, failurePolicy: {policy}, attach: {{commonNames: [x]}}}}\n");
        let gate = configured(&(process + &labels("b", "failurePolicy: Fail,", "b: x")), "");
        let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
        decide(&gate, &review, &Caller { phase: Phase::Mutate, ..caller(Duration::ZERO) }).await
    };
    let open = late("Ignore").await;
    assert_eq!((&open.refusal, &labels_of(&open)["b"]), (&None, &json!("x")), "what is built in waits for nobody");
    assert!(open.warnings[0].contains("did not act within 0 ms; the object goes on without it"), "{:?}", open.warnings);
    let refusal = late("Fail").await.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.reason), (504, "Timeout"));
    assert!(refusal.message.contains("\"a.example.com\"") && refusal.message.contains("was not created"));
    assert_eq!(
        (&*refusal.causes[0].field, refusal.retry_after_seconds),
        ("a.example.com", 0),
        "client-go would repeat it"
    );
}

#[tokio::test]
async fn a_large_object_is_initialized_beside_the_worker() {
    let gate = configured(&labels("a", "", "a: x"), "");
    let size = 1 << 20;
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", size)).await;
    assert_eq!(object(&verdict, pod(size))["metadata"]["labels"]["a"], "x");
}

#[tokio::test]
async fn initializer_skipped_by_break_glass_never_acts() {
    let gate = configured(&(labels("a", "", "a: x") + &labels("b", "", "b: x")), "");
    open_break_glass(&gate, &["a.example.com"]);
    let listed = annotated("gatepost.dev/initializers", "a.example.com, b.example.com", create_pod("u", 0));
    for request in [create_pod("u", 0), by("admin", &[], listed)] {
        let arrived = request.object.clone().unwrap().raw.unwrap();
        let verdict = ask(&gate, Phase::Mutate, request).await;
        assert_eq!(object(&verdict, arrived)["metadata"]["labels"], json!({"app": "web", "b": "x"}));
    }
}

#[tokio::test]
async fn unknown_namespace_leaves_the_next_initializer_its_time() {
    let initializers = labels("a", "timeout: 100ms,", "a: '${namespace.labels.team}'") + &labels("b", "", "b: x");
    let mut gate = Arc::into_inner(configured(&initializers, "")).unwrap();
    let (namespaces, _unanswered) = Namespaces::new(Instant::now());
    gate.namespaces = Some(namespaces);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(labels_of(&verdict), json!({"app": "web", "b": "x"}));
    let warning = "initializer \"a.example.com\" did not act within 100 ms; the object goes on without it";
    assert_eq!(verdict.warnings, [warning]);
}

#[tokio::test]
async fn namespace_lookup_leaves_time_for_later_initializers() {
    let validating = HttpHook::plain(HttpScript::Judge(Judge::new(|_| json!({"allowed": true})))).await;
    let attached = |name: &str, more: &str| {
        format!("  - {{name: {name}.example.com, timeout: 100ms, {more} attach: {{commonNames: [x]}}}}\n")
    };
    let selected = attached("a", "namespaceSelector: {matchLabels: {team: red}},");
    let parallel = attached("a", "parallel: true,") + &attached("b", "parallel: true,") + &labels("c", "", "c: x");
    for (initializers, late) in [(selected, 1), (parallel, 2)] {
        let mut gate = Arc::into_inner(configured(&initializers, &hook("v", "Validating", &validating))).unwrap();
        let (namespaces, _unanswered) = Namespaces::new(Instant::now());
        gate.namespaces = Some(namespaces);
        let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
        let verdict = decide(&gate, &review, &caller(Duration::from_secs(3))).await;
        assert_eq!(verdict.refusal, None, "{initializers}");
        assert_eq!(verdict.warnings.len(), late, "{:?}", verdict.warnings);
        assert_eq!(late == 2, labels_of(&verdict)["c"] == "x");
    }
}

#[tokio::test]
async fn no_initializer_is_passed_over_for_want_of_memory() {
    let mut gate = Arc::into_inner(configured(&labels("a", "", "a: x"), "")).unwrap();
    gate.memory = MemoryBudget::new(64);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    let refusal = verdict.refusal.expect("also under Ignore");
    assert_eq!((refusal.code, &*refusal.reason, refusal.retry_after_seconds), (503, "ServiceUnavailable", 1));
    let page = gate.metrics.render().unwrap();
    let runs =
        |outcome| format!("gatepost_initializer_runs_total{{initializer=\"a.example.com\",outcome=\"{outcome}\"}}");
    assert!(page.contains(&(runs("failed_closed") + " 1")) && !page.contains(&(runs("shed") + " 1")), "{page}");
}

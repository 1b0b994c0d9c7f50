//! Reviews whose objects are in Kubernetes' protobuf envelope: hooks that take them get them as they came, and anything
//! else that matches has the caller send JSON before a hook is called.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message as _;

use crate::support::{
    gate::{caller, document, gate, hook, in_force},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide, decide_with_shadow};
use gatepost_api::{Hook, Phase, Rope, Verdict, verdict::OBJECT_ENCODING_ANNOTATION};
use gatepost_config::SourceFile;
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::admission::v1::{AdmissionRequest, AdmissionReview},
        apimachinery::pkg::runtime::RawExtension,
    },
};

const TAKES: &str = "objectEncoding: Protobuf";

/// An object of this kind in the envelope, with the label `app`.
fn enveloped(kind: &str, app: &str) -> Bytes {
    let label = [field(1, "app"), field(2, app)].concat();
    let object = [field(1, [field(1, "web"), field(11, label)].concat()), field(2, "spec")].concat();
    let types = [field(1, "v1"), field(2, kind)].concat();
    [&b"k8s\0"[..], &field(1, types), &field(2, object)].concat().into()
}

/// A protobuf field of fewer than 128 bytes.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&[number << 3 | 2, u8::try_from(bytes.len()).expect("a short field")], bytes].concat()
}

/// CREATE of a Pod in protobuf.
fn create(object: Bytes) -> AdmissionRequest {
    AdmissionRequest { object: Some(RawExtension { raw: Some(object) }), ..create_pod("u", 0) }
}

fn validating() -> Caller {
    Caller { phase: Phase::Validate, ..caller(Duration::from_secs(5)) }
}

async fn ask_as(gate: &AdmissionDeps, request: AdmissionRequest, caller: &Caller) -> Verdict {
    decide(gate, &view(Rope::new([message(request)])).expect("a review"), caller).await
}

/// Decides about a Pod in protobuf with the label `app: web`.
async fn ask(gate: &AdmissionDeps) -> Verdict {
    ask_as(gate, create(enveloped("Pod", "web")), &validating()).await
}

/// The objects that a hook was sent.
fn objects_of(hook: &ScriptedHook) -> Vec<Bytes> {
    let object = |body: &Bytes| {
        let review = AdmissionReview::decode(body.slice(5..)).expect("a review");
        review.request.and_then(|request| request.object?.raw).expect("an object")
    };
    hook.seen().iter().map(|seen| object(&seen.body)).collect()
}

fn assert_wants_json(verdict: &Verdict, reader: &str) {
    let refusal = verdict.refusal.as_ref().expect(reader);
    assert_eq!(refusal.code, 415, "{refusal:?}");
    assert!(refusal.message.contains(reader), "{} in {}", reader, refusal.message);
    let annotation = (OBJECT_ENCODING_ANNOTATION.to_owned(), "JSON".to_owned());
    assert!(verdict.audit_annotations.contains(&annotation), "{verdict:?}");
}

#[tokio::test]
async fn hooks_that_take_protobuf_get_the_bytes_that_came() {
    let (one, two) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Deny("seen")).await);
    let hooks = [hook("one.example.com", &one.url(), TAKES), hook("two.example.com", &two.url(), TAKES)];
    let gate = gate(&document(&hooks), Reasons::First);
    let verdict = ask(&gate).await;
    assert!(verdict.refusal.expect("a denial").message.contains("seen"));
    for hook in [&one, &two] {
        assert_eq!(objects_of(hook), [enveloped("Pod", "web")]);
        assert_eq!(hook.seen()[0].path, "/gatepost.v1.Admission/Validate", "the service of every gRPC hook");
    }
    let json = create_pod("u", 0);
    ask_as(&gate, json.clone(), &validating()).await;
    assert_eq!(objects_of(&one)[1], json.object.and_then(|object| object.raw).expect("JSON"), "it takes both");
}

#[tokio::test]
async fn object_selectors_read_labels_in_protobuf() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let selector = format!("{TAKES}\nobjectSelector: {{matchLabels: {{app: web}}}}");
    let gate = gate(&document(&[hook("no.example.com", &no.url(), &selector)]), Reasons::First);
    assert!(!ask(&gate).await.allowed());
    assert!(ask_as(&gate, create(enveloped("Pod", "api")), &validating()).await.allowed());
    let of = |object: Bytes| Some(RawExtension { raw: Some(object) });
    let update = AdmissionRequest {
        operation: Some("UPDATE".into()),
        object: of(enveloped("Pod", "api")),
        old_object: of(enveloped("Pod", "web")),
        ..create_pod("u", 0)
    };
    assert!(!ask_as(&gate, update, &validating()).await.allowed(), "the old object matches");
}

#[tokio::test]
async fn readers_of_json_have_the_caller_send_it() {
    let (hook_asked, other) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let takes = hook("a.example.com", &hook_asked.url(), TAKES);
    let policy = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
                  metadata: {name: p.example.com}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], \
                  apiVersions: [v1], operations: ['*'], resources: [pods]}]}\n  failurePolicy: Ignore\n  \
                  validations: [{expression: 'object.spec.hostNetwork == true'}]\n\
                  ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                  metadata: {name: p}\nspec: {policyName: p.example.com, validationActions: [Deny]}\n";
    let hook = |more: &str| hook("b.example.com", &other.url(), &format!("failurePolicy: Ignore\n{more}"));
    let condition = "matchConditions: [{name: c, expression: 'object.spec.hostNetwork == true'}]";
    let with = |hook: String| document(&[takes.clone(), hook]);
    let initializers = "resourceInitializers:\n- {resource: pods, stored: Label, initializers: [{name: i.example.com, changes: Metadata}]}\n";
    for (text, reader) in [
        (with(hook("")), "hook \"b.example.com\""),
        (with(hook("objectEncoding: JSON")), "hook \"b.example.com\""),
        (with(hook(&format!("{TAKES}\n{condition}"))), "hook \"b.example.com\""),
        (with(hook("enforcement: Shadow")), "hook \"b.example.com\""),
        (with(hook("objectSelector: {matchLabels: {app: api}}")), "hook \"b.example.com\""),
        (document(std::slice::from_ref(&takes)) + policy, "policy \"p.example.com\""),
        (document(std::slice::from_ref(&takes)) + initializers, "initializers"),
    ] {
        let gate = gate(&text, Reasons::First);
        assert_wants_json(&ask(&gate).await, reader);
        let old = AdmissionRequest { old_object: create(enveloped("Pod", "web")).object, ..create_pod("u", 0) };
        let old = AdmissionRequest { operation: Some("UPDATE".into()), ..old };
        assert_wants_json(&ask_as(&gate, old, &validating()).await, reader);
        let counted = gate.metrics.render().expect("metrics");
        assert!(counted.contains("gatepost_requests_total{outcome=\"wrong_encoding\"} 2"), "{counted}");
    }
    assert!(hook_asked.seen().is_empty() && other.seen().is_empty(), "before any hook is called");
}

/// What reads no object, or does not act in this phase, does not matter.
#[tokio::test]
async fn others_than_readers_of_json_leave_protobuf_alone() {
    let (yes, other) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let condition = "matchConditions: [{name: c, expression: \"request.name == 'web'\"}]";
    let of_others = hook("c.example.com", &other.url(), "").replace("resources: [\"*/*\"]", "resources: [services]");
    let hooks = [
        hook("a.example.com", &yes.url(), &format!("{TAKES}\n{condition}")),
        hook("b.example.com", &other.url(), "type: Mutating"),
        of_others,
    ];
    let gate = gate(&document(&hooks), Reasons::First);
    let verdict = ask(&gate).await;
    assert!(verdict.allowed(), "{verdict:?}");
    assert_eq!((yes.seen().len(), other.seen().len()), (1, 0));
    let both_phases = Caller { phase: Phase::Review, ..validating() };
    assert_wants_json(&ask_as(&gate, create(enveloped("Pod", "web")), &both_phases).await, "hook \"b.example.com\"");
}

#[tokio::test]
async fn shadow_that_takes_protobuf_gets_it() {
    let shadow = ScriptedHook::start(Script::Deny("seen")).await;
    let gate: Arc<AdmissionDeps> = gate(
        &document(&[hook("a.example.com", &shadow.url(), &format!("{TAKES}\nenforcement: Shadow"))]),
        Reasons::First,
    );
    let review = view(Rope::new([message(create(enveloped("Pod", "web")))])).expect("a review");
    let (verdict, later) = decide_with_shadow(&gate, &review, &validating()).await;
    assert!(verdict.allowed(), "{verdict:?}");
    later.expect("a shadow").run().await;
    assert_eq!(objects_of(&shadow), [enveloped("Pod", "web")]);
}

#[tokio::test]
async fn malformed_objects_are_rejected_despite_fail_open() {
    let hook_asked = ScriptedHook::start(Script::Allow).await;
    let open = format!("{TAKES}\nfailurePolicy: Ignore\nobjectSelector: {{matchLabels: {{app: web}}}}");
    let gate = gate(&document(&[hook("a.example.com", &hook_asked.url(), &open)]), Reasons::First);
    let whole = enveloped("Pod", "web");
    for object in [enveloped("Secret", "web"), whole.slice(..whole.len() - 20), whole.slice(..4)] {
        let verdict = ask_as(&gate, create(object), &validating()).await;
        let refusal = verdict.refusal.expect("a refusal");
        assert_eq!(refusal.code, 400, "{refusal:?}");
        assert!(refusal.message.contains("request.object"), "{}", refusal.message);
    }
    assert!(hook_asked.seen().is_empty());
}

/// Until its new endpoint has passed a probe it is called as its former entry says.
#[tokio::test]
async fn moving_json_hook_makes_the_caller_send_json() {
    let moves = ScriptedHook::start(Script::Allow).await;
    let text = document(&[hook("moves.example.com", &moves.url(), &format!("{TAKES}\nfailurePolicy: Ignore"))]);
    let file = SourceFile { name: "test.yaml".into(), bytes: text.into() };
    let snapshot = gatepost_config::load(&[file], &|path| std::fs::read(path)).expect("a valid configuration");
    let former = Hook { takes_protobuf: false, ..(*snapshot.hooks[0]).clone() };
    let gate = in_force(snapshot, &[Arc::new(former)], Reasons::First);
    assert_wants_json(&ask(&gate).await, "moves.example.com");
    assert!(moves.seen().is_empty());
}

/// The review that is sent again in JSON is the one that counts.
#[tokio::test]
async fn a_bypass_is_counted_once_for_a_request_that_is_sent_again() {
    let [takes, reads] = [ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await];
    let hooks = [hook("takes.example.com", &takes.url(), TAKES), hook("reads.example.com", &reads.url(), "")];
    let bypass = "bypass:\n- {name: b, reason: r, users: [ann], effect: FailOpen}\n";
    let gate = gate(&(document(&hooks) + bypass), Reasons::First);
    let counted = || {
        gate.metrics
            .render()
            .expect("text")
            .lines()
            .filter(|line| line.contains("bypass=\"b\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = counted();
    assert_wants_json(&ask(&gate).await, "reads.example.com");
    assert_eq!(counted(), before);
    assert!(ask_as(&gate, create_pod("u", 0), &validating()).await.allowed());
    assert_ne!(counted(), before);
}

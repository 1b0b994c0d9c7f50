//! Mutating hooks: each counts in order, about what those before it have made of the object; asked together where that
//! comes to the same; one patch for the caller.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeSet, time::Duration};

use crate::support;
use crate::support::{
    gate::{caller, document, gate, hook},
    http_hook::{HttpHook, HttpScript, Judge},
    reviews::{create_pod, message, pod},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    admit::{Caller, Gate, Reasons, decide},
    hooks::Channel,
    model::{Endpoint, Phase, Rope, Transport, Verdict, hook::Address},
    patch::{Document, Limits, Patch},
    wire::{
        inbound::view,
        pb::k8s::io::{
            api::admission::v1::AdmissionRequest,
            apimachinery::pkg::{
                apis::meta::v1::{GroupVersionKind, GroupVersionResource},
                runtime::RawExtension,
            },
        },
    },
};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(20);

/// A yes with these operations.
fn patch(operations: Value) -> Value {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

fn add_label(key: &str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}]))
}

fn labels(request: &Value) -> &Value {
    &request["object"]["metadata"]["labels"]
}

async fn judging(judge: impl Fn(&Value) -> Value + Send + Sync + 'static) -> HttpHook {
    HttpHook::plain(HttpScript::Judge(Judge::new(judge))).await
}

/// An entry of a mutating hook, or of a validating one.
fn entry(name: &str, hook_type: &str, at: &HttpHook, more: &str) -> String {
    hook(
        &format!("{name}.example.com"),
        &format!("{}/", at.url()),
        &format!("type: {hook_type}\nprotocol: json\n{more}"),
    )
}

async fn ask(gate: &Gate, phase: Phase, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase, ..caller(LONG) }).await
}

/// The Pod of [`create_pod`] with the verdict's patch applied.
fn patched(verdict: &Verdict) -> Value {
    let object = Document::new(Rope::new([pod(0)])).unwrap();
    let patch = Patch::parse(verdict.patch.clone().unwrap_or_else(|| "[]".into())).unwrap();
    let patched = object.patched(&patch, Limits::default()).unwrap();
    serde_json::from_slice(&patched.rope().copy_of(0..patched.rope().len())).unwrap()
}

#[tokio::test]
async fn each_sees_what_those_before_it_made_and_the_caller_gets_one_patch() {
    let first = judging(|_| add_label("a", "1")).await;
    let second = judging(|request| match &labels(request)["a"] {
        Value::String(_) => add_label("b", "2"),
        _ => json!({"allowed": true}),
    })
    .await;
    let quiet = HttpHook::plain(HttpScript::Warn("seen")).await;
    let last = judging(|request| json!({"allowed": labels(request)["b"] == "2"})).await;
    let gate = gate(
        &document(&[
            entry("last", "Validating", &last, "sideEffects: None"),
            entry("quiet", "Mutating", &quiet, "sideEffects: None"),
            entry("first", "Mutating", &first, "sideEffects: None"),
            entry("second", "Mutating", &second, "sideEffects: None"),
        ]),
        Reasons::First,
    );
    let verdict = ask(&gate, Phase::Review, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(patched(&verdict)["metadata"]["labels"], json!({"app": "web", "a": "1", "b": "2"}));
    assert_eq!(verdict.warnings, ["seen"]);
    assert_eq!((quiet.seen().len(), first.seen().len(), second.seen().len()), (1, 1, 2), "asked anew behind a change");

    // Only validating hooks, and only mutating ones.
    let verdict = ask(&gate, Phase::Validate, create_pod("u", 0)).await;
    assert!(!verdict.allowed() && verdict.patch.is_none(), "the object as it arrived has no such label");
    let before = last.seen().len();
    assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    assert_eq!(last.seen().len(), before);
}

#[tokio::test]
async fn hooks_that_change_nothing_are_asked_in_one_round() {
    let mut hooks = Vec::new();
    for _ in 0..8 {
        hooks.push(HttpHook::plain(HttpScript::Held).await);
    }
    let entries: Vec<_> = hooks
        .iter()
        .enumerate()
        .map(|(n, hook)| entry(&format!("h{n}"), "Mutating", hook, "sideEffects: None"))
        .collect();
    let gate = gate(&document(&entries), Reasons::First);
    let asking = ask(&gate, Phase::Mutate, create_pod("u", 0));
    let releasing = async {
        // None answers before all have been asked.
        while hooks.iter().any(|hook| hook.seen().is_empty()) {
            tokio::task::yield_now().await;
        }
        hooks.iter().for_each(HttpHook::release);
    };
    let (verdict, ()) = tokio::time::timeout(LONG, async { tokio::join!(asking, releasing) }).await.unwrap();
    assert!(verdict.allowed() && verdict.patch.is_none());
}

#[tokio::test]
async fn a_hook_with_side_effects_is_asked_only_when_it_is_its_turn() {
    for effects in ["NoneOnDryRun", "Some", "Unknown"] {
        let first = judging(|_| add_label("a", "1")).await;
        let ledger = judging(|_| json!({"allowed": true})).await;
        let gate = gate(
            &document(&[
                entry("first", "Mutating", &first, "sideEffects: None"),
                entry("ledger", "Mutating", &ledger, &format!("sideEffects: {effects}")),
            ]),
            Reasons::First,
        );
        assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.allowed());
        let seen: Vec<_> = ledger.seen().iter().map(|seen| labels(&seen.json()["request"]).clone()).collect();
        assert_eq!(seen, [json!({"app": "web", "a": "1"})], "{effects}");
    }
}

#[tokio::test]
async fn what_a_patch_may_not_is_refused_in_the_hooks_name_and_never_with_the_object() {
    let replace = |path: &str| patch(json!([{"op": "replace", "path": path, "value": "x"}]));
    let cases = [
        (patch(json!([{"op": "remove", "path": "/spec/nowhere/at/all"}])), "operation 0"),
        (patch(json!([{"op": "test", "path": "/kind", "value": "hunter2"}])), "operation 0"),
        (replace("/metadata/name"), "changes metadata.name"),
        (replace("/kind"), "changes kind"),
        (replace("/apiVersion"), "changes apiVersion"),
        (patch(json!([{"op": "replace", "path": "", "value": []}])), "the object"),
        // It is a list of operations, and none that there is.
        (patch(json!([{"op": "merge", "path": "/a", "value": 1}])), "operation 0"),
        (patch(json!([{"op": "add"}])), "operation 0"),
    ];
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let quiet = HttpHook::plain(HttpScript::Allow).await;
    let entries = |policy: &str| {
        let more = format!("sideEffects: None\nfailurePolicy: {policy}");
        [entry("bad", "Mutating", &hook, &more), entry("quiet", "Mutating", &quiet, "sideEffects: None")]
    };
    for policy in ["Fail", "Ignore"] {
        let gate = gate(&document(&entries(policy)), Reasons::First);
        for (response, wanted) in &cases {
            hook.set(HttpScript::Respond(response.clone()));
            let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            let refusal = verdict.refusal.expect("whatever the failure policy");
            assert_eq!(refusal.code, 500, "{}", refusal.message);
            assert!(
                refusal.message.contains("\"bad.example.com\"") && refusal.message.contains(wanted),
                "{}",
                refusal.message
            );
            assert!(!refusal.message.contains("web:1") && !refusal.message.contains("hunter2"), "{}", refusal.message);
            assert_eq!(verdict.patch, None);
        }
        // What cannot be read is a failed call.
        for response in [
            json!({"allowed": true, "patchType": "JSONPatch", "patch": "e30="}),
            json!({"allowed": true, "patchType": "Merge", "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"}),
            json!({"allowed": true, "patchType": "JSONPatch"}),
        ] {
            hook.set(HttpScript::Respond(response));
            let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            assert_eq!(verdict.allowed(), policy == "Ignore", "{:?}", verdict.refusal);
        }
        // There is nothing to patch.
        hook.set(HttpScript::Respond(add_label("a", "1")));
        let request = AdmissionRequest {
            operation: Some("DELETE".into()),
            object: None,
            old_object: create_pod("u", 0).object,
            ..create_pod("u", 0)
        };
        let refusal = ask(&gate, Phase::Mutate, request).await.refusal.expect("no object");
        assert!(refusal.message.contains("bad.example.com"), "{}", refusal.message);
    }
}

#[tokio::test]
async fn one_budget_for_all_that_hang() {
    let (mut hooks, mut entries) = (Vec::new(), Vec::new());
    // Each in its own turn; the second has what is left of the request's time.
    for (n, timeout) in ["200ms", "20s", "20s"].into_iter().enumerate() {
        let hook = HttpHook::plain(HttpScript::Hang).await;
        let more = format!("sideEffects: Some\nfailurePolicy: Ignore\ntimeout: {timeout}");
        entries.push(entry(&format!("h{n}"), "Mutating", &hook, &more));
        hooks.push(hook);
    }
    let gate = gate(&document(&entries), Reasons::First);
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let caller = Caller { phase: Phase::Mutate, ..caller(Duration::from_millis(1500)) };
    let verdict = decide(&gate, &review, &caller).await;
    assert_eq!(verdict.refusal.map(|refusal| refusal.code), Some(504), "as upstream, despite Ignore");
    assert_eq!(
        hooks.iter().map(|hook| hook.seen().len()).collect::<Vec<_>>(),
        [1, 1, 0],
        "the last one's turn never came"
    );
    let metrics = gate.metrics.render().unwrap();
    for n in 0..3 {
        let sample =
            format!(r#"gatepost_hook_call_failures_total{{hook="h{n}.example.com",kind="timeout",policy="Ignore"}} 1"#);
        assert!(metrics.lines().any(|line| line == sample), "{sample}");
    }
}

#[tokio::test]
async fn a_grpc_hook_that_only_changes_objects_passes_its_probe() {
    let hook = ScriptedHook::start(Script::Only("/gatepost.v1.Admission/Mutate")).await;
    let address = Address::Tcp { host: hook.address.ip().to_string().into(), port: hook.address.port() };
    let endpoint = Endpoint { address, tls: None, transport: Transport::Grpc };
    let channel = Channel::open(endpoint, None, &[tokio::runtime::Handle::current()]);
    assert_eq!(channel.probe(None, LONG).await, Ok(()));
}

/// What one behind it says makes no difference where a hook has used the time up.
#[tokio::test]
async fn a_hook_that_uses_the_time_up_ends_the_request_whoever_else_has_answered() {
    let hangs = HttpHook::plain(HttpScript::Hang).await;
    let patches = judging(|_| add_label("a", "1")).await;
    let entries = [
        entry("hangs", "Mutating", &hangs, "sideEffects: None\nfailurePolicy: Ignore"),
        entry("patches", "Mutating", &patches, "sideEffects: None"),
    ];
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let soon = || Caller { phase: Phase::Mutate, ..caller(Duration::from_millis(300)) };
    let verdict = decide(&gate(&document(&entries), Reasons::First), &review, &soon()).await;
    assert_eq!((verdict.refusal.map(|refusal| refusal.code), verdict.patch), (Some(504), None));

    // A bypass that opens every hook lets nothing but a "no" reject.
    let open = "bypass:\n- {name: open, reason: a test, effect: FailOpen, users: [ann]}\n";
    let verdict = decide(&gate(&(document(&entries) + open), Reasons::First), &review, &soon()).await;
    assert_eq!(verdict.refusal, None);
}

#[tokio::test]
async fn patches_without_operations_end_no_round() {
    let (mut hooks, mut entries) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let hook = judging(|_| patch(json!([]))).await;
        entries.push(entry(&format!("h{n}"), "Mutating", &hook, "sideEffects: None"));
        hooks.push(hook);
    }
    let verdict = ask(&gate(&document(&entries), Reasons::First), Phase::Mutate, create_pod("u", 0)).await;
    assert!(verdict.allowed() && verdict.patch.is_none());
    assert_eq!(hooks.iter().map(|hook| hook.seen().len()).collect::<Vec<_>>(), [1; 4]);
}

/// The apiserver sets the label by which namespaces are selected by name, whatever a hook makes of the labels.
#[tokio::test]
async fn a_namespace_keeps_its_name_for_the_hooks_behind_one_that_replaces_its_labels() {
    let first =
        judging(|_| patch(json!([{"op": "replace", "path": "/metadata/labels", "value": {"new": "yes"}}]))).await;
    let second = judging(|_| json!({"allowed": true})).await;
    let by_name =
        "sideEffects: None\nnamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop, new: 'yes'}}";
    let gate = gate(
        &document(&[
            entry("first", "Mutating", &first, "sideEffects: None"),
            entry("second", "Mutating", &second, by_name),
        ]),
        Reasons::First,
    );
    let text = |text: &str| Some(text.to_owned());
    let object = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"kubernetes.io/metadata.name":"shop"}}}"#;
    let request = AdmissionRequest {
        kind: Some(GroupVersionKind { group: text(""), version: text("v1"), kind: text("Namespace") }),
        resource: Some(GroupVersionResource { group: text(""), version: text("v1"), resource: text("namespaces") }),
        name: text("shop"),
        namespace: text("shop"),
        object: Some(RawExtension { raw: Some(object.into()) }),
        ..create_pod("u", 0)
    };
    let verdict = ask(&gate, Phase::Mutate, request).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(second.seen().len(), 1);
}

/// What a made-up hook does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Warn,
    /// Adds label `a`, unless it is there.
    AddA,
    /// Adds label `b` where `a` is there.
    AddBIfA,
    /// Removes `a`, which fails where it is not there.
    RemoveA,
    /// Counts its calls in a label.
    Toggle,
    DenyIfB,
    Garbage,
}

#[derive(Clone, Copy, Debug)]
struct MadeUp {
    act: Act,
    /// May be asked early.
    free: bool,
    ignore: bool,
    again: bool,
}

fn made_up() -> impl Strategy<Value = Vec<MadeUp>> {
    use Act::*;
    let act = prop::sample::select(vec![Nothing, Nothing, Warn, AddA, AddBIfA, RemoveA, Toggle, DenyIfB, Garbage]);
    let hook = (act, any::<bool>(), any::<bool>(), any::<bool>());
    prop::collection::vec(hook.prop_map(|(act, free, ignore, again)| MadeUp { act, free, ignore, again }), 1..7)
}

async fn start(MadeUp { act, .. }: MadeUp) -> HttpHook {
    let yes = || json!({"allowed": true});
    judging(move |request| {
        let (a, b) = (&labels(request)["a"], &labels(request)["b"]);
        match act {
            Act::Nothing => yes(),
            Act::Warn => json!({"allowed": true, "warnings": [format!("a is {a}")]}),
            Act::AddA if a.is_null() => add_label("a", "1"),
            Act::AddBIfA if !a.is_null() => add_label("b", "2"),
            Act::RemoveA => patch(json!([{"op": "remove", "path": "/metadata/labels/a"}])),
            Act::Toggle if labels(request)["t"] == "on" => add_label("t", "off"),
            Act::Toggle => add_label("t", "on"),
            Act::DenyIfB if !b.is_null() => json!({"allowed": false, "status": {"message": "b"}}),
            Act::Garbage => json!({"allowed": true, "patchType": "JSONPatch", "patch": "e30="}),
            Act::AddA | Act::AddBIfA | Act::DenyIfB => yes(),
        }
    })
    .await
}

/// The verdict, and for each hook that has side effects what it was asked about.
async fn run(hooks: &[MadeUp], early: bool) -> (Verdict, Vec<Vec<String>>) {
    let (mut started, mut entries) = (Vec::new(), Vec::new());
    for (n, made_up) in hooks.iter().enumerate() {
        let at = start(*made_up).await;
        let effects = if made_up.free && early { "None" } else { "NoneOnDryRun" };
        let policy = if made_up.ignore { "Ignore" } else { "Fail" };
        let again = if made_up.again { "IfNeeded" } else { "Never" };
        let more = format!("sideEffects: {effects}\nfailurePolicy: {policy}\nreinvocationPolicy: {again}");
        entries.push(entry(&format!("h{n}"), "Mutating", &at, &more));
        started.push(at);
    }
    let gate = gate(&document(&entries), Reasons::First);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    let seen = started.iter().zip(hooks).map(|(hook, made_up)| {
        let about = |seen: &support::http_hook::HttpSeen| labels(&seen.json()["request"]).to_string();
        if made_up.free { Vec::new() } else { hook.seen().iter().map(about).collect() }
    });
    (verdict, seen.collect())
}

/// Asking together comes to the same as asking one by one, and a hook with side effects is asked about the same objects.
#[test]
fn asking_together_comes_to_the_same_as_asking_one_by_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let mut endings = std::cell::RefCell::new(BTreeSet::new());
    runner
        .run(&made_up(), |hooks| {
            let (together, asked_together) = runtime.block_on(run(&hooks, true));
            let (alone, asked_alone) = runtime.block_on(run(&hooks, false));
            let sorted = |verdict: &Verdict| {
                let mut sorted = verdict.clone();
                sorted.audit_annotations.sort();
                sorted
            };
            prop_assert_eq!(sorted(&together), sorted(&alone));
            prop_assert_eq!(asked_together, asked_alone);
            endings.borrow_mut().insert((alone.allowed(), alone.patch.is_some()));
            Ok(())
        })
        .unwrap();
    let endings = endings.get_mut();
    assert!(endings.len() >= 3, "the made-up hooks come to too little: {endings:?}");
}

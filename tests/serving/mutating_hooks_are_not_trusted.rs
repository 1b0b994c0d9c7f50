//! Unusable answers of a mutating hook: an error in its name, that repeats nothing of the object; and the next request
//! is as good as any.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use bytes::Bytes;

use crate::support::{
    gate::{document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    mutating::{add_label, ask, entry, patch},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::{AdmissionDeps, Reasons};
use gatepost_api::{Phase, Verdict};
use gatepost_base::memory::MemoryBudget;
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde_json::{Value, json};

/// A bypass by which no hook rejects where it cannot answer.
const OPEN: &str = "bypass:\n- {name: open, reason: a test, effect: FailOpen, users: [ann]}\n";

/// A hook that may do anything, between two that do no wrong.
async fn among_others(policy: &str) -> (HttpHook, [HttpHook; 2], std::sync::Arc<AdmissionDeps>) {
    among_others_with(policy, "").await
}

/// The same, with more in the document.
async fn among_others_with(policy: &str, more: &str) -> (HttpHook, [HttpHook; 2], std::sync::Arc<AdmissionDeps>) {
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let others = [HttpHook::plain(HttpScript::Allow).await, HttpHook::plain(HttpScript::Allow).await];
    let entries = [
        entry("first", "Mutating", &others[0], "sideEffects: None"),
        entry("bad", "Mutating", &hook, &format!("sideEffects: None\nfailurePolicy: {policy}")),
        entry("last", "Mutating", &others[1], "sideEffects: None"),
    ];
    let gate = gate(&(document(&entries) + more), Reasons::First);
    (hook, others, gate)
}

/// It names the hook, and nothing of the object or of the patch's values.
fn speaks_well(message: &str) {
    assert!(message.contains("\"bad.example.com\""), "{message}");
    for secret in ["web:1", "hunter2", "\"pad\""] {
        assert!(!message.contains(secret), "{message}");
    }
    assert!(message.len() < 500, "{} letters", message.len());
}

/// A yes with this text as its patch.
fn raw_patch(text: &[u8]) -> Value {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(text);
    json!({"allowed": true, "patchType": "JSONPatch", "patch": text})
}

#[tokio::test]
async fn forbidden_patch_rejects_in_the_hooks_name_under_every_policy() {
    let replace = |path: &str| patch(json!([{"op": "replace", "path": path, "value": "hunter2"}]));
    let cases = [
        (patch(json!([{"op": "remove", "path": "/spec/nowhere/at/all"}])), "operation 0"),
        (patch(json!([{"op": "test", "path": "/kind", "value": "hunter2"}])), "operation 0"),
        (replace("/metadata/name"), "changes metadata.name"),
        (replace("/metadata/uid"), "changes metadata.uid"),
        (replace("/kind"), "changes kind"),
        (replace("/apiVersion"), "changes apiVersion"),
        (replace("/kind/0"), "leads to nothing that could have children"),
        (replace("/spec/containers/0/image/3"), "leads to nothing that could have children"),
        (replace(&"/spec".repeat(1000)), "operation 0"),
        (patch(json!([{"op": "remove", "path": ""}])), "operation 0"),
        (patch(json!([{"op": "replace", "path": "", "value": []}])), "the object"),
        (patch(json!([{"op": "replace", "path": "", "value": {"kind": "hunter2"}}])), "changes"),
        // It is a list of operations, and none that there is.
        (patch(json!([{"op": "merge", "path": "/a", "value": 1}])), "operation 0"),
        (patch(json!([{"op": "add"}])), "operation 0"),
        // Of a key that is there twice the last counts.
        (
            raw_patch(br#"[{"op": "test", "path": "/nowhere", "path": "/kind", "value": "Pod", "value": "hunter2"}]"#),
            "\"/kind\"",
        ),
    ];
    for policy in ["Fail", "Ignore"] {
        let (hook, others, gate) = among_others(policy).await;
        for (response, wanted) in &cases {
            hook.set(HttpScript::Respond(response.clone()));
            let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            let refusal = verdict.refusal.expect("whatever the failure policy");
            assert_eq!(refusal.code, 500, "{}", refusal.message);
            speaks_well(&refusal.message);
            assert!(refusal.message.contains(wanted), "{wanted}: {}", refusal.message);
            assert_eq!(verdict.patch, None);
            goes_on(&hook, &gate).await;
        }
        assert!(others.iter().all(|other| other.seen().len() >= cases.len()), "all others were asked");
        // There is nothing to patch, whatever the patch's type.
        let mut other_type = add_label("a", "1");
        other_type["patchType"] = "Foo".into();
        for response in [add_label("a", "1"), other_type] {
            hook.set(HttpScript::Respond(response));
            let request = AdmissionRequest {
                operation: Some("DELETE".into()),
                object: None,
                old_object: create_pod("u", 0).object,
                ..create_pod("u", 0)
            };
            let refusal = ask(&gate, Phase::Mutate, request).await.refusal.expect("no object");
            assert_eq!(refusal.code, 500, "{policy}");
            speaks_well(&refusal.message);
        }
    }
}

/// A patch that adds too much is a failed call, as an answer that is too long is. Beyond the other limits it is refused
/// whatever the policy: a client must not be able to keep a hook with Ignore from changing its object.
#[tokio::test]
async fn oversized_patch_fails_the_call_if_the_hook_is_the_cause() {
    let large = "hunter2".repeat(150_000);
    let copies = (0..4).map(|n| json!({"op": "copy", "from": "/spec/large", "path": format!("/spec/copy{n}")}));
    let copies = std::iter::once(json!({"op": "add", "path": "/spec/large", "value": large})).chain(copies);
    let grown = (0..4).map(|n| json!({"op": "add", "path": format!("/spec/large{n}"), "value": large}));
    // As deep as a patch may be, and three levels further down in the object.
    let deep = format!(
        r#"[{{"op":"add","path":"/spec/containers/0/deep","value":{}{}}}]"#,
        "[".repeat(9_998),
        "]".repeat(9_998)
    );
    // Each item of the two lists that are compared stands alone in memory.
    let items = "0,".repeat(1_400_000);
    let held = format!(
        r#"[{{"op":"add","path":"/spec/a","value":[{items}0]}},{{"op":"test","path":"/spec/a","value":[{items}1]}}]"#
    );
    // Of the first, the hook alone is the cause (the Pod has 180 bytes); the others may be due to the object, which the client writes.
    let cases = [
        (patch(grown.collect()), "bytes; the limit is 3145908", true),
        (patch(copies.collect()), "add more bytes than may be copied", false),
        (raw_patch(deep.as_bytes()), "would nest deeper than 10000", false),
        (raw_patch(held.as_bytes()), "takes too much memory", false),
    ];
    for (policy, bypass) in [("Fail", false), ("Ignore", false), ("Fail", true)] {
        let (hook, _others, gate) = among_others_with(policy, if bypass { OPEN } else { "" }).await;
        let may_open = policy == "Ignore" || bypass;
        for (response, wanted, is_failed_call) in &cases {
            let opens = may_open && *is_failed_call;
            let mut response = response.clone();
            response["warnings"] = json!(["look here"]);
            hook.set(HttpScript::Respond(response));
            let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            assert_eq!((verdict.patch, &*verdict.warnings), (None, &["look here".to_owned()][..]), "{wanted}");
            assert_eq!(verdict.refusal.is_none(), opens, "{policy} {wanted}: {:?}", verdict.refusal);
            // It may have been asked ahead of its turn, which comes only where the request goes on.
            let last = "mutation.webhook.admission.k8s.io/round_0_index_2";
            assert_eq!(verdict.audit_annotations.iter().any(|(key, _)| key == last), opens, "{wanted}");
            if let Some(refusal) = verdict.refusal {
                assert_eq!(refusal.code, 500, "{}", refusal.message);
                speaks_well(&refusal.message);
                assert!(refusal.message.contains(wanted), "{wanted}: {}", refusal.message);
                let is_failed = refusal.message.contains("failed calling webhook");
                assert_eq!(is_failed, *is_failed_call, "{}", refusal.message);
            } else {
                let key = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1";
                let opened = (key.to_owned(), "bad.example.com".to_owned());
                assert!(verdict.audit_annotations.contains(&opened), "{:?}", verdict.audit_annotations);
            }
            goes_on(&hook, &gate).await;
        }
        let decided = if may_open { "Ignore" } else { "Fail" };
        let sample = format!(
            r#"gatepost_hook_call_failures_total{{hook="bad.example.com",type="mutating",kind="patch_over_limit",policy="{decided}"}} 1"#
        );
        let metrics = gate.metrics.render().unwrap();
        assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    }
}

/// The limit is that of all patches of a request together, counted from the object as it arrived.
#[tokio::test]
async fn two_hooks_do_not_add_twice_as_much() {
    let (hook, others, gate) = among_others("Fail").await;
    let adds = |path: &str| {
        let value = "x".repeat(2 << 20);
        HttpScript::Respond(patch(json!([{"op": "add", "path": path, "value": value}])))
    };
    others[0].set(adds("/spec/first"));
    hook.set(adds("/spec/second"));
    let refusal = ask(&gate, Phase::Mutate, create_pod("u", 0)).await.refusal.expect("4 MiB are added");
    speaks_well(&refusal.message);
    assert!(refusal.message.contains("bytes; the limit is 3145908"), "{}", refusal.message);
}

/// The next request is decided as if nothing had been.
async fn goes_on(hook: &HttpHook, gate: &AdmissionDeps) {
    hook.set(HttpScript::Respond(add_label("a", "1")));
    let verdict = ask(gate, Phase::Mutate, create_pod("u", 0)).await;
    assert!(verdict.allowed() && verdict.patch.is_some(), "{:?}", verdict.refusal);
}

#[tokio::test]
async fn unreadable_patch_is_a_failed_call() {
    let operations = |count: usize| {
        let one = json!({"op": "replace", "path": "/metadata/labels/app", "value": "hunter2"});
        patch(std::iter::repeat_n(one, count).collect())
    };
    let answer = |response: &str| {
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#)
    };
    let yes = answer(r#"{"uid":"u","allowed":true}"#);
    let reply =
        |body: String| HttpScript::Reply(200, vec![("content-type", "application/json".to_owned())], body.into());
    let cases = [
        HttpScript::Respond(raw_patch(b"{}")),
        HttpScript::Respond(raw_patch(b"[{\"op\": \"hunter2\"")),
        HttpScript::Respond(raw_patch(b"[1, 2]")),
        HttpScript::Respond(raw_patch(b"[{\"op\": \"add\", \"path\": \"/a\xff\"}]")),
        HttpScript::Respond(raw_patch(&[b'['; 100_000])),
        HttpScript::Respond(operations(10_001)),
        HttpScript::Respond(
            json!({"allowed": true, "patchType": "Merge", "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"}),
        ),
        HttpScript::Respond(json!({"allowed": true, "patchType": "JSONPatch"})),
        HttpScript::Respond(json!({"allowed": true, "patchType": "JSONPatch", "patch": "no base64"})),
        // An answer to another request, and two answers to this one.
        HttpScript::Respond(json!({"uid": "other", "allowed": true})),
        reply(format!("{yes}{yes}")),
    ];
    for policy in ["Fail", "Ignore"] {
        let (hook, others, gate) = among_others(policy).await;
        for script in &cases {
            hook.set(script.clone());
            let Verdict { refusal, patch, .. } = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            assert_eq!(refusal.is_none(), policy == "Ignore", "{script:?}: {refusal:?}");
            assert_eq!(patch, None, "{script:?}");
            if let Some(refusal) = refusal {
                speaks_well(&refusal.message);
            }
            goes_on(&hook, &gate).await;
        }
        assert!(others.iter().all(|other| other.seen().len() >= cases.len()), "all others were asked");
    }
    // So many may be sent.
    let (hook, _others, gate) = among_others("Fail").await;
    hook.set(HttpScript::Respond(operations(10_000)));
    assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
}

#[tokio::test]
async fn warnings_of_an_answer_with_a_bad_patch_are_kept() {
    for (patch, patch_type) in [("[1, 2]", "JSONPatch"), (r#"[{"op":"add","path":"/a","value":1}]"#, "Merge")] {
        for policy in ["Fail", "Ignore"] {
            let (hook, _others, gate) = among_others(policy).await;
            let mut response = raw_patch(patch.as_bytes());
            response["warnings"] = json!(["look here"]);
            response["auditAnnotations"] = json!({"seen": "yes"});
            response["patchType"] = json!(patch_type);
            hook.set(HttpScript::Respond(response));
            let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
            assert_eq!(verdict.allowed(), policy == "Ignore");
            assert_eq!(verdict.warnings, ["look here"], "{policy} {patch_type}");
            let annotation = ("bad.example.com/seen".to_owned(), "yes".to_owned());
            assert!(verdict.audit_annotations.contains(&annotation), "{:?}", verdict.audit_annotations);
        }
    }
}

/// Over gRPC an answer is one message.
#[tokio::test]
async fn an_answer_sent_twice_over_grpc_is_a_failed_call() {
    let response = AdmissionResponse {
        uid: Some("u".into()),
        allowed: Some(true),
        patch: Some(r#"[{"op":"add","path":"/metadata/labels/a","value":"1"}]"#.into()),
        patch_type: Some("JSONPatch".into()),
        ..AdmissionResponse::default()
    };
    let answer = AdmissionReview { response: Some(response), ..AdmissionReview::default() };
    let framed = framed(&answer);
    let twice = Bytes::from([&*framed, &*framed].concat());
    for policy in ["Fail", "Ignore"] {
        let other = HttpHook::plain(HttpScript::Allow).await;
        let bad = ScriptedHook::start(Script::Body(twice.clone())).await;
        let more = format!("type: Mutating\nsideEffects: None\nfailurePolicy: {policy}");
        let entries =
            [hook("bad.example.com", &bad.url(), &more), entry("last", "Mutating", &other, "sideEffects: None")];
        let gate = gate(&document(&entries), Reasons::First);
        let Verdict { refusal, patch, .. } = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
        assert_eq!((refusal.is_none(), patch), (policy == "Ignore", None), "{refusal:?}");
        refusal.iter().for_each(|refusal| speaks_well(&refusal.message));
        bad.set(Script::Body(framed.clone()));
        let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
        assert!(verdict.allowed() && verdict.patch.is_some(), "{:?}", verdict.refusal);
    }
}

#[tokio::test]
async fn a_patched_object_is_held_in_the_memory_budget() {
    let (hook, _others, gate) = among_others("Ignore").await;
    let gate = AdmissionDeps { memory: MemoryBudget::new(1 << 20), ..std::sync::Arc::into_inner(gate).unwrap() };
    let large = json!([{"op": "add", "path": "/spec/large", "value": "hunter2".repeat(60_000)}]);
    hook.set(HttpScript::Respond(patch(large)));
    let refusal = ask(&gate, Phase::Mutate, create_pod("u", 0)).await.refusal.expect("no room for it");
    assert_eq!((refusal.code, refusal.retry_after_seconds), (503, 1));
    speaks_well(&refusal.message);
    assert_eq!(gate.memory.held(), 0);
    goes_on(&hook, &gate).await;
    assert_eq!(gate.memory.held(), 0, "given back");
}

#[tokio::test]
async fn a_patch_of_a_validating_hook_is_a_failed_call() {
    for policy in ["Fail", "Ignore"] {
        let hook = HttpHook::plain(HttpScript::Respond(add_label("a", "1"))).await;
        let more = format!("sideEffects: None\nfailurePolicy: {policy}");
        let gate = gate(&document(&[entry("bad", "Validating", &hook, &more)]), Reasons::First);
        let verdict = ask(&gate, Phase::Review, create_pod("u", 0)).await;
        assert_eq!((verdict.allowed(), verdict.patch.is_some()), (policy == "Ignore", false));
        if let Some(refusal) = verdict.refusal {
            speaks_well(&refusal.message);
        }
        let metrics = gate.metrics.render().unwrap();
        let kind = r#"hook="bad.example.com",type="validating",kind="patch_from_validating""#;
        assert!(metrics.contains(kind), "{metrics}");
    }
}

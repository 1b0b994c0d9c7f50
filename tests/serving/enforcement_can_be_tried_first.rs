//! Hooks and policies that do not enforce: what they would reject passes, and is told; in shadow, after the verdict.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::front::{LONG, REVIEW, before, caller as front_caller, grpc, until, with};
use crate::support::{
    gate::{ask, ask_within, caller, document, gate, hook, open_break_glass},
    mutating::{add_label, entry, judging, patch, patched},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use crate::{policies_decide_in_process::loops, webhook};
use gatepost::{
    front::{FrontLimits, Listener},
    live::{Generation, Rotation},
    review::{AdmissionDeps, Reasons, ShadowReview, decide_with_shadow},
    telemetry::{Audit, ShadowMetrics},
};
use gatepost_api::{Canary, Rope, Verdict};
use gatepost_base::{
    memory::{MemoryBudget, Purpose},
    offload,
};
use gatepost_wire::{inbound::view, pb::k8s::io::api::admission::v1::AdmissionRequest};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

const DENIED: &str = "admission webhook \"h.example.com\" denied the request: no";

fn enforced(enforcement: &str, url: &str, more: &str) -> String {
    hook("h.example.com", url, &format!("enforcement: {enforcement}\n{more}"))
}

/// A policy for Pods with this annotation, and its binding with another.
fn policy(kind: &str, name: &str, [of_policy, of_binding]: [&str; 2], spec: &str) -> String {
    let action = if kind == "Validating" { "\n  validationActions: [Deny]" } else { "" };
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}AdmissionPolicy\nmetadata: {{name: {name}, \
         annotations: {{{of_policy}}}}}\nspec:\n  matchConstraints:\n    resourceRules: [{{apiGroups: [''], apiVersions: [v1], \
         operations: ['*'], resources: [pods]}}]\n  {spec}\n---\napiVersion: admissionregistration.k8s.io/v1\n\
         kind: {kind}AdmissionPolicyBinding\nmetadata: {{name: {name}, annotations: {{{of_binding}}}}}\nspec:\n  \
         policyName: {name}{action}\n"
    )
}

fn validating(name: &str, annotations: [&str; 2], expression: &str) -> String {
    policy("Validating", name, annotations, &format!("validations: [{{expression: {expression:?}}}]"))
}

/// The verdict about a Pod, and what decides in shadow.
async fn decided(gate: &Arc<AdmissionDeps>, request: AdmissionRequest) -> (Verdict, Option<ShadowReview>) {
    let review = view(Rope::new([message(request)])).expect("a review");
    decide_with_shadow(gate, &review, &caller(Duration::from_secs(20))).await
}

/// Decides an allowed Pod, in shadow too.
async fn shadowed(gate: &Arc<AdmissionDeps>) -> Verdict {
    let (verdict, shadow) = decided(gate, create_pod("1", 0)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    shadow.expect("something in shadow matches").run().await;
    verdict
}

/// Counts in shadow that are not zero.
fn counts(shadow: &ShadowMetrics) -> Vec<(&'static str, u64)> {
    shadow.counts().filter(|(_, count)| *count > 0).collect()
}

fn hook_counts(gate: &AdmissionDeps) -> Vec<(&'static str, u64)> {
    counts(&gate.current.load().hooks[0].metrics.shadow)
}

fn metric(gate: &AdmissionDeps, sample: &str) -> String {
    let text = gate.metrics.render().unwrap();
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')).unwrap_or("absent").to_owned()
}

/// The message that is told, and where.
fn told(verdict: &Verdict) -> (Option<&str>, Option<&str>) {
    let annotation = |(key, value): &'_ (String, String)| key.starts_with("would-deny.").then_some(value.clone());
    assert!(verdict.audit_annotations.iter().filter_map(annotation).count() < 2);
    let annotations = verdict.audit_annotations.iter();
    let audited = annotations.filter(|(key, _)| key.starts_with("would-deny.")).map(|(_, value)| &**value).next();
    (verdict.warnings.first().and_then(|warning| warning.strip_prefix("not enforced: ")), audited)
}

#[tokio::test]
async fn hook_rejections_take_effect_by_enforcement() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let failed = "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: the hook \
                  answered with gRPC status INTERNAL: bug";
    for (script, would_be, outcome) in
        [(Script::Deny("no"), DENIED, "would_deny"), (Script::Status(13, "bug"), failed, "failed_open")]
    {
        scripted.set(script);
        for (enforcement, warned, audited) in [("Warn", Some(would_be), None), ("Audit", None, Some(would_be))] {
            let gate = gate(&document(&[enforced(enforcement, &scripted.url(), "")]), Reasons::First);
            let verdict = ask(&gate, create_pod("1", 0)).await;
            assert!(verdict.allowed(), "{enforcement}: {:?}", verdict.refusal);
            assert_eq!(told(&verdict), (warned, audited), "{enforcement}");
            let calls = format!(
                "gatepost_hook_calls_total{{hook=\"h.example.com\",type=\"validating\",outcome=\"{outcome}\"}}"
            );
            assert_eq!(metric(&gate, &calls), "1");
            assert!(!gate.metrics.render().unwrap().contains("gatepost_hook_rejections_total{"), "{enforcement}");
            assert_eq!(metric(&gate, "gatepost_requests_total{outcome=\"allowed\"}"), "1");
        }
        let denies = gate(&document(&[enforced("Deny", &scripted.url(), "")]), Reasons::First);
        assert_eq!(ask(&denies, create_pod("1", 0)).await.refusal.unwrap().message, would_be);
        let ignores = gate(&document(&[enforced("Warn", &scripted.url(), "failurePolicy: Ignore")]), Reasons::First);
        let warned = told(&ask(&ignores, create_pod("1", 0)).await).0.is_some();
        assert_eq!(warned, outcome == "would_deny", "a failure under Ignore would reject nothing");
    }
}

#[tokio::test]
async fn warning_hook_never_rejects() {
    let hung = ScriptedHook::start(Script::Hang).await;
    let dry_run = AdmissionRequest { dry_run: Some(true), ..create_pod("1", 0) };
    let elsewhere = AdmissionRequest { namespace: Some("nowhere".into()), ..create_pod("1", 0) };
    for (more, request, told_of) in [
        ("sideEffects: Some", dry_run, "does not support dry run"),
        (
            "matchConditions: [{name: c, expression: object.spec.absent == 1}]",
            create_pod("1", 0),
            "no such key: absent",
        ),
        ("namespaceSelector: {matchLabels: {a: b}}", elsewhere, "namespaces \"nowhere\" not found"),
        ("", create_pod("1", 0), "failed calling webhook"),
    ] {
        let gate = gate(&document(&[enforced("Warn", &hung.url(), more)]), Reasons::First);
        let verdict = ask_within(&gate, request, Duration::from_millis(50)).await;
        assert!(verdict.allowed(), "{more}: {:?}", verdict.refusal);
        assert!(told(&verdict).0.is_some_and(|message| message.contains(told_of)), "{more}: {:?}", verdict.warnings);
    }
}

#[tokio::test]
async fn the_deadline_rejects_only_if_something_that_enforces_is_late() {
    let (hung, yes) = (ScriptedHook::start(Script::Hang).await, ScriptedHook::start(Script::Allow).await);
    let mutating =
        |name: &str, at: &ScriptedHook, more: &str| hook(name, &at.url(), &format!("type: Mutating\n{more}"));
    let first = mutating("a.example.com", &hung, "enforcement: Warn");
    for (second, allowed) in [
        (None, true),
        (Some(mutating("b.example.com", &yes, "enforcement: Audit")), true),
        (Some(mutating("b.example.com", &yes, "")), false),
        (Some(hook("b.example.com", &yes.url(), "enforcement: Warn")), true),
        (Some(hook("b.example.com", &yes.url(), "")), false),
    ] {
        let hooks: Vec<_> = [Some(first.clone()), second.clone()].into_iter().flatten().collect();
        let verdict =
            ask_within(&gate(&document(&hooks), Reasons::First), create_pod("1", 0), Duration::from_millis(50)).await;
        assert_eq!(verdict.allowed(), allowed, "{second:?} {:?}", verdict.refusal);
        assert!(verdict.refusal.is_none_or(|refusal| refusal.code == 504));
    }
}

/// Also what would have been called once more, and what would have been called after the others.
#[tokio::test]
async fn deadline_rejects_if_enforcing_calls_remain() {
    let (hung, yes) = (ScriptedHook::start(Script::Hang).await, ScriptedHook::start(Script::Allow).await);
    let (allows, patches) = (judging(|_| json!({"allowed": true})).await, judging(|_| add_label("team", "a")).await);
    let late = |hook_type: &str| hook("l.example.com", &hung.url(), &format!("type: {hook_type}\nenforcement: Audit"));
    let again = |more: &str| {
        let first = entry("a", "Mutating", &allows, &format!("reinvocationPolicy: IfNeeded\n{more}"));
        vec![first, entry("b", "Mutating", &patches, "enforcement: Audit"), late("Mutating")]
    };
    let transactional = |more: &str| {
        let more = format!("phase: Transactional\nsideEffects: NoneOnDryRun\nfailurePolicy: Ignore\n{more}");
        vec![late("Validating"), hook("t.example.com", &yes.url(), &more)]
    };
    for (hooks, allowed) in [
        (again(""), false),
        (again("enforcement: Audit"), true),
        (transactional(""), false),
        (transactional("enforcement: Audit"), true),
    ] {
        let gate = gate(&document(&hooks), Reasons::First);
        let verdict = ask_within(&gate, create_pod("1", 0), Duration::from_millis(500)).await;
        assert_eq!(verdict.allowed(), allowed, "{hooks:?} {:?}", verdict.refusal);
        assert!(verdict.refusal.is_none_or(|refusal| refusal.code == 504));
    }
    assert_eq!(yes.seen().len(), 0);
}

#[tokio::test]
async fn a_denial_that_is_enforced_rejects_beside_one_that_is_not() {
    let (no, other) = (ScriptedHook::start(Script::Deny("no")).await, ScriptedHook::start(Script::Deny("never")).await);
    let hooks = [enforced("Warn", &no.url(), ""), hook("o.example.com", &other.url(), "")];
    let verdict = ask(&gate(&document(&hooks), Reasons::All), create_pod("1", 0)).await;
    let message = "admission webhook \"o.example.com\" denied the request: never";
    assert_eq!(verdict.refusal.as_ref().unwrap().message, message);
    assert_eq!(told(&verdict).0, Some(DENIED));
}

#[tokio::test]
async fn warning_mutating_hook_s_patch_applies() {
    let allowed = |answer: Value| async move { judging(move |_| answer.clone()).await };
    let patches = allowed(add_label("team", "a")).await;
    let breaks = allowed(patch(json!([{"op": "remove", "path": "/absent"}]))).await;
    let mut denial = add_label("denied", "yes");
    (denial["allowed"], denial["status"]) = (false.into(), json!({"message": "no"}));
    let denies = allowed(denial).await;
    let hooks = [
        entry("a", "Mutating", &breaks, "enforcement: Warn"),
        entry("b", "Mutating", &denies, "enforcement: Audit"),
        entry("c", "Mutating", &patches, "enforcement: Warn"),
    ];
    let verdict = ask(&gate(&document(&hooks), Reasons::First), create_pod("1", 0)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    assert_eq!(patched(&verdict)["metadata"]["labels"], json!({"app": "web", "team": "a"}));
    let (warned, audited) = told(&verdict);
    assert!(warned.unwrap().contains("sent a patch that cannot be applied"), "{warned:?}");
    assert_eq!(audited, Some("admission webhook \"b.example.com\" denied the request: no"));
}

#[tokio::test]
async fn audit_log_has_unenforced_rejections() {
    let folder = tempfile::tempdir().unwrap();
    let no = ScriptedHook::start(Script::Deny("no")).await;
    for (number, has_messages) in [true, false].into_iter().enumerate() {
        let log = folder.path().join(number.to_string());
        let mut deps = Arc::into_inner(gate(&document(&[enforced("Audit", &no.url(), "")]), Reasons::First)).unwrap();
        deps.audit = Arc::new(Audit::to_path(&log, || {}).unwrap().with_hook_messages(has_messages));
        assert!(ask(&deps, create_pod("1", 0)).await.allowed());
        deps.audit.close();
        let line: Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
        let mut wanted = json!({"code": 400, "message": DENIED});
        if !has_messages {
            wanted.as_object_mut().unwrap().remove("message");
        }
        let call = &line["hooks"][0];
        assert_eq!(
            (&call["outcome"], &call["enforcement"], &call["would_be"]),
            (&json!("would_deny"), &json!("Audit"), &wanted)
        );
    }
}

#[tokio::test]
async fn policy_rejections_take_effect_by_annotation_or_bindings() {
    const WARN: &str = "gatepost.dev/enforcement: Warn";
    const AUDIT: &str = "gatepost.dev/enforcement: Audit";
    const DENY: &str = "gatepost.dev/enforcement: Deny";
    for (annotations, warns, audits) in [
        ([WARN, ""], true, false),
        (["", WARN], true, false),
        (["", AUDIT], false, true),
        ([WARN, AUDIT], false, true),
        ([WARN, DENY], false, false),
    ] {
        for (expression, said, outcome) in [
            ("false", "failed expression: false", "would_deny"),
            ("object.spec.absent == 1", "no such key: absent", "failed_open"),
        ] {
            let gate = gate(&validating("p", annotations, expression), Reasons::First);
            let verdict = ask(&gate, create_pod("1", 0)).await;
            assert_eq!(verdict.allowed(), warns || audits, "{annotations:?} {:?}", verdict.refusal);
            let (warned, audited) = told(&verdict);
            assert_eq!((warned.is_some(), audited.is_some()), (warns, audits), "{annotations:?}");
            assert!(warned.or(audited).is_none_or(|message| message.contains(said)), "{warned:?} {audited:?}");
            let sample =
                format!("gatepost_policy_decisions_total{{policy=\"p\",type=\"validating\",outcome=\"{outcome}\"}}");
            assert_eq!(metric(&gate, &sample), u8::from(verdict.allowed()).to_string(), "{annotations:?}");
        }
    }
}

#[tokio::test]
async fn shadow_hook_is_called_after_the_verdict_and_counted() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    for (script, time, counted) in [
        (Script::Allow, "10s", "allowed"),
        (Script::Deny("no"), "10s", "would_deny"),
        (Script::Status(13, "bug"), "10s", "failed"),
        (Script::Hang, "20ms", "failed"),
    ] {
        scripted.set(script);
        let before = scripted.seen().len();
        let text = document(&[enforced("Shadow", &scripted.url(), &format!("timeout: {time}"))]);
        let gate = gate(&text, Reasons::First);
        let (verdict, shadow) = decided(&gate, create_pod("1", 0)).await;
        assert_eq!((verdict.allowed(), &*verdict.warnings, scripted.seen().len()), (true, &[][..], before));
        assert!(!verdict.audit_annotations.iter().any(|(key, _)| key.starts_with("would-deny")));
        shadow.unwrap().run().await;
        assert_eq!(hook_counts(&gate), [(counted, 1)]);
        // A busy machine may not even send the call in 20 ms.
        let called = scripted.seen().len() - before;
        assert!(called == 1 || called == 0 && time == "20ms", "{called}");
        let calls = "gatepost_hook_calls_total{hook=\"h.example.com\",type=\"validating\",outcome=\"";
        let rendered = gate.metrics.render().unwrap();
        let others = rendered.lines().filter(|line| line.starts_with(calls) && !line.ends_with(" 0"));
        assert_eq!(others.count(), 0, "no other count, by which alarms are raised");
        let denials = gate.current.load().hooks[0].metrics.shadow.denials();
        let request = (counted == "would_deny").then_some("CREATE Pod shop/web");
        assert_eq!(denials.first().map(|denial| &*denial.request), request);
    }
}

#[tokio::test]
async fn shadow_mutating_hooks_see_the_original_object() {
    let labels = |name: &'static str| {
        move |request: &Value| {
            let seen = request["object"]["metadata"]["labels"]["team"].as_str() == Some("a");
            assert_eq!(seen, name == "validates", "{name}");
        }
    };
    let (mutates, validates) = (labels("mutates"), labels("validates"));
    let adds = judging(|_| add_label("team", "a")).await;
    let mutating = judging(move |request| {
        mutates(request);
        add_label("shadow", "b")
    })
    .await;
    let checking = judging(move |request| {
        validates(request);
        json!({"allowed": request["object"]["metadata"]["labels"]["team"] == "a"})
    })
    .await;
    let hooks = [
        entry("a", "Mutating", &adds, ""),
        entry("b", "Mutating", &mutating, "enforcement: Shadow"),
        entry("c", "Validating", &checking, "enforcement: Shadow"),
    ];
    let gate = gate(&document(&hooks), Reasons::First);
    let verdict = shadowed(&gate).await;
    assert_eq!(patched(&verdict)["metadata"]["labels"], json!({"app": "web", "team": "a"}), "no patch of a shadow");
    let in_force = gate.current.load();
    let counted: Vec<_> = in_force.hooks.iter().map(|live| counts(&live.metrics.shadow)).collect();
    assert_eq!(counted, [vec![], vec![("would_patch", 1)], vec![("allowed", 1)]]);
}

#[tokio::test]
async fn policies_in_shadow_are_only_counted() {
    const SHADOW: [&str; 2] = ["gatepost.dev/enforcement: Shadow", ""];
    let mutation = |expression: &str| {
        let patch = format!("[{{patchType: JSONPatch, jsonPatch: {{expression: {expression:?}}}}}]");
        policy("Mutating", "m", SHADOW, &format!("reinvocationPolicy: Never\n  mutations: {patch}"))
    };
    for (text, counted) in [
        (validating("p", SHADOW, "true"), "allowed"),
        (validating("p", SHADOW, "false"), "would_deny"),
        (validating("p", SHADOW, "object.spec.absent == 1"), "failed"),
        (mutation("[JSONPatch{op: 'add', path: '/metadata/labels/x', value: 'y'}]"), "would_patch"),
        (mutation("[JSONPatch{op: 'remove', path: '/absent'}]"), "failed"),
    ] {
        let mut deps = Arc::into_inner(gate(&text, Reasons::First)).unwrap();
        deps.audit = Arc::new(Audit::off().with_hook_messages(true));
        let gate = Arc::new(deps);
        let verdict = shadowed(&gate).await;
        assert_eq!((verdict.patch, verdict.warnings), (None, vec![]));
        let metrics = &gate.current.load().policies[0].metrics;
        assert_eq!(counts(&metrics.shadow), [(counted, 1)], "{text}");
        let decisions = gate.metrics.render().unwrap();
        let decisions = decisions.lines().filter(|line| line.starts_with("gatepost_policy_decisions_total{"));
        assert_eq!(decisions.filter(|line| !line.ends_with(" 0")).count(), 0);
        let message = metrics.shadow.denials().pop().map(|denial| denial.message.unwrap());
        assert_eq!(message.is_some_and(|said| said.contains("failed expression: false")), counted == "would_deny");
    }
}

#[tokio::test]
async fn denied_or_bypassed_requests_are_not_shadowed() {
    let (no, shadow) = (ScriptedHook::start(Script::Deny("no")).await, ScriptedHook::start(Script::Allow).await);
    let in_shadow = enforced("Shadow", &shadow.url(), "");
    let denied = gate(&document(&[hook("no.example.com", &no.url(), ""), in_shadow.clone()]), Reasons::First);
    assert!(decided(&denied, create_pod("1", 0)).await.1.is_none());
    for hooks in ["", ", hooks: [h.example.com]"] {
        let rule = format!("bypass: [{{name: x, reason: y, namespaces: [shop]{hooks}}}]\n");
        let gate = gate(&(document(std::slice::from_ref(&in_shadow)) + &rule), Reasons::First);
        if let (_, Some(shadow)) = decided(&gate, create_pod("1", 0)).await {
            shadow.run().await;
        }
    }
    let open = gate(&document(&[in_shadow]), Reasons::First);
    open_break_glass(&open, &["h.example.com"]);
    if let (_, Some(shadow)) = decided(&open, create_pod("1", 0)).await {
        shadow.run().await;
    }
    assert_eq!(shadow.seen().len(), 0);
}

#[tokio::test]
async fn shadows_are_dropped_and_counted_without_slots_or_memory() {
    let hung = ScriptedHook::start(Script::Hang).await;
    let text = document(&[enforced("Shadow", &hung.url(), "")]);
    let slots = gate(&text, Reasons::First);
    let mut running = Vec::new();
    for _ in 0..64 {
        running.push(decided(&slots, create_pod("1", 0)).await.1.expect("a slot"));
    }
    let (verdict, shadow) = decided(&slots, create_pod("2", 0)).await;
    assert!(verdict.allowed() && shadow.is_none());
    assert_eq!(metric(&slots, "gatepost_shadow_dropped_total{reason=\"slots\"}"), "1");
    running.pop();
    assert!(decided(&slots, create_pod("3", 0)).await.1.is_some(), "a slot is free again");

    let mut deps = Arc::into_inner(gate(&text, Reasons::First)).unwrap();
    deps.memory = MemoryBudget::new(8 * (150 << 10));
    let memory = Arc::new(deps);
    let first = decided(&memory, create_pod("1", 100 << 10)).await.1.expect("room for one");
    assert!(decided(&memory, create_pod("2", 100 << 10)).await.1.is_none(), "an eighth of the budget is in use");
    drop(first);
    let others = memory.memory.reserve(Purpose::Review, 5 * (150 << 10)).unwrap();
    assert!(decided(&memory, create_pod("3", 100 << 10)).await.1.is_none(), "more than half of it is in use");
    assert_eq!(metric(&memory, "gatepost_shadow_dropped_total{reason=\"memory\"}"), "2");
    drop(others);
    drop(decided(&memory, create_pod("4", 100 << 10)).await.1.expect("room again"));
    assert_eq!(memory.memory.held(), 0);
}

/// Mutating policies in shadow, each of which takes less than the steps on a worker's thread, and all together more.
fn slow_in_shadow() -> String {
    let patch = format!("{} ? [JSONPatch{{op: 'add', path: '/metadata/labels/x', value: 'y'}}] : []", loops(4));
    let mutations = format!("[{{patchType: JSONPatch, jsonPatch: {{expression: {patch:?}}}}}]");
    let spec = format!("reinvocationPolicy: Never\n  mutations: {mutations}");
    let shadow = ["gatepost.dev/enforcement: Shadow", ""];
    ('a'..='p').map(|name| policy("Mutating", &name.to_string(), shadow, &spec)).collect()
}

fn policy_counts(gate: &AdmissionDeps) -> Vec<Vec<(&'static str, u64)>> {
    gate.current.load().policies.iter().map(|live| counts(&live.metrics.shadow)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_calls_are_dropped_without_a_free_thread() {
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let goes_on = Arc::new(std::sync::Mutex::new(goes_on));
    let permits = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2)) - 1;
    for _ in 0..permits {
        let (begun, goes_on) = (begun.clone(), Arc::clone(&goes_on));
        tokio::spawn(offload::evaluate(move || {
            begun.send(()).unwrap();
            drop(goes_on.lock().map(|goes_on| goes_on.recv()));
        }));
    }
    for _ in 0..permits {
        has_begun.recv().await.unwrap();
    }
    let allows = judging(|_| json!({"allowed": true})).await;
    let hooks = gate(&document(&[entry("a", "Validating", &allows, "enforcement: Shadow")]), Reasons::First);
    decided(&hooks, create_pod("1", 400 << 10)).await.1.unwrap().run().await;
    assert_eq!(hook_counts(&hooks), [("abandoned", 1)], "a large review is not encoded");
    let gate = gate(&slow_in_shadow(), Reasons::First);
    shadowed(&gate).await;
    drop(go_on);
    let counts = policy_counts(&gate);
    assert_eq!((&*counts[0], &*counts[15]), (&[("would_patch", 1)][..], &[("abandoned", 1)][..]));
    assert_eq!(metric(&gate, "gatepost_shadow_dropped_total{reason=\"threads\"}"), "1");
}

#[tokio::test]
async fn shadow_calls_leave_answer_memory_to_enforcing_hooks() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    for (bytes, counted, dropped) in [(4 << 20, "would_patch", "0"), (1 << 20, "abandoned", "1")] {
        let mutation = "mutations: [{patchType: JSONPatch, jsonPatch: {expression: \"[JSONPatch{op: 'add', path: \
                        '/metadata/labels/x', value: 'y'}]\"}}]";
        let spec = format!("reinvocationPolicy: Never\n  {mutation}");
        let text = policy("Mutating", "m", ["gatepost.dev/enforcement: Shadow", ""], &spec);
        let hooks = document(&[hook("h.example.com", &scripted.url(), "")]);
        let mut deps = Arc::into_inner(gate(&(hooks + &text), Reasons::First)).unwrap();
        deps.memory = MemoryBudget::new(bytes);
        let gate = Arc::new(deps);
        shadowed(&gate).await;
        assert_eq!(policy_counts(&gate), [vec![(counted, 1)]]);
        assert_eq!(metric(&gate, "gatepost_shadow_dropped_total{reason=\"memory\"}"), dropped);
        assert_eq!(gate.memory.held(), 0);
    }
}

#[tokio::test]
async fn silent_shadow_hook_delays_no_verdict_or_shutdown() {
    let hung = ScriptedHook::start(Script::Hang).await;
    let gate = gate(&document(&[enforced("Shadow", &hung.url(), "timeout: 30s")]), Reasons::First);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sidecar = before(Arc::clone(&gate), FrontLimits::default(), address, Listener::Tcp(listener));
    let caller = front_caller(address).await;
    let answered = timeout(LONG, caller.call(grpc(REVIEW), [message(create_pod("1", 0))])).await.unwrap();
    answered.assert_allowed("1");
    timeout(LONG, hung.asked.notified()).await.expect("the hook is called after the verdict");
    let review = webhook::review("2", 0);
    let request = with(webhook::post("/validate"), "content-length", &review.len().to_string());
    let answered = timeout(LONG, caller.call(request, [review])).await.unwrap();
    assert_eq!(answered.http, StatusCode::OK, "{answered:?}");
    timeout(LONG, hung.asked.notified()).await.expect("over HTTP, too");
    until("nothing is in flight", || sidecar.front.inflight.requests() == 0).await;
    sidecar.shutdown.send(()).unwrap();
    drop(caller);
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").unwrap();
    assert_eq!(drained.cut, 0);
    assert_eq!(hook_counts(&gate), [], "it is still asked");
}

/// UIDs, and which of them a canary with this share decides.
fn shared(share: &str) -> Vec<(String, bool)> {
    let canary = Canary::parse(&format!("{share} of old")).unwrap();
    (0..100)
        .map(|number| format!("{number:08}-6393-11e8-b7cc-42010a800002"))
        .map(|uid| (uid.clone(), canary.decides(&uid)))
        .collect()
}

/// A hook, and its canary for half of the requests.
fn halves(old: &ScriptedHook, new: &ScriptedHook) -> [String; 2] {
    let canary = hook("new.example.com", &new.url(), "canary: 50% of old.example.com");
    [hook("old.example.com", &old.url(), ""), canary]
}

/// What a canary and the other decided otherwise, and the numbers of requests: decided alike, and otherwise.
fn comparisons(shadow: &ShadowMetrics) -> (Vec<String>, [u64; 2]) {
    let texts = shadow.differences().into_iter().map(|one| format!("{} {}", one.request, one.message.unwrap()));
    (texts.collect(), shadow.comparisons().map(|(_, count)| count))
}

fn with_messages(text: &str) -> Arc<AdmissionDeps> {
    let mut deps = Arc::into_inner(gate(text, Reasons::First)).unwrap();
    deps.audit = Arc::new(Audit::off().with_hook_messages(true));
    Arc::new(deps)
}

#[tokio::test]
async fn one_of_a_canary_pair_decides_and_the_other_shadows() {
    let (old, new) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Deny("no")).await);
    let canary = hook("new.example.com", &new.url(), "canary: 30% of old.example.com");
    for (swapped, message) in [(false, "no"), (true, "old")] {
        let (old_says, new_says) =
            if swapped { (Script::Deny("old"), Script::Allow) } else { (Script::Allow, Script::Deny("no")) };
        old.set(old_says);
        new.set(new_says);
        // Whichever comes first.
        let mut hooks = vec![hook("old.example.com", &old.url(), ""), canary.clone()];
        if swapped {
            hooks.reverse();
        }
        let gate = with_messages(&document(&hooks));
        let mut decided_by_canary = 0;
        for (uid, by_canary) in shared("30%") {
            let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
            let denies = by_canary != swapped;
            assert_eq!(verdict.allowed(), !denies, "{uid}");
            assert!(verdict.refusal.is_none_or(|refusal| refusal.message.ends_with(message)));
            shadow.expect("the other of the pair").run().await;
            decided_by_canary += u64::from(by_canary);
        }
        let in_force = gate.current.load();
        let [canary, replaced] = [swapped, !swapped].map(|first| &in_force.hooks[usize::from(!first)].metrics.shadow);
        let (differences, numbers) = comparisons(canary);
        assert_eq!(numbers, [0, 100]);
        let difference = match swapped {
            false => {
                "new.example.com denied (admission webhook \"new.example.com\" denied the request: no), old.example.com allowed"
            }
            true => {
                "new.example.com allowed, old.example.com denied (admission webhook \"old.example.com\" denied the request: old)"
            }
        };
        assert_eq!(differences, vec![format!("CREATE Pod shop/web {difference}"); 8]);
        let outcome = |denies| if denies { "would_deny" } else { "allowed" };
        assert_eq!(counts(canary), [(outcome(!swapped), 100 - decided_by_canary)]);
        assert_eq!(counts(replaced), [(outcome(swapped), decided_by_canary)]);
        let sample = "gatepost_canary_comparisons_total{canary=\"new.example.com\",kind=\"hook\",type=\"validating\",result=\"different\"}";
        assert_eq!(metric(&gate, sample), "100");
    }
    assert_eq!((old.seen().len(), new.seen().len()), (200, 200), "each decides each request once");
}

#[tokio::test]
async fn equal_canary_decisions_are_counted() {
    let (old, new) = (ScriptedHook::start(Script::Deny("no")).await, ScriptedHook::start(Script::Deny("never")).await);
    let old_hook = hook("old.example.com", &old.url(), "");
    let canary = |more: &str| hook("new.example.com", &new.url(), &format!("canary: 50% of old.example.com\n{more}"));
    let excluded = "matchConditions: [{name: c, expression: 'false'}]";
    for (more, numbers) in [("", [100, 0]), (excluded, [0, 100])] {
        let gate = with_messages(&document(&[old_hook.clone(), canary(more)]));
        for (uid, by_canary) in shared("50%") {
            let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
            assert_eq!(verdict.allowed(), by_canary && !more.is_empty());
            shadow.expect("the other of the pair").run().await;
        }
        assert_eq!(comparisons(&gate.current.load().hooks[1].metrics.shadow).1, numbers, "{more}");
    }
    let failing = with_messages(&document(&[old_hook, canary("")]));
    new.set(Script::Status(13, "bug"));
    old.set(Script::Allow);
    let (verdict, shadow) = decided(&failing, create_pod(&shared("50%").iter().find(|one| !one.1).unwrap().0, 0)).await;
    assert!(verdict.allowed());
    shadow.unwrap().run().await;
    let (differences, _) = comparisons(&failing.current.load().hooks[1].metrics.shadow);
    assert_eq!(differences, ["CREATE Pod shop/web new.example.com failed, old.example.com allowed"]);
}

#[tokio::test]
async fn policies_are_canaries_by_an_annotation() {
    const CANARY: [&str; 2] = ["gatepost.dev/canary: 40% of old", ""];
    let patches = |name: &str, annotations: [&str; 2], expression: &str| {
        let patch = format!("[{{patchType: JSONPatch, jsonPatch: {{expression: {expression:?}}}}}]");
        policy("Mutating", name, annotations, &format!("reinvocationPolicy: Never\n  mutations: {patch}"))
    };
    let label = "[JSONPatch{op: 'add', path: '/metadata/labels/x', value: 'y'}]";
    for (text, difference, denies) in [
        (
            validating("old", ["", ""], "true") + &validating("new", CANARY, "false"),
            "new denied (ValidatingAdmissionPolicy 'new' with binding 'new' denied request: failed expression: false), old allowed",
            true,
        ),
        (
            patches("old", ["", ""], "[JSONPatch{op: 'test', path: '/metadata/labels/app', value: 'web'}]")
                + &patches("new", CANARY, label),
            "new patched, old allowed",
            false,
        ),
    ] {
        let gate = with_messages(&text);
        for (uid, by_canary) in shared("40%") {
            let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
            assert_eq!(verdict.allowed(), !(denies && by_canary), "{:?}", verdict.refusal);
            assert_eq!(verdict.patch.is_some(), !denies && by_canary);
            shadow.expect("the other of the pair").run().await;
        }
        let in_force = gate.current.load();
        let canary = in_force.policies.iter().find(|live| *live.policy.definition.name == *"new").unwrap();
        let (differences, numbers) = comparisons(&canary.metrics.shadow);
        assert_eq!((numbers, &*differences[0]), ([0, 100], &*format!("CREATE Pod shop/web {difference}")));
    }
}

/// A canary that replaces nothing that could decide in its place enforces on every request, as does what it names.
#[tokio::test]
async fn a_canary_of_nothing_decides_every_request() {
    let (old, new) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Deny("no")).await);
    let canary = hook("new.example.com", &new.url(), "canary: 1% of old.example.com");
    for old in [
        None,
        Some(hook("old.example.com", &old.url(), "type: Mutating")),
        Some(hook("old.example.com", &old.url(), "enforcement: Warn")),
        Some(hook("old.example.com", &old.url(), "phase: Transactional\nsideEffects: None")),
    ] {
        let hooks: Vec<_> = [Some(canary.clone()), old].into_iter().flatten().collect();
        let gate = gate(&document(&hooks), Reasons::First);
        for (uid, _) in shared("1%") {
            let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
            assert!(!verdict.allowed() && shadow.is_none());
        }
    }
}

/// What has not passed its probe is not called. The other then decides every request.
#[tokio::test]
async fn one_of_a_canarys_pair_that_is_not_called_leaves_every_request_to_the_other() {
    let (old, new) = (ScriptedHook::start(Script::Deny("old")).await, ScriptedHook::start(Script::Deny("new")).await);
    let hooks = halves(&old, &new);
    for (probing, says) in [(0, "new"), (1, "old")] {
        let gate = gate(&document(&hooks), Reasons::First);
        let in_force = gate.current.load();
        let mut generation = Generation::of(Arc::clone(&in_force.snapshot), &gate.metrics);
        generation.hooks.clone_from(&in_force.hooks);
        generation.hooks[probing].rotation = Rotation::Probing { since: SystemTime::UNIX_EPOCH, last_failure: None };
        gate.current.publish(Arc::new(generation));
        for (uid, _) in shared("50%") {
            let verdict = decided(&gate, create_pod(&uid, 0)).await.0;
            assert!(verdict.refusal.is_some_and(|refusal| refusal.message.ends_with(says)), "{uid} {says}");
        }
    }
}

/// A bypass of a canary gives back what was there before it; a bypass of the other one is about that one alone.
#[tokio::test]
async fn a_bypassed_canary_decides_nothing() {
    let (old, new) = (ScriptedHook::start(Script::Deny("old")).await, ScriptedHook::start(Script::Deny("new")).await);
    let hooks = halves(&old, &new);
    for (bypassed, allows) in [("new.example.com", false), ("old.example.com", true)] {
        let rule = format!("bypass: [{{name: x, reason: y, namespaces: [shop], hooks: [{bypassed}]}}]\n");
        let gate = gate(&(document(&hooks) + &rule), Reasons::First);
        for (uid, by_canary) in shared("50%") {
            let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
            assert_eq!(verdict.allowed(), allows && !by_canary, "{bypassed}");
            if let Some(shadow) = shadow {
                shadow.run().await;
            }
        }
        assert_eq!(comparisons(&gate.current.load().hooks[1].metrics.shadow).1, [0, 0], "one has no decision");
    }
}

/// Bindings that only warn or audit deny nothing in its place.
#[tokio::test]
async fn a_policy_without_a_binding_that_denies_shares_no_requests() {
    const CANARY: [&str; 2] = ["gatepost.dev/canary: 50% of old", ""];
    let audits = |text: String| text.replace("validationActions: [Deny]", "validationActions: [Audit]");
    for (text, allowed) in [
        (audits(validating("old", ["", ""], "true")) + &validating("new", CANARY, "false"), false),
        (validating("old", ["", ""], "false") + &audits(validating("new", CANARY, "true")), false),
    ] {
        let gate = gate(&text, Reasons::First);
        for (uid, _) in shared("50%") {
            assert_eq!(decided(&gate, create_pod(&uid, 0)).await.0.allowed(), allowed);
        }
    }
}

#[tokio::test]
async fn a_patch_that_cannot_be_applied_is_a_difference() {
    let patches = judging(|_| add_label("team", "a")).await;
    let breaks = judging(|_| patch(json!([{"op": "remove", "path": "/absent"}]))).await;
    let hooks =
        [entry("old", "Mutating", &patches, ""), entry("new", "Mutating", &breaks, "canary: 50% of old.example.com")];
    let gate = with_messages(&document(&hooks));
    let (uid, _) = shared("50%").into_iter().find(|(_, by_canary)| *by_canary).unwrap();
    let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
    assert!(!verdict.allowed());
    shadow.unwrap().run().await;
    let (differences, _) = comparisons(&gate.current.load().hooks[1].metrics.shadow);
    assert_eq!(differences, ["CREATE Pod shop/web new.example.com failed, old.example.com patched"]);
}

#[tokio::test]
async fn a_pair_whose_call_was_cancelled_is_not_decided_in_shadow() {
    let (no, hung) = (ScriptedHook::start(Script::Deny("no")).await, ScriptedHook::start(Script::Hang).await);
    let mut hooks = halves(&hung, &hung).to_vec();
    hooks.push(hook("no.example.com", &no.url(), ""));
    let gate = gate(&document(&hooks), Reasons::First);
    for (uid, _) in shared("50%").into_iter().take(4) {
        let (verdict, shadow) = decided(&gate, create_pod(&uid, 0)).await;
        assert!(!verdict.allowed() && shadow.is_none());
    }
}

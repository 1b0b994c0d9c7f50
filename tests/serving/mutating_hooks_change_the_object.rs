//! Mutating hooks: each counts in order, about what those before it have made of the object; asked together where that
//! comes to the same; one patch for the caller.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::support::{
    self,
    gate::{caller, document, gate},
    http_hook::{HttpHook, HttpScript},
    mutating::{LONG, add_label, ask, entry, judging, labels, patch, patched},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    hooks::Channel,
    review::{AdmissionDeps, Caller, Reasons, Speculation, decide},
    telemetry::Audit,
};
use gatepost_api::{Dispatch, Endpoint, Phase, Rope, Transport, Verdict, hook::Address};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::admission::v1::AdmissionRequest,
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

#[tokio::test]
async fn hooks_see_earlier_patches_and_the_caller_gets_one() {
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
async fn hooks_that_change_nothing_are_called_in_one_round() {
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
async fn hook_with_side_effects_is_never_called_speculatively() {
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
async fn one_budget_for_all_that_hang() {
    let (mut hooks, mut entries) = (Vec::new(), Vec::new());
    // Each in its own turn; the second has what is left of the request's time.
    for (n, timeout) in ["200ms", "20s", "20s"].into_iter().enumerate() {
        let hook = HttpHook::plain(HttpScript::Hang).await;
        let more = format!("sideEffects: Some\nfailurePolicy: Ignore\ntimeout: {timeout}");
        entries.push(entry(&format!("h{n}"), "Mutating", &hook, &more));
        hooks.push(hook);
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let audit = Arc::new(Audit::to_path(&log, || {}).unwrap());
    let gate = Arc::new(AdmissionDeps { audit, ..Arc::into_inner(gate(&document(&entries), Reasons::First)).unwrap() });
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let caller = Caller { phase: Phase::Mutate, ..caller(Duration::from_millis(1500)) };
    let verdict = decide(&gate, &review, &caller).await;
    let refusal = verdict.refusal.expect("as in upstream, despite Ignore");
    assert_eq!(refusal.code, 504);
    let causes: Vec<_> = refusal.causes.iter().map(|cause| (&*cause.field, &*cause.message)).collect();
    assert_eq!(causes, [("h2.example.com", "not called: the request's time was over")]);
    assert_eq!(
        hooks.iter().map(|hook| hook.seen().len()).collect::<Vec<_>>(),
        [1, 1, 0],
        "the last one's turn never came"
    );
    let metrics = gate.metrics.render().unwrap();
    for n in 0..3 {
        let sample = format!(
            r#"gatepost_hook_call_failures_total{{hook="h{n}.example.com",type="mutating",kind="timeout",policy="Ignore"}} 1"#
        );
        assert!(metrics.lines().any(|line| line == sample), "{sample}");
    }
    gate.audit.close();
    let line: Value = serde_json::from_slice(&std::fs::read(&log).unwrap()).unwrap();
    let of = |hook: &Value| (hook["hook"].clone(), hook["failure"].clone(), hook["error"].clone());
    let hooks: Vec<_> = line["hooks"].as_array().unwrap().iter().map(of).collect();
    let names: Vec<_> = hooks.iter().map(|(name, failure, _)| (name.as_str(), failure.as_str())).collect();
    let timeout = |name| (Some(name), Some("timeout"));
    assert_eq!(names, ["h0.example.com", "h1.example.com", "h2.example.com"].map(timeout));
    assert_eq!(hooks[2].2, "not called: the request's time was over");
}

#[tokio::test]
async fn a_grpc_hook_that_only_changes_objects_passes_its_probe() {
    let hook = ScriptedHook::start(Script::Only("/gatepost.v1.Admission/Mutate")).await;
    let address = Address::Tcp { host: hook.address.ip().to_string().into(), port: hook.address.port() };
    let endpoint = Endpoint { address, tls: None, transport: Transport::Grpc, authorization: None };
    let channel = Channel::open(endpoint, None, &[tokio::runtime::Handle::current()]);
    assert_eq!(channel.probe(None, LONG).await, Ok(()));
}

/// The answer of a later hook makes no difference where a hook has used the time up.
#[tokio::test]
async fn hook_that_exhausts_the_deadline_ends_the_request() {
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
async fn namespace_keeps_its_name_label_if_labels_are_replaced() {
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

/// Number of calls of each hook.
fn calls(hooks: &[HttpHook]) -> Vec<usize> {
    hooks.iter().map(|hook| hook.seen().len()).collect()
}

/// Number of calls of each hook that did not count.
fn discarded(gate: &AdmissionDeps, hooks: usize) -> Vec<usize> {
    let metrics = gate.metrics.render().unwrap();
    let of = |n: usize| {
        let sample = format!(r#"gatepost_hook_calls_in_vain_total{{hook="h{n}.example.com",type="mutating"}} "#);
        metrics.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok()).unwrap()
    };
    (0..hooks).map(of).collect()
}

/// Eight hooks that may be asked ahead of their turn, of which the third adds a label.
async fn third_of_eight_patches() -> (Vec<HttpHook>, Vec<String>) {
    let (mut hooks, mut entries) = (Vec::new(), Vec::new());
    for n in 0..8 {
        let hook = judging(move |_| if n == 2 { add_label("a", "1") } else { json!({"allowed": true}) }).await;
        entries.push(entry(&format!("h{n}"), "Mutating", &hook, "sideEffects: None"));
        hooks.push(hook);
    }
    (hooks, entries)
}

#[tokio::test]
async fn no_speculative_calls_behind_a_hook_known_to_patch() {
    let (hooks, entries) = third_of_eight_patches().await;
    let gate = gate(&document(&entries), Reasons::First);
    for _ in 0..20 {
        assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    }
    assert_eq!(discarded(&gate, 8), [0, 0, 0, 6, 6, 6, 6, 6], "so many answers to learn it");
    for hook in &hooks {
        hook.forget();
    }
    for _ in 0..5 {
        assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    }
    assert_eq!(calls(&hooks), [5; 8]);
    assert_eq!(discarded(&gate, 8), [0, 0, 0, 6, 6, 6, 6, 6]);
    // Patch rates of one kind of request say nothing about another.
    let mut update = create_pod("u", 0);
    (update.operation, update.old_object) = (Some("UPDATE".into()), update.object.clone());
    assert!(ask(&gate, Phase::Mutate, update).await.patch.is_some());
    assert_eq!(discarded(&gate, 8), [0, 0, 0, 7, 7, 7, 7, 7]);
}

#[tokio::test]
async fn speculation_is_disabled_by_configuration() {
    // Of one hook: nobody is asked with it, before and behind it others are together.
    let (hooks, mut entries) = third_of_eight_patches().await;
    entries[4] = entry("h4", "Mutating", &hooks[4], "sideEffects: None\ndispatch: Serial");
    let one = gate(&document(&entries), Reasons::First);
    assert!(ask(&one, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    assert_eq!(discarded(&one, 8), [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(calls(&hooks)[4..], [1; 4], "asked once, about the object that came to it");

    // Of all, but for those that say otherwise.
    let (hooks, mut entries) = third_of_eight_patches().await;
    entries[3] = entry("h3", "Mutating", &hooks[3], "sideEffects: None\ndispatch: Speculative");
    entries[2] = entry("h2", "Mutating", &hooks[2], "sideEffects: None\ndispatch: Speculative");
    let speculation = Speculation { dispatch: Dispatch::Serial, ..Speculation::default() };
    let gate = with(gate(&document(&entries), Reasons::First), speculation);
    assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    assert_eq!(discarded(&gate, 8), [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(calls(&hooks)[4..], [1; 4]);
}

/// Hooks that nothing is known of yet, and that all patch, are the worst there is.
#[tokio::test]
async fn no_more_calls_are_in_vain_than_there_are_hooks() {
    const HOOKS: usize = 12;
    let (mut hooks, mut entries) = (Vec::new(), Vec::new());
    for n in 0..HOOKS {
        let hook = judging(move |_| add_label(&format!("l{n}"), "1")).await;
        entries.push(entry(&format!("h{n:02}"), "Mutating", &hook, "sideEffects: None"));
        hooks.push(hook);
    }
    let gate = gate(&document(&entries), Reasons::First);
    let labels = patched(&ask(&gate, Phase::Mutate, create_pod("u", 0)).await)["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), HOOKS + 1);
    let calls: usize = calls(&hooks).iter().sum();
    assert!((HOOKS..=2 * HOOKS).contains(&calls), "{calls} calls");
}

/// The gate, with hooks asked in this way.
fn with(gate: Arc<AdmissionDeps>, speculation: Speculation) -> AdmissionDeps {
    AdmissionDeps { speculation, ..Arc::into_inner(gate).unwrap() }
}

/// Behaviour of a made-up hook.
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

/// Requests that the same hooks get, one after the other: what they learn must make no difference.
const REQUESTS: usize = 9;

/// The verdicts, and what each hook was asked about.
async fn run(hooks: &[MadeUp], dry_run: bool, dispatch: Dispatch, max_chance: u8) -> (Vec<Verdict>, Vec<Vec<String>>) {
    let (mut started, mut entries) = (Vec::new(), Vec::new());
    for (n, made_up) in hooks.iter().enumerate() {
        let at = start(*made_up).await;
        let effects = if made_up.free { "None" } else { "NoneOnDryRun" };
        let policy = if made_up.ignore { "Ignore" } else { "Fail" };
        let again = if made_up.again { "IfNeeded" } else { "Never" };
        let more = format!("sideEffects: {effects}\nfailurePolicy: {policy}\nreinvocationPolicy: {again}");
        entries.push(entry(&format!("h{n}"), "Mutating", &at, &more));
        started.push(at);
    }
    let gate = with(gate(&document(&entries), Reasons::First), Speculation { dispatch, max_chance });
    let mut verdicts = Vec::new();
    for _ in 0..REQUESTS {
        let request = AdmissionRequest { dry_run: Some(dry_run), ..create_pod("u", 0) };
        let mut verdict = ask(&gate, Phase::Mutate, request).await;
        verdict.audit_annotations.sort();
        verdicts.push(verdict);
    }
    let about = |seen: &support::http_hook::HttpSeen| labels(&seen.json()["request"]).to_string();
    (verdicts, started.iter().map(|hook| hook.seen().iter().map(about).collect()).collect())
}

/// Asking together comes to the same as asking one by one, whatever was learned before, and a hook with side effects is
/// asked about the same objects. On a dry run one that then has none may be asked together with others.
#[test]
fn asking_together_comes_to_the_same_as_asking_one_by_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let mut endings = std::cell::RefCell::new(BTreeSet::new());
    let asked_ahead = std::cell::Cell::new(false);
    let strategy = (made_up(), any::<bool>(), prop::sample::select(vec![0, 20, 50, 100]));
    runner
        .run(&strategy, |(hooks, dry_run, max_chance)| {
            let (together, asked_together) = runtime.block_on(run(&hooks, dry_run, Dispatch::Speculative, max_chance));
            let (alone, asked_alone) = runtime.block_on(run(&hooks, dry_run, Dispatch::Serial, 0));
            prop_assert_eq!(&together, &alone);
            for (hook, (together, alone)) in hooks.iter().zip(asked_together.iter().zip(&asked_alone)) {
                if !hook.free && !dry_run {
                    prop_assert_eq!(together, alone);
                }
                asked_ahead.set(asked_ahead.get() || !hook.free && dry_run && together.len() > alone.len());
            }
            endings.borrow_mut().extend(alone.iter().map(|verdict| (verdict.allowed(), verdict.patch.is_some())));
            Ok(())
        })
        .unwrap();
    let endings = endings.get_mut();
    assert!(endings.len() >= 3, "the made-up hooks come to too little: {endings:?}");
    assert!(asked_ahead.get(), "no hook with NoneOnDryRun was asked ahead of its turn on a dry run");
}

#[tokio::test]
async fn patch_to_equal_content_is_no_change() {
    let first = judging(|_| add_label("z", "1")).await;
    let second =
        judging(|_| patch(json!([{"op": "replace", "path": "/metadata/labels", "value": {"app": "web", "z": "1"}}])))
            .await;
    let entries = [
        entry("first", "Mutating", &first, "sideEffects: None\nreinvocationPolicy: IfNeeded"),
        entry("second", "Mutating", &second, "sideEffects: None"),
    ];
    let gate = gate(&document(&entries), Reasons::First);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(patched(&verdict)["metadata"]["labels"], json!({"app": "web", "z": "1"}));
    assert_eq!(first.seen().len(), 1, "nothing behind it changed the object");
    let note = |key: &str| {
        let key = format!("{key}.webhook.admission.k8s.io/round_0_index_1");
        let found = verdict.audit_annotations.iter().find(|(other, _)| *other == key);
        serde_json::from_str::<Value>(&found.unwrap_or_else(|| panic!("no {key}")).1).unwrap()
    };
    assert_eq!(note("mutation")["mutated"], false);
    assert_eq!(note("patch")["patch"][0]["op"], "replace", "it was applied");
}

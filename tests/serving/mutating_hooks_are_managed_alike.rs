//! Protections of a cluster from validating hooks hold for mutating ones as well: bypass rules, break-glass, stale
//! configurations, probes. And patch rates of a hook outlive a change of the configuration.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::front::until;
use crate::support::{
    gate::{document, gate, open_break_glass},
    http_hook::{HttpHook, HttpScript},
    mutating::{add_label, ask, entry, judging, patched},
    reviews::create_pod,
    sidecar::Configured,
};
use gatepost::{
    live::{Current, Rotation},
    review::{AdmissionDeps, Reasons},
};
use gatepost_api::Phase;
use serde_json::json;

/// A hook that refuses, and one that adds label `a`.
async fn two() -> [HttpHook; 2] {
    [HttpHook::plain(HttpScript::Deny("seen")).await, judging(|_| add_label("a", "1")).await]
}

fn gate_of(hooks: &[HttpHook; 2], rules: &str) -> Arc<AdmissionDeps> {
    let entries = [
        entry("no", "Mutating", &hooks[0], "sideEffects: None"),
        entry("label", "Mutating", &hooks[1], "sideEffects: None"),
    ];
    gate(&(document(&entries) + rules), Reasons::First)
}

/// The same generation, last read a minute ago.
fn stale(gate: &AdmissionDeps) -> AdmissionDeps {
    let now = Instant::now();
    let started = now.checked_sub(Duration::from_secs(60)).unwrap();
    let current = Current::new(started);
    current.publish(gate.current.load());
    current.freshness().stamp_awake(started);
    AdmissionDeps::new(Arc::new(current), Arc::clone(&gate.metrics))
}

#[tokio::test]
async fn a_bypass_skips_one_and_the_others_change_the_object() {
    let hooks = two().await;
    let rules = "bypass:\n- {name: r, reason: told so, namespaces: [shop], hooks: [no.example.com]}\n";
    let gate = gate_of(&hooks, rules);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(patched(&verdict)["metadata"]["labels"]["a"], "1");
    assert!(hooks[0].seen().is_empty());
    let code = |verdict: gatepost_api::Verdict| verdict.refusal.map(|refusal| refusal.code);
    assert_eq!(
        code(ask(&stale(&gate), Phase::Mutate, create_pod("u", 0)).await),
        Some(503),
        "not every hook is skipped"
    );

    let all = gate_of(&hooks, "bypass:\n- {name: r, reason: told so, users: [ann]}\n");
    let verdict = ask(&stale(&all), Phase::Mutate, create_pod("u", 0)).await;
    assert!(verdict.allowed() && verdict.patch.is_none(), "skipped altogether, however old the configuration is");
}

#[tokio::test]
async fn fail_open_bypass_skips_failures_but_no_denials() {
    let hooks = two().await;
    let gate = gate_of(&hooks, "bypass:\n- {name: r, reason: told so, users: [ann], effect: FailOpen}\n");
    assert!(!ask(&gate, Phase::Mutate, create_pod("u", 0)).await.allowed(), "a no is a no");
    hooks[0].set(HttpScript::Garbage);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(patched(&verdict)["metadata"]["labels"]["a"], "1");
    let note = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0";
    assert!(verdict.audit_annotations.iter().any(|(key, value)| key == note && value == "no.example.com"));
}

#[tokio::test]
async fn break_glass_opens_one_and_is_loud() {
    let hooks = two().await;
    let gate = gate_of(&hooks, "");
    assert!(!ask(&gate, Phase::Mutate, create_pod("u", 0)).await.allowed());
    open_break_glass(&gate, &["no.example.com"]);
    hooks[0].forget();
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!(verdict.refusal, None);
    assert_eq!(patched(&verdict)["metadata"]["labels"]["a"], "1");
    assert!(hooks[0].seen().is_empty());
    assert!(verdict.warnings.iter().any(|warning| warning.contains("night")), "{:?}", verdict.warnings);
    assert!(gate.metrics.render().unwrap().contains("gatepost_break_glass_requests_total 1"));
}

/// A gate over what a sidecar has in force.
fn gate_in(Configured { running, .. }: &Configured) -> AdmissionDeps {
    AdmissionDeps::new(Arc::clone(&running.current), Arc::clone(&running.metrics))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_that_passes_no_probe_changes_nothing_and_is_named() {
    let broken = HttpHook::plain(HttpScript::Status(404, None)).await;
    let configured = Configured::start(&["  []\n".to_owned()]);
    configured.write(&document(&[entry("new", "Mutating", &broken, "sideEffects: None")]));
    let probing = || {
        let rotation = configured.hook("new.example.com").map(|live| live.rotation);
        matches!(rotation, Some(Rotation::Probing { last_failure: Some(_), .. }))
    };
    until("it has failed its probe", probing).await;
    let gate = gate_in(&configured);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert!(verdict.allowed() && verdict.patch.is_none());
    assert!(verdict.warnings.iter().any(|warning| warning.contains("new.example.com")), "{:?}", verdict.warnings);
    let unasked = "gatepost_hook_unasked_total{hook=\"new.example.com\",type=\"mutating\"} 1";
    assert!(configured.running.metrics.render().unwrap().lines().any(|line| line == unasked));
    broken.set(HttpScript::Respond(add_label("a", "1")));
    until("it is asked", || configured.asks("new.example.com")).await;
    assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    drop(gate);
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn patch_rates_survive_a_configuration_change() {
    let (first, second) = (judging(|_| add_label("a", "1")).await, judging(|_| json!({"allowed": true})).await);
    let entries = |more: &str| {
        [
            entry("first", "Mutating", &first, &format!("sideEffects: None\n{more}")),
            entry("second", "Mutating", &second, "sideEffects: None"),
        ]
    };
    let configured = Configured::start(&entries(""));
    let gate = gate_in(&configured);
    let discarded = || {
        let sample = r#"gatepost_hook_calls_in_vain_total{hook="second.example.com",type="mutating"} "#;
        let metrics = configured.running.metrics.render().unwrap();
        metrics.lines().find_map(|line| line.strip_prefix(sample)?.parse::<u32>().ok()).unwrap()
    };
    for _ in 0..10 {
        assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    }
    let learned = discarded();
    assert!((1..10).contains(&learned), "{learned}");
    configured.write(&document(&entries("timeout: 9s")));
    let is_new =
        || configured.hook("first.example.com").is_some_and(|live| live.hook.timeout == Duration::from_secs(9));
    until("the change is in force", is_new).await;
    assert!(ask(&gate, Phase::Mutate, create_pod("u", 0)).await.patch.is_some());
    assert_eq!(discarded(), learned);
    drop(gate);
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

//! Calls of mutating hooks that are made before it is the hook's turn: what they say counts when the turn comes, or not
//! at all.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use crate::support::{
    gate::{caller, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    mutating::{LONG, ask, entry, judging, labels},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::Authorizer,
    review::{Caller, Reasons, decide},
};
use gatepost_api::{Phase, Rope};
use gatepost_cel::AccessDecision;
use gatepost_wire::{inbound::view, pb::k8s::io::api::admission::v1::AdmissionResponse};
use serde_json::json;

#[tokio::test]
async fn a_failure_that_does_not_count_is_reported_as_none() {
    // Late, so that the other has failed by then.
    let patches = ScriptedHook::start(Script::RespondAfter(
        Duration::from_millis(300),
        AdmissionResponse {
            uid: Some("u".into()),
            allowed: Some(true),
            patch: Some(r#"[{"op":"add","path":"/metadata/labels/a","value":"1"}]"#.into()),
            patch_type: Some("JSONPatch".into()),
            ..AdmissionResponse::default()
        },
    ))
    .await;
    let fails = judging(|request| match &labels(request)["a"] {
        serde_json::Value::Null => json!({"uid": "another", "allowed": true}),
        _ => json!({"allowed": true}),
    })
    .await;
    let entries = [
        hook("patches.example.com", &patches.url(), "type: Mutating\nsideEffects: None"),
        entry("fails", "Mutating", &fails, "sideEffects: None\nfailurePolicy: Fail"),
    ];
    let gate = gate(&document(&entries), Reasons::First);
    let verdict = ask(&gate, Phase::Mutate, create_pod("u", 0)).await;
    assert_eq!((verdict.refusal, fails.seen().len()), (None, 2));
    let metrics = gate.metrics.render().unwrap();
    let of = |sample: &str| {
        let sample = sample.replace("HOOK", r#"hook="fails.example.com",type="mutating""#);
        metrics.lines().find_map(|line| line.strip_prefix(&sample)?.trim().parse::<u32>().ok())
    };
    let calls = |outcome: &str| of(&format!("gatepost_hook_calls_total{{HOOK,outcome=\"{outcome}\"}}"));
    assert_eq!(
        [calls("allowed"), calls("failed_closed"), calls("cancelled")],
        [Some(1), Some(0), Some(1)],
        "{metrics}"
    );
    assert_eq!(of("gatepost_hook_calls_in_vain_total{HOOK}"), Some(1));
    assert!(!metrics.contains(r#"hook="fails.example.com",type="mutating",kind="wrong_uid",policy="Fail"} 1"#));
}

#[tokio::test]
async fn a_no_that_is_there_counts_where_nothing_else_rejects() {
    let hangs = HttpHook::plain(HttpScript::Hang).await;
    let denies = [HttpHook::plain(HttpScript::Deny("one")).await, HttpHook::plain(HttpScript::Deny("two")).await];
    let entries = [
        entry("hangs", "Mutating", &hangs, "sideEffects: None\nfailurePolicy: Ignore"),
        entry("one", "Mutating", &denies[0], "sideEffects: None"),
        entry("two", "Mutating", &denies[1], "sideEffects: None"),
    ];
    let open = "bypass:\n- {name: open, reason: a test, effect: FailOpen, users: [ann]}\n";
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let caller = Caller { phase: Phase::Mutate, ..caller(Duration::from_millis(300)) };
    let verdict = decide(&gate(&(document(&entries) + open), Reasons::First), &review, &caller).await;
    let refusal = verdict.refusal.expect("a hook said no");
    assert_eq!(refusal.message, "admission webhook \"one.example.com\" denied the request: one");
}

#[tokio::test]
async fn no_hook_waits_for_the_conditions_of_one_behind_it() {
    let (first, second) = (HttpHook::plain(HttpScript::Allow).await, HttpHook::plain(HttpScript::Allow).await);
    let asks = "sideEffects: None\nmatchConditions:\n- {name: c, expression: \"authorizer.path('/x').check('get').allowed()\"}";
    let entries = [entry("first", "Mutating", &first, "sideEffects: None"), entry("second", "Mutating", &second, asks)];
    let (authorizer, mut questions) = Authorizer::new();
    let mut gate = gate(&document(&entries), Reasons::First);
    Arc::get_mut(&mut gate).expect("nobody else has it").authorizer = Some(authorizer);
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let caller = Caller { phase: Phase::Mutate, ..caller(LONG) };
    let answered = async {
        let question = questions.recv().await.expect("a question");
        let asked = first.seen().len();
        let allowed = AccessDecision { allowed: true, ..AccessDecision::default() };
        question.answer.send(Ok(allowed)).expect("it is waited for");
        asked
    };
    let (verdict, asked) = tokio::join!(decide(&gate, &review, &caller), answered);
    assert!(verdict.allowed() && asked == 1, "{asked}");
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
}

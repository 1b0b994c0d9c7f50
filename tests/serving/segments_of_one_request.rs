//! Segments of one request: the configuration may change between two of them, and no hook is left out then.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::sync::Arc;

use crate::support::{
    gate::{caller, document, gate},
    http_hook::{HttpHook, HttpScript},
    mutating::{LONG, entry},
    reviews::{create_pod, message},
};
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide};
use gatepost_api::{Phase, Rope, Verdict, registration::Segment};
use gatepost_wire::inbound::view;

async fn ask(gate: &AdmissionDeps, number: u32) -> Verdict {
    of(gate, Segment { number, of: 3 }).await
}

async fn of(gate: &AdmissionDeps, segment: Segment) -> Verdict {
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    let segment = Some(segment);
    decide(gate, &review, &Caller { phase: Phase::Mutate, segment, ..caller(LONG) }).await
}

async fn three() -> [HttpHook; 3] {
    let [a, b, c] = [(); 3].map(|()| HttpHook::plain(HttpScript::Warn("seen")));
    [a.await, b.await, c.await]
}

/// Hooks a, b and c; b is isolated, or not.
fn configured(hooks: &[HttpHook; 3], isolate: bool, rules: &str) -> Arc<AdmissionDeps> {
    let more = |name| format!("sideEffects: None\nisolate: {}", isolate && name == "b");
    let entries: Vec<_> =
        ["a", "b", "c"].into_iter().zip(hooks).map(|(name, at)| entry(name, "Mutating", at, &more(name))).collect();
    gate(&(document(&entries) + rules), Reasons::First)
}

fn calls(hooks: &[HttpHook; 3]) -> [usize; 3] {
    [0, 1, 2].map(|number| hooks[number].seen().len())
}

#[tokio::test]
async fn segments_are_refused_while_hooks_move() {
    let hooks = three().await;
    let gate = configured(&hooks, true, "");
    assert!(ask(&gate, 1).await.allowed());
    assert_eq!(calls(&hooks), [1, 0, 0]);
    assert!(ask(&gate, 2).await.allowed());
    assert_eq!(calls(&hooks), [1, 1, 0]);

    // All hooks are in the first segment now. It may have been asked about before, or the others will be asked about of a
    // replica by which each hook is in its own.
    gate.current.publish(configured(&hooks, false, "").current.load());
    for number in [1, 2, 3] {
        let refusal = ask(&gate, number).await.refusal.expect("b and c might never be asked");
        assert_eq!((refusal.code, &*refusal.reason, refusal.retry_after_seconds), (503, "ServiceUnavailable", 1));
    }
    assert_eq!(calls(&hooks), [1, 1, 0]);
    assert!(of(&gate, Segment { number: 1, of: 1 }).await.allowed(), "the whole request");
    assert_eq!(calls(&hooks), [2, 2, 1]);
}

#[tokio::test]
async fn a_bypass_that_opens_every_hook_opens_that_too() {
    let hooks = three().await;
    let rules = "bypass:\n- {name: r, reason: told so, users: [ann], effect: FailOpen}\n";
    let gate = configured(&hooks, true, rules);
    gate.current.publish(configured(&hooks, false, rules).current.load());
    assert!(ask(&gate, 2).await.allowed());
}

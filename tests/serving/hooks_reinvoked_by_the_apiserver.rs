//! A second review of one request, because something behind Gatepost has changed the object: which hooks it reaches.
//!
//! Nothing in that review says that it is the second. So the hooks that an apiserver may not call again are apart from
//! those that it may, by `isolate`: then only the segments with `IfNeeded` are reviewed again.
#![allow(clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use crate::support::{
    gate::{caller, document, gate},
    http_hook::{HttpHook, HttpScript},
    mutating::{LONG, entry},
    reviews::{create_pod, message},
};
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide};
use gatepost_api::{Phase, Reinvocation, Rope, registration::Segment};
use gatepost_wire::inbound::view;

const NAMES: [&str; 4] = ["a", "again", "b", "c"];

/// Hooks with `Never`, but for `again`.
fn configured(hooks: &[HttpHook; 4], isolate: bool) -> std::sync::Arc<AdmissionDeps> {
    let entries: Vec<_> = NAMES
        .into_iter()
        .zip(hooks)
        .map(|(name, at)| {
            let more = if name == "again" {
                format!("\nreinvocationPolicy: IfNeeded\nisolate: {isolate}")
            } else {
                String::new()
            };
            entry(name, "Mutating", at, &format!("sideEffects: None{more}"))
        })
        .collect();
    gate(&document(&entries), Reasons::First)
}

/// One request as kube-apiserver sends it: every segment once, then once more those that have `IfNeeded`.
async fn reviewed_twice(gate: &AdmissionDeps) {
    let generation = gate.current.load();
    let mut segments: Vec<(Segment, bool)> = Vec::new();
    for (hook, segment) in generation.snapshot.segments() {
        let again = hook.reinvocation == Reinvocation::IfNeeded;
        match segments.iter_mut().find(|(known, _)| *known == segment) {
            Some((_, any)) => *any |= again,
            None => segments.push((segment, again)),
        }
    }
    let again = segments.iter().filter(|(_, again)| *again);
    for (segment, _) in segments.iter().chain(again) {
        let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
        let caller = Caller { phase: Phase::Mutate, segment: Some(*segment), ..caller(LONG) };
        assert!(decide(gate, &review, &caller).await.allowed());
    }
}

#[tokio::test]
async fn a_hook_with_never_is_called_again_only_beside_one_with_if_needed() {
    for (isolate, calls) in [(false, [2, 2, 2, 2]), (true, [1, 2, 1, 1])] {
        let hooks = {
            let [a, b, c, d] = [(); 4].map(|()| HttpHook::plain(HttpScript::Warn("seen")));
            [a.await, b.await, c.await, d.await]
        };
        reviewed_twice(&configured(&hooks, isolate)).await;
        assert_eq!([0, 1, 2, 3].map(|number| hooks[number].seen().len()), calls, "isolate: {isolate}");
    }
}

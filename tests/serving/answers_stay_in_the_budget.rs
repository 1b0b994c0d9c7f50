//! Slices of an answer stay in the memory budget until the verdict is made of it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::sync::Arc;

use crate::front::until;
use crate::support::{
    gate::{document, gate},
    http_hook::{HttpHook, HttpScript},
    mutating::{ask, entry, patch},
    reviews::create_pod,
};
use gatepost::{
    hooks::{Channel, ConnectionBudget, Resources},
    live::{CallTarget, Generation, LiveHook},
    review::{AdmissionDeps, Reasons},
};
use gatepost_api::Phase;
use gatepost_base::memory::{MemoryBudget, Purpose};
use gatepost_wire::pb::k8s::io::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;
use tokio::runtime::Handle;

/// Has the answers of all hooks held in that budget.
fn hold_in(gate: &AdmissionDeps, memory: &Arc<MemoryBudget>) {
    let resources = Resources::new(Arc::clone(memory), ConnectionBudget::new(usize::MAX));
    let former = gate.current.load();
    let channel =
        |live: &LiveHook| Channel::open_within(&resources, live.hook.endpoint.clone(), None, &[Handle::current()]);
    let hooks = former
        .hooks
        .iter()
        .map(|live| LiveHook { target: CallTarget::new(Arc::clone(&live.hook), channel(live)), ..live.clone() });
    gate.current.publish(Arc::new(Generation {
        number: former.number + 1,
        digest: former.digest.clone(),
        revision: former.revision.clone(),
        published: former.published,
        snapshot: Arc::clone(&former.snapshot),
        hooks: hooks.collect(),
        bypassed: former.bypassed.clone(),
        policies: Vec::new(),
        initializers: former.initializers.clone(),
    }));
}

#[tokio::test]
async fn a_patch_stays_in_the_budget_while_a_slower_hook_is_awaited() {
    const SIZE: usize = 1 << 20;
    let operations = json!([{"op": "add", "path": "/metadata/annotations/a", "value": "x".repeat(SIZE)}]);
    let fast = HttpHook::plain(HttpScript::Respond(patch(operations))).await;
    let slow = HttpHook::plain(HttpScript::Held).await;
    let hooks = [("m", "Mutating", &fast), ("v", "Validating", &slow)];
    let entries = hooks.map(|(name, hook_type, at)| entry(name, hook_type, at, "sideEffects: None"));
    let gate = gate(&document(&entries), Reasons::First);
    let memory = MemoryBudget::new(64 << 20);
    hold_in(&gate, &memory);
    let asking = ask(&gate, Phase::Review, create_pod("u", 0));
    let looking = async {
        until("the slow one is asked", || !slow.seen().is_empty()).await;
        let held = memory.held_for(Purpose::Answer);
        slow.release();
        held
    };
    let (verdict, held) = tokio::join!(asking, looking);
    assert_eq!(verdict.refusal, None);
    assert!(held >= SIZE, "{held}");
    drop(verdict);
    assert_eq!(memory.held(), 0);
}

#[tokio::test]
async fn memory_that_a_patch_opens_counts_in_the_budget() {
    // The members of the annotations stand alone to be compared; each takes many times its bytes.
    let annotations: serde_json::Map<_, _> = (0..5000).map(|n| (n.to_string(), json!(""))).collect();
    let test = json!([{"op": "test", "path": "/metadata/annotations", "value": annotations}]);
    let hook = HttpHook::plain(HttpScript::Respond(patch(test))).await;
    let entries = [entry("m", "Mutating", &hook, "sideEffects: None")];
    let request = || {
        let mut request = create_pod("u", 0);
        let mut object: serde_json::Value = serde_json::from_slice(request.object.as_ref().unwrap().raw()).unwrap();
        let mut annotations = annotations.clone();
        annotations.insert("4999".to_owned(), json!("other"));
        annotations.insert("0".to_owned(), json!(""));
        object["metadata"]["annotations"] = annotations.into();
        request.object = Some(RawExtension { raw: Some(object.to_string().into()) });
        request
    };
    let refusal = async |budget| {
        let mut gate = Arc::into_inner(gate(&document(&entries), Reasons::First)).unwrap();
        gate.memory = MemoryBudget::new(budget);
        let refusal = ask(&gate, Phase::Mutate, request()).await.refusal.unwrap();
        assert_eq!(gate.memory.held(), 0);
        (refusal.code, refusal.message)
    };
    let (code, message) = refusal(1 << 20).await;
    assert!(code == 503 && message.contains("no memory free for the patched object"), "{code} {message}");
    let (code, message) = refusal(64 << 20).await;
    assert!(code == 500 && message.contains("is not the one it must be"), "{code} {message}");
}

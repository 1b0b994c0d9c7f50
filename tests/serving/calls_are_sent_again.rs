//! Calls that a hook has not processed are sent again under every policy; others only where that does no harm.

use std::sync::Arc;

use crate::support::{
    gate::{ask, document, gate, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::{AdmissionDeps, Reasons};
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use h2::Reason;

const HARMLESS: &str = "sideEffects: None";
const HARMLESS_ON_DRY_RUN: &str = "sideEffects: NoneOnDryRun";
const HARMFUL: &str = "failurePolicy: Fail";
const RETRY: &str = "failurePolicy: Retry\nsideEffects: None";

fn gate_to(url: &str, terms: &str) -> Arc<AdmissionDeps> {
    gate(&document(&[hook("h.example.com", url, terms)]), Reasons::First)
}

#[tokio::test]
async fn a_refused_call_is_sent_once_more() {
    for (terms, sent, connections) in [(HARMFUL, 2, 1), (HARMLESS, 2, 1), (RETRY, 4, 2)] {
        let scripted = ScriptedHook::start(Script::Reset(Reason::REFUSED_STREAM)).await;
        let refusal = ask(&gate_to(&scripted.url(), terms), create_pod("u", 10)).await.refusal.expect("closed");
        let why = "connection lost: the hook refused the call: it is overloaded";
        assert!(refusal.message.ends_with(why), "{}", refusal.message);
        assert_eq!((scripted.seen().len(), scripted.connections()), (sent, connections), "{terms}");
    }
}

#[tokio::test]
async fn a_call_that_the_hook_resets_for_another_reason_is_not() {
    let scripted = ScriptedHook::start(Script::Reset(Reason::INTERNAL_ERROR)).await;
    assert!(!ask(&gate_to(&scripted.url(), HARMLESS), create_pod("u", 10)).await.allowed());
    assert_eq!(scripted.seen().len(), 1);
}

/// The connection was kept from an earlier review, and ends with the next call before a byte of its answer: the hook may
/// have acted on it. One that declares `NoneOnDryRun` acts on real requests.
#[tokio::test]
async fn safe_call_over_a_stale_connection_is_retried() {
    for (terms, dry_run, sent) in [
        (HARMFUL, false, 1),
        (HARMLESS, false, 2),
        (HARMLESS_ON_DRY_RUN, false, 1),
        (HARMLESS_ON_DRY_RUN, true, 2),
        (RETRY, false, 3),
    ] {
        let scripted = HttpHook::plain(HttpScript::Allow).await;
        let gate = gate_to(&scripted.url(), terms);
        let request = || AdmissionRequest { dry_run: Some(dry_run), ..create_pod("u", 10) };
        assert!(ask(&gate, request()).await.allowed());
        scripted.set(HttpScript::GiveUp);
        let refusal = ask(&gate, request()).await.refusal.expect("closed");
        assert!(refusal.message.contains("connection lost"), "{}", refusal.message);
        assert_eq!(scripted.seen().len() - 1, sent, "{terms}, dry run: {dry_run}");
    }
}

//! Fail, Ignore and Retry govern CallFailures, and nothing else; dry runs reach only hooks that say they may.

use crate::support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::Reasons;

#[tokio::test]
async fn a_denial_is_a_denial_under_every_policy() {
    let scripted = ScriptedHook::start(Script::Deny("no")).await;
    for policy in ["Fail", "Ignore", "Retry"] {
        let more = format!("failurePolicy: {policy}\nsideEffects: None");
        let gate = gate(&document(&[hook("h.example.com", &scripted.url(), &more)]), Reasons::First);
        let refusal = ask(&gate, create_pod("u", 10)).await.refusal.expect("denied");
        assert_eq!(refusal.message, "admission webhook \"h.example.com\" denied the request: no");
    }
    assert_eq!(scripted.seen().len(), 3, "a denial is never asked twice");
}

#[tokio::test]
async fn retry_uses_another_connection() {
    let scripted = ScriptedHook::start(Script::Status(14, "draining")).await;
    let more = "failurePolicy: Retry\nsideEffects: None";
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), more)]), Reasons::First);
    let refusal = ask(&gate, create_pod("u", 10)).await.refusal.expect("closed after the second failure");
    assert!(refusal.message.ends_with("gRPC status UNAVAILABLE: draining"), "{}", refusal.message);
    assert_eq!((scripted.seen().len(), scripted.connections()), (2, 2));
}

#[tokio::test]
async fn answered_calls_are_not_retried() {
    let scripted = ScriptedHook::start(Script::Status(13, "bug")).await;
    let more = "failurePolicy: Retry\nsideEffects: None";
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), more)]), Reasons::First);
    assert!(!ask(&gate, create_pod("u", 10)).await.allowed());
    assert_eq!(scripted.seen().len(), 1);
}

#[tokio::test]
async fn fail_does_not_retry() {
    let scripted = ScriptedHook::start(Script::Status(14, "draining")).await;
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), "sideEffects: None")]), Reasons::First);
    assert!(!ask(&gate, create_pod("u", 10)).await.allowed());
    assert_eq!(scripted.seen().len(), 1);
}

#[tokio::test]
async fn a_dry_run_reaches_only_hooks_without_side_effects() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let dry_run = || {
        let mut request = create_pod("u", 10);
        request.dry_run = Some(true);
        request
    };
    for (class, policy, want) in [
        ("sideEffects: None", "Fail", None),
        ("sideEffects: NoneOnDryRun", "Fail", None),
        ("", "Ignore", None),
        ("", "Fail", Some((500, "could not create admission objects: the hook does not declare sideEffects"))),
        ("sideEffects: Some", "Ignore", Some((400, "admission webhook \"h.example.com\" does not support dry run"))),
        ("sideEffects: Unknown", "Fail", Some((400, "admission webhook \"h.example.com\" does not support dry run"))),
    ] {
        let before = scripted.seen().len();
        let more = format!("failurePolicy: {policy}\n{class}");
        let gate = gate(&document(&[hook("h.example.com", &scripted.url(), &more)]), Reasons::First);
        let refusal = ask(&gate, dry_run()).await.refusal;
        let asked = scripted.seen().len() > before;
        match want {
            None => assert!(refusal.is_none(), "{class} {policy}: {refusal:?}"),
            Some((code, text)) => {
                let refusal = refusal.expect("rejected");
                assert_eq!(refusal.code, code, "{class} {policy}");
                assert!(refusal.message.contains(text), "{class} {policy}: {}", refusal.message);
            }
        }
        assert_eq!(asked, class.contains("None"), "{class} {policy}");
    }
}

#[tokio::test]
async fn a_hook_that_restarts_is_found_again() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let more = "failurePolicy: Retry\nsideEffects: None";
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), more)]), Reasons::First);
    for n in 0..5 {
        assert!(ask(&gate, create_pod(&format!("u-{n}"), 10)).await.allowed());
        scripted.hang_up();
    }
}

#[tokio::test]
async fn retired_connection_loses_and_delays_no_call() {
    let scripted = ScriptedHook::start(Script::Held).await;
    let gate = gate(&document(&[hook("h.example.com", &scripted.url(), "")]), Reasons::First);
    let other = gate.clone();
    let first = tokio::spawn(async move { ask(&other, create_pod("u-1", 10)).await });
    scripted.asked.notified().await;
    scripted.retire();
    scripted.set(Script::Allow);
    // While the first call is still being answered on the old connection.
    while scripted.connections() < 2 {
        assert!(ask(&gate, create_pod("u-2", 10)).await.allowed());
    }
    assert!(!first.is_finished());
    scripted.release.notify_one();
    assert!(first.await.expect("no panic").allowed(), "the old connection still answers what it took");
}

#[tokio::test]
async fn transactional_hooks_are_called_last_one_by_one() {
    let [other, first, second] = [(); 3].map(|()| ScriptedHook::start(Script::Allow));
    let (other, first, second) = tokio::join!(other, first, second);
    let phase = "phase: Transactional\nsideEffects: NoneOnDryRun";
    let entries = [
        hook("first.example.com", &first.url(), phase),
        hook("other.example.com", &other.url(), "failurePolicy: Ignore"),
        hook("second.example.com", &second.url(), phase),
    ];
    let gate = gate(&document(&entries), Reasons::All);
    let no = || Script::Deny("no");
    for (scripts, rejected_by, called) in [
        ([Script::Allow, Script::Allow, Script::Allow], None, [1, 1, 1]),
        ([Script::Status(13, "bug"), Script::Allow, Script::Allow], None, [1, 1, 1]),
        ([no(), Script::Allow, Script::Allow], Some("other"), [1, 0, 0]),
        ([Script::Allow, no(), Script::Allow], Some("first"), [1, 1, 0]),
        ([Script::Allow, Script::Allow, no()], Some("second"), [1, 1, 1]),
    ] {
        let hooks = [&other, &first, &second];
        let before = hooks.map(|hook| hook.seen().len());
        hooks.iter().zip(scripts).for_each(|(hook, script)| hook.set(script));
        let refusal = ask(&gate, create_pod("u", 10)).await.refusal;
        let message =
            rejected_by.map(|name| format!("admission webhook \"{name}.example.com\" denied the request: no"));
        assert_eq!(refusal.map(|refusal| refusal.message), message);
        let after = hooks.map(|hook| hook.seen().len());
        assert_eq!(std::array::from_fn(|at| after[at] - before[at]), called, "{rejected_by:?}");
    }
}

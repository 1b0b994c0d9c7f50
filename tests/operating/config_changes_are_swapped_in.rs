//! A changed configuration is put in force while the sidecar serves: additions after a probe, removals after a drain.

use std::time::Duration;

use crate::front;
use crate::front::{Caller, until};
use crate::support::{
    gate::{document, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost::live::Rotation;
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview};
use prost::Message;

const A: &str = "a.example.com";
const B: &str = "b.example.com";

#[allow(clippy::expect_used, reason = "a test")]
async fn review(caller: &Caller, uid: &str) -> AdmissionResponse {
    let ended = caller.call(front::grpc(front::REVIEW), [message(create_pod(uid, 2000))]).await;
    assert_eq!((ended.status, &*ended.message), (Some(0), ""));
    AdmissionReview::decode(&ended.body[5..]).expect("a review").response.expect("a response")
}

/// Reviews that the hook was asked, probes aside.
fn asked(hook: &ScriptedHook) -> usize {
    let phases = [front::REVIEW, "/gatepost.v1.Admission/Validate", "/gatepost.v1.Admission/Mutate"];
    let reviews = hook.seen().into_iter().filter(|seen| phases.contains(&&*seen.path));
    reviews.filter(|seen| !String::from_utf8_lossy(&seen.body).contains("gatepost-probe")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hook_is_called_once_added_and_until_removed() {
    let (a, b) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Deny("no")).await);
    let (a_entry, b_entry) = (hook(A, &a.url(), ""), hook(B, &b.url(), ""));
    let configured = Configured::start(std::slice::from_ref(&a_entry));
    let caller = front::caller(configured.running.addresses.tcp).await;
    assert!(review(&caller, "1").await.allowed());
    assert_eq!((asked(&a), asked(&b)), (1, 0), "asked from the start, without a probe");

    configured.write(&document(&[a_entry, b_entry.clone()]));
    // b's only answer is a denial, which proves as well as a yes that it is there and willing.
    until("b is asked", || configured.asks(B)).await;
    let denied = review(&caller, "2").await;
    assert!(!denied.allowed());
    assert_eq!(asked(&b), 1);

    let before = asked(&a);
    let connections = a.connections();
    configured.write(&document(&[b_entry]));
    until("a is gone", || configured.hook(A).is_none()).await;
    review(&caller, "3").await;
    assert_eq!((asked(&a), a.connections()), (before, connections));
    until("a has drained", || configured.running.health.status.draining().is_empty()).await;
    tokio::task::spawn_blocking(|| assert!(configured.running.stop().complete())).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unproven_hook_is_not_called_and_reports_the_reason() {
    let a = ScriptedHook::start(Script::Allow).await;
    let b = ScriptedHook::start(Script::Http(503)).await;
    let a_entry = hook(A, &a.url(), "");
    let configured = Configured::start(std::slice::from_ref(&a_entry));
    let caller = front::caller(configured.running.addresses.tcp).await;
    configured.write(&document(&[a_entry, hook(B, &b.url(), "failurePolicy: Fail")]));
    let failed = || {
        let rotation = configured.hook(B).map(|live| live.rotation);
        matches!(rotation, Some(Rotation::Probing { last_failure: Some(_), .. }))
    };
    until("b has failed its probe", failed).await;
    assert!(review(&caller, "1").await.allowed());
    assert_eq!((asked(&a), asked(&b)), (1, 0));

    b.set(Script::Deny("no"));
    until("b is asked", || configured.asks(B)).await;
    assert!(!review(&caller, "2").await.allowed());
}

/// S96: entries are created fail-open and closed by an ordinary update; a restart enforces what was declared last.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unproven_fail_closed_hook_refuses_nothing_until_a_restart() {
    let b = ScriptedHook::start(Script::Http(503)).await;
    let configured = Configured::start(&["  []\n".to_owned()]);
    let caller = front::caller(configured.running.addresses.tcp).await;
    let declared = |more: &str| hook(B, &b.url(), &format!("failurePolicy: Fail\n{more}"));
    configured.write(&document(&[declared("rollout: {createAs: Ignore}")]));
    let failed = || {
        let rotation = configured.hook(B).map(|live| live.rotation);
        matches!(rotation, Some(Rotation::Probing { last_failure: Some(_), .. }))
    };
    until("b has failed its probe", failed).await;
    let before = configured.running.current.load().digest.clone();
    configured.write(&document(&[declared("")]));
    until("the update is in force", || configured.running.current.load().digest != before).await;
    assert!(!configured.asks(B) && review(&caller, "1").await.allowed());
    drop(caller);
    let stopped = tokio::task::spawn_blocking(|| configured.running.stop());
    assert!(stopped.await.expect("stopped").complete());

    let restarted = Configured::start(&[declared("")]);
    let caller = front::caller(restarted.running.addresses.tcp).await;
    assert!(restarted.asks(B) && !review(&caller, "2").await.allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn moved_hook_is_called_at_old_endpoint_until_new_answers() {
    let old = ScriptedHook::start(Script::Deny("old")).await;
    let new = ScriptedHook::start(Script::Http(503)).await;
    let configured = Configured::start(&[hook(A, &old.url(), "")]);
    let caller = front::caller(configured.running.addresses.tcp).await;
    configured.write(&document(&[hook(A, &new.url(), "")]));
    let failed = || {
        let replacing = configured.hook(A).and_then(|live| live.replacing);
        replacing.is_some_and(|replacing| replacing.last_failure.is_some())
    };
    until("the new place has failed its probe", failed).await;
    assert!(!review(&caller, "1").await.allowed());
    assert_eq!((asked(&old), asked(&new)), (1, 0));

    new.set(Script::Deny("new"));
    until("it has moved", || configured.hook(A).is_some_and(|live| live.replacing.is_none())).await;
    review(&caller, "2").await;
    assert_eq!((asked(&old), asked(&new)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn moved_hook_keeps_settings_until_new_endpoint_answers() {
    let old = HttpHook::plain(HttpScript::Deny("old")).await;
    let new = HttpHook::plain(HttpScript::Status(503, None)).await;
    let at = |url: &str, path: &str, more: &str| hook(A, &format!("{url}/{path}"), more);
    let configured = Configured::start(&[at(&old.url(), "old", "sideEffects: None\ntimeoutSeconds: 7")]);
    let caller = front::caller(configured.running.addresses.tcp).await;
    let more = "sideEffects: None\ntimeoutSeconds: 3\nadmissionReviewVersions: [v1beta1]\nfailurePolicy: Ignore";
    configured.write(&document(&[at(&new.url(), "new", more)]));
    let failed = || {
        let replacing = configured.hook(A).and_then(|live| live.replacing);
        replacing.is_some_and(|replacing| replacing.last_failure.is_some())
    };
    until("the new place has failed its probe", failed).await;
    assert!(!review(&caller, "1").await.allowed(), "the old hook's no counts");
    let seen = old.seen();
    let [seen] = seen.as_slice() else { panic!("asked once: {seen:?}") };
    assert!(seen.path.starts_with("/old"), "{}", seen.path);
    assert_eq!(seen.json()["apiVersion"], "admission.k8s.io/v1");
    let live = configured.hook(A).expect("there");
    assert_eq!((live.target.timeout(), live.hook.timeout), (Duration::from_secs(7), Duration::from_secs(3)));
    assert_eq!(live.hook.failure_policy.as_str(), "Ignore", "what a failure means holds at once");

    new.set(HttpScript::Deny("new"));
    until("it has moved", || configured.hook(A).is_some_and(|live| live.replacing.is_none())).await;
    assert!(!review(&caller, "2").await.allowed());
    let seen = new.seen().pop().expect("asked");
    assert!(seen.path.starts_with("/new"), "{}", seen.path);
    assert_eq!((&seen.json()["apiVersion"], old.seen().len()), (&"admission.k8s.io/v1beta1".into(), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn review_is_decided_by_the_configuration_it_began_under() {
    let a = ScriptedHook::start(Script::Held).await;
    let configured = Configured::start(&[hook(A, &a.url(), "timeout: 10s")]);
    let caller = front::caller(configured.running.addresses.tcp).await;
    let change = async {
        a.asked.notified().await;
        configured.write(&document(&["  []\n".to_owned()]));
        until("a is gone", || configured.hook(A).is_none()).await;
        until("a drains", || configured.running.health.status.draining().len() == 1).await;
        a.release.notify_one();
    };
    let (verdict, ()) = tokio::join!(review(&caller, "1"), change);
    assert!(verdict.allowed(), "{verdict:?}");
    assert_eq!(asked(&a), 1);
    until("a has drained", || configured.running.health.status.draining().is_empty()).await;
}

/// A yes that adds this label.
fn adds(label: &str) -> Script {
    Script::Respond(AdmissionResponse {
        allowed: Some(true),
        patch: Some(format!(r#"[{{"op":"add","path":"/metadata/labels/{label}","value":"1"}}]"#).into()),
        patch_type: Some("JSONPatch".into()),
        ..AdmissionResponse::default()
    })
}

/// The turn of the second hook comes when the configuration no longer has it, or has it elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[allow(clippy::expect_used, reason = "a test")]
async fn removed_mutating_hook_still_serves_reviews_in_flight() {
    for moves in [false, true] {
        let held = ScriptedHook::start(Script::Held).await;
        let (old, new) = (ScriptedHook::start(adds("old")).await, ScriptedHook::start(adds("new")).await);
        let entry = |name: &str, at: &ScriptedHook| hook(name, &at.url(), "type: Mutating\ntimeout: 20s");
        let configured = Configured::start(&[entry(A, &held), entry(B, &old)]);
        let caller = front::caller(configured.running.addresses.tcp).await;
        let before = configured.running.current.load().digest.clone();
        let after = if moves { vec![entry(A, &held), entry(B, &new)] } else { vec![entry(A, &held)] };
        let change = async {
            held.asked.notified().await;
            configured.write(&document(&after));
            until("the change is in force", || {
                // Of one generation: two loads might show the hook of the former one beside the digest of the next.
                let generation = configured.running.current.load();
                let hook = generation.hooks.iter().find(|live| &*live.hook.name == B);
                generation.digest != before && hook.is_some_and(|live| live.replacing.is_none()) == moves
            })
            .await;
            until("it drains", || moves || configured.running.health.status.draining().len() == 1).await;
            held.set(Script::Allow);
            held.release.notify_one();
        };
        let (verdict, ()) = tokio::join!(review(&caller, "u"), change);
        let patched = |verdict: AdmissionResponse| String::from_utf8(verdict.patch?.to_vec()).ok();
        assert!(patched(verdict).is_some_and(|patch| patch.contains("old")), "moves: {moves}");
        assert_eq!((asked(&old), asked(&new)), (1, 0), "moves: {moves}");
        until("it has drained", || configured.running.health.status.draining().is_empty()).await;

        let next = patched(review(&caller, "u").await);
        assert_eq!(next.is_some_and(|patch| patch.contains("new")), moves);
        assert_eq!((asked(&old), asked(&new)), (1, usize::from(moves)));
        drop(caller);
        let stopped = tokio::task::spawn_blocking(|| configured.running.stop());
        assert!(stopped.await.expect("stopped").complete());
    }
}

//! A hook asked over HTTP is probed by a review where it declares that this has no effects, else by a connection alone.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use crate::front::until;
use crate::support::{
    gate::{document, hook},
    http_hook::{H2, HTTP1, HttpHook, HttpScript},
    sidecar::Configured,
};
use bytes::Bytes;
use gatepost::{
    hooks::{Channel, ProbeFailure, ProbePost},
    live::Rotation,
};
use gatepost_api::{CallFailure, HttpForm, ReviewVersion, Rope, Step};
use gatepost_wire::{envelope, json_view};
use serde_json::json;
use tokio::runtime::Handle;

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(20);
const HOOK: &str = "h.example.com";

fn post(form: HttpForm) -> ProbePost {
    ProbePost { path: "/validate?a=b".into(), form }
}

fn json() -> ProbePost {
    post(HttpForm::Json(ReviewVersion::V1))
}

fn channel(hook: &HttpHook) -> Arc<Channel> {
    Channel::open(hook.endpoint(), hook.client_config(), &[Handle::current()])
}

async fn probe(hook: &HttpHook) -> Result<(), ProbeFailure> {
    channel(hook).probe(Some(&json()), LONG).await
}

#[tokio::test]
async fn probe_passes_with_any_answer_of_the_hook_itself() {
    let page = |status| HttpScript::Reply(status, Vec::new(), Bytes::from_static(b"I know Pods only"));
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::Allow, &[protocol]).await;
        let mut said = vec![HttpScript::Allow, HttpScript::Deny("no"), HttpScript::Garbage];
        said.extend([400, 401, 403, 422, 429, 500].map(page));
        said.push(HttpScript::Stream(200, Vec::new(), Bytes::from_static(b"of no announced length")));
        let probes = said.len();
        for script in said {
            hook.set(script.clone());
            assert_eq!(probe(&hook).await, Ok(()), "{script:?}");
        }
        let seen = hook.seen();
        assert_eq!(seen.len(), probes, "each is sent one review");
        assert!(seen.iter().all(|seen| seen.path.starts_with("/validate?a=b&timeout=")), "{seen:?}");
    }
}

#[tokio::test]
async fn probe_of_a_non_hook_fails_with_advice() {
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::Allow, &[protocol]).await;
        for (status, fix) in [
            (404, "there is no hook at this path: correct the path in its clientConfig, or serve it"),
            (302, "it redirects, which is not followed: write where to into its clientConfig"),
            (405, "this path does not accept POST: correct the path in its clientConfig"),
            (502, "no hook is ready behind this path: start it, or check the proxy before it"),
            (503, "no hook is ready behind this path: start it, or check the proxy before it"),
            (504, "no hook is ready behind this path: start it, or check the proxy before it"),
        ] {
            hook.set(HttpScript::Status(status, None));
            let failure = probe(&hook).await.expect_err("nobody is there");
            assert_eq!(failure.step, Step::Review);
            let why = format!("POST /validate?a=b: the hook answered with HTTP status {status}: {fix} (step: review)");
            assert_eq!(failure.to_string(), why);
        }
    }
}

#[tokio::test]
async fn probe_fails_with_an_incomplete_answer() {
    let short = vec![("content-length", "99".to_owned())];
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::Allow, &[protocol]).await;
        for script in [HttpScript::GiveUp, HttpScript::Stream(200, short.clone(), Bytes::from_static(b"{}"))] {
            hook.set(script.clone());
            let failure = probe(&hook).await.expect_err("no whole reply");
            let broken = matches!(failure.cause, CallFailure::Connection(_) | CallFailure::NotHttp(_));
            assert!(broken && failure.step == Step::Review, "{script:?}: {failure:?}");
            assert!(failure.to_string().starts_with("POST /validate?a=b: "), "{failure}");
        }
    }
}

#[tokio::test]
async fn probe_fails_for_a_silent_hook_on_http1() {
    silence_does_not_pass(HTTP1).await;
}

#[tokio::test]
async fn probe_fails_for_a_silent_hook_on_http2() {
    silence_does_not_pass(H2).await;
}

/// Moves the clock that timers go by, and so is done once a test.
async fn silence_does_not_pass(protocol: &'static [u8]) {
    let hook = Arc::new(HttpHook::tls(HttpScript::Hang, &[protocol]).await);
    let channel = channel(&hook);
    let probing = tokio::spawn(async move { channel.probe(Some(&json()), LONG).await });
    until("it has the review", || hook.seen().len() == 1).await;
    tokio::time::pause();
    tokio::time::advance(LONG).await;
    let failure = probing.await.expect("no panic").expect_err("no reply");
    tokio::time::resume();
    let posted = Some("/validate?a=b".into());
    assert_eq!(failure, ProbeFailure { step: Step::Review, posted, cause: CallFailure::Timeout(LONG) });
    assert_eq!(failure.to_string(), "POST /validate?a=b: no answer within 20s (step: review)");
    until("the call is called off", || hook.cancelled() == 1).await;
}

#[tokio::test]
async fn probe_is_a_dry_run_in_the_form_of_the_hook() {
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let channel = channel(&hook);
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        for form in [HttpForm::Json(version), HttpForm::Protobuf(version)] {
            channel.probe(Some(&post(form)), LONG).await.expect("a reply");
            let seen = hook.seen().pop().expect("a review");
            let review = match form {
                HttpForm::Protobuf(_) => {
                    assert_eq!(seen.header("content-type"), "application/vnd.kubernetes.protobuf");
                    envelope::view(Rope::new([seen.body])).expect("an envelope")
                }
                _ => {
                    assert_eq!(seen.json()["apiVersion"], version.api_version());
                    json_view::view(seen.body).expect("a review")
                }
            };
            assert!(review.dry_run, "{form:?}");
            assert_eq!((&*review.uid, &*review.username), ("gatepost-probe", "system:gatepost:probe"), "{form:?}");
        }
    }
    channel.probe(Some(&post(HttpForm::Legacy)), LONG).await.expect("a reply");
    let spec = &hook.seen().pop().expect("a review").json()["spec"];
    assert_eq!((&spec["dryRun"], &spec["userInfo"]["name"]), (&json!(true), &json!("system:gatepost:probe")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn probe_of_a_hook_with_undeclared_side_effects_only_connects() {
    for side_effects in ["", "sideEffects: Some", "sideEffects: Unknown"] {
        let webhook = HttpHook::plain(HttpScript::Hang).await;
        let configured = Configured::start(&["  []\n".to_owned()]);
        configured.write(&document(&[hook(HOOK, &format!("{}/validate", webhook.url()), side_effects)]));
        until("it is asked", || configured.asks(HOOK)).await;
        // A probe that waited for an answer would not have passed.
        until("it is connected to", || webhook.connections() > 0).await;
        assert!(webhook.seen().is_empty(), "{side_effects}: {:?}", webhook.seen());
        tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hooks_of_the_first_configuration_are_called_unprobed() {
    let webhook = HttpHook::plain(HttpScript::Hang).await;
    let entry = hook(HOOK, &format!("{}/validate", webhook.url()), "sideEffects: None");
    let configured = Configured::start(&[entry]);
    assert!(configured.asks(HOOK) && webhook.seen().is_empty());
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn probe_uses_a_corrected_path_next() {
    let webhook = HttpHook::plain(HttpScript::Status(404, None)).await;
    let at = |path: &str| document(&[hook(HOOK, &format!("{}{path}", webhook.url()), "sideEffects: None")]);
    let configured = Configured::start(&["  []\n".to_owned()]);
    let why = || configured.hook(HOOK).and_then(|live| live.rotation.reason()).unwrap_or_default();
    configured.write(&at("/wrong"));
    until("the wrong path has failed", || why().contains("POST /wrong: the hook answered with HTTP status 404")).await;
    configured.write(&at("/right"));
    until("the other is tried", || why().contains("POST /right: the hook answered with HTTP status 404")).await;
    assert!(matches!(configured.hook(HOOK).expect("there").rotation, Rotation::Probing { .. }));
    webhook.set(HttpScript::Deny("I know Pods only"));
    until("it is asked", || configured.asks(HOOK)).await;
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

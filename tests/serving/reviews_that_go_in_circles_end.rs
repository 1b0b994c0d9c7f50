//! A hook that leads back to the sidecar itself: the review passes through it four times, and not until time is up.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use crate::front;
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};

/// One sample of the metrics, 0 where there is none.
fn metric(sidecar: &Configured, sample: &str) -> u64 {
    let text = sidecar.running.metrics.render().expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().expect("a number"))
}

async fn ends(scheme: &str, path: &str, more: &str) {
    let beside = ScriptedHook::start(Script::Allow).await;
    let one = hook("beside.example.com", &beside.url(), "");
    let sidecar = Configured::start(std::slice::from_ref(&one));
    let address = sidecar.running.addresses.tcp;
    sidecar.write(&document(&[one, hook("itself.example.com", &format!("{scheme}://{address}{path}"), more)]));
    front::until("the hook that is ourselves is asked", || sidecar.asks("itself.example.com")).await;

    let caller = front::caller(address).await;
    let ended = caller.call(front::grpc(front::REVIEW), [message(create_pod("u-1", 100))]).await;
    let said = String::from_utf8_lossy(&ended.body).into_owned();
    assert!(said.contains("itself.example.com"), "{scheme}: {said}");
    // Each of the four has asked itself, and the fifth was refused at the door. A call is made anew where its
    // connection was lost, so there may be a few more on a busy machine; until time is up there would be thousands.
    let refused = metric(&sidecar, "gatepost_refused_total{reason=\"loop\"}");
    assert!((1..=4).contains(&refused), "{scheme}: {refused}");
    // The innermost call has failed; what it said is a denial to those around it.
    let ended = |outcome: &str| metric(&sidecar, &format!("gatepost_requests_total{{outcome=\"{outcome}\"}}"));
    let decided = ended("failed") + ended("denied");
    assert!((4..=8).contains(&decided) && ended("allowed") == 0, "{scheme}: {decided}");
    assert!(beside.seen().len() <= 8, "{scheme}: {}", beside.seen().len());
    drop(caller);
    tokio::task::spawn_blocking(move || drop(sidecar)).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_grpc() {
    ends("grpc", "", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http() {
    ends("http", "/validate", "sideEffects: None").await;
}

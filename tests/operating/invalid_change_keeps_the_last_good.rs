//! An invalid change keeps the last good configuration in force, says why, and does not make it stale.

use crate::front;
use crate::front::until;
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost::live::STALE_AFTER;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn invalid_change_leaves_the_last_good_configuration_deciding() {
    let a = ScriptedHook::start(Script::Deny("no")).await;
    let entry = hook("a.example.com", &a.url(), "");
    let configured = Configured::start(std::slice::from_ref(&entry));
    let current = &configured.running.current;
    let before = current.load();
    configured.write(&document(&[format!("{entry}  color: red\n")]));
    until("it is rejected", || configured.running.health.status.rejected.get().is_some()).await;

    let problems = configured.running.health.status.rejected.get().expect("rejected").problems.clone();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].file, "gatepost.yaml");
    assert!(problems[0].to_string().contains("externalAdmissionHooks[0]"), "{}", problems[0]);
    assert!(std::sync::Arc::ptr_eq(&before, &current.load()));

    let caller = front::caller(configured.running.addresses.tcp).await;
    let request = message(create_pod("1", 100));
    let ended = caller.call(front::grpc(front::REVIEW), [request]).await;
    assert_eq!(ended.status, Some(0));
    assert_eq!(a.seen().len(), 1, "asked, without a probe");
    let rejected_at = std::time::Instant::now();
    let read_later = || current.freshness().age(rejected_at).is_some_and(|age| age.is_zero());
    until("it was read again after that", read_later).await;
    assert!(current.freshness().age(std::time::Instant::now()).expect("read") < STALE_AFTER);

    configured.write(&document(&[entry]));
    until("it is good again", || configured.running.health.status.rejected.get().is_none()).await;
    assert_eq!(current.load().number, before.number, "nothing had to change");
}

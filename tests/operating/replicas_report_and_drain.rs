//! `status` and `drain` ask replicas at their admin addresses and say when all of them are there.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::front;
use crate::front::until;
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost::runtime::StatusPlace;
use gatepost_replicas::{HookStanding, ReplicaReport};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::spawn_blocking,
    time::timeout,
};

const HOOK: &str = "h.example.com";

/// Exit code, stdout, stderr of `gatepost COMMAND --admin …` for each of the sidecars.
async fn gatepost(arguments: &[&str], asked: &[&Configured]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(arguments).stdin(Stdio::null());
    for one in asked {
        command.args(["--admin", &one.running.addresses.admin.to_string()]);
    }
    let Output { status, stdout, stderr } =
        spawn_blocking(move || command.output().expect("runs")).await.expect("ended");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn nothing() -> String {
    document(&["  []\n".to_owned()])
}

fn digest(one: &Configured) -> String {
    format!("sha256:{}", one.running.current.load().digest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_shows_each_replica_and_fails_when_one_is_silent() {
    let h = ScriptedHook::start(Script::Allow).await;
    let entry = hook(HOOK, &h.url(), "");
    let (a, b) = (Configured::named("a", std::slice::from_ref(&entry)), Configured::named("b", &[entry]));
    let (code, table, stderr) = gatepost(&["status"], &[&b, &a]).await;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!((code, lines.len(), &*stderr), (Some(0), 3, ""), "{table}");
    assert!(lines[1].starts_with("a ") && lines[1].ends_with("ok     1 Active"), "{table}");
    assert!(lines[2].starts_with("b ") && lines[2].contains(&a.running.current.load().revision.to_string()), "{table}");

    let (code, text, _) = gatepost(&["status", "--json"], &[&a]).await;
    let reports: Vec<ReplicaReport> = serde_json::from_str(&text).expect("reports");
    assert_eq!((code, reports.len(), &*reports[0].replica), (Some(0), 1, "a"));
    assert_eq!((&*reports[0].hooks[0].name, reports[0].hooks[0].state), (HOOK, HookStanding::Active));

    // The same address twice is one replica, however it is written; so are two addresses that lead to one.
    let again =
        [a.running.addresses.admin.to_string(), format!("http://localhost:{}", a.running.addresses.admin.port())];
    let twice = ["status", "--admin", &again[0], "--admin", &again[1], "--json", "--expect", "2"];
    let (code, text, stderr) = gatepost(&twice, &[&a]).await;
    let reports: Vec<ReplicaReport> = serde_json::from_str(&text).expect("reports");
    assert_eq!((code, reports.len(), &*stderr), (Some(1), 1, "gatepost: 1 replica alive; expected: 2\n"));

    let silent = b.running.addresses.admin;
    spawn_blocking(move || b.running.stop()).await.expect("stopped");
    let (code, table, stderr) = gatepost(&["status", "--admin", &silent.to_string()], &[&a]).await;
    assert_eq!((code, table.lines().count()), (Some(1), 2), "{table}");
    assert!(stderr.contains(&format!("no answer from http://{silent}: ")), "{stderr}");
    let (code, _, stderr) = gatepost(&["status", "--expect", "2"], &[&a]).await;
    assert_eq!((code, &*stderr), (Some(1), "gatepost: 1 replica alive; expected: 2\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_waits_for_the_revision_on_every_replica() {
    let h = ScriptedHook::start(Script::Allow).await;
    let changed = document(&[hook(HOOK, &h.url(), "")]);
    let none = ["  []\n".to_owned()];
    let (a, b) = (Configured::named("a", &none), Configured::named("b", &none));
    let before = digest(&a);
    a.write(&changed);
    until("a has it", || digest(&a) != before).await;
    let wanted = digest(&a);
    let (code, stdout, stderr) = gatepost(&["status", "--wait", &wanted[..20], "--timeout", "200ms"], &[&a, &b]).await;
    assert_eq!((code, &*stdout), (Some(1), ""));
    let missing = format!("b is at revision {}", b.running.current.load().revision);
    assert_eq!(stderr, format!("waiting: {missing}\ngatepost: not within 200ms: {missing}\n"));

    let arguments = ["status", "--wait", &wanted, "--timeout", "20s"];
    let both = [&a, &b];
    let (waited, ()) = tokio::join!(gatepost(&arguments, &both), async { b.write(&changed) });
    let (code, stdout, stderr) = waited;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("2 replicas have revision sha256:") && stdout.ends_with("in force: a, b\n"), "{stdout}");

    let three = ["status", "--wait", &wanted, "--expect", "3", "--timeout", "200ms"];
    let (code, _, stderr) = gatepost(&three, &both).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("2 of 3 replicas are alive: a, b"), "{stderr}");

    b.write("kind: Nonsense");
    until("b rejects it", || b.running.health.status.rejected.get().is_some()).await;
    let rejected =
        b.running.health.status.rejected.get().map(|rejected| rejected.revision.to_string()).expect("rejected");
    let (code, _, stderr) = gatepost(&["status", "--wait", &rejected, "--timeout", "1h"], &[&b]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("gatepost: b has rejected it, for 1 problem(s): gatepost.yaml"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drain_ends_when_no_replica_calls_the_hook() {
    drains("timeout: 20s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drain_waits_for_a_mutating_hook_as_for_a_validating_one() {
    drains("timeout: 20s\ntype: Mutating").await;
}

/// The hook with these lines drains while it is asked.
async fn drains(more: &str) {
    let h = ScriptedHook::start(Script::Held).await;
    let entry = hook(HOOK, &h.url(), more);
    let (a, b) = (Configured::named("a", std::slice::from_ref(&entry)), Configured::named("b", &[entry]));
    let caller = front::caller(a.running.addresses.tcp).await;
    let review = async { caller.call(front::grpc(front::REVIEW), [message(create_pod("1", 2000))]).await };
    let story = async {
        h.asked.notified().await;
        let (code, _, stderr) = gatepost(&["drain", HOOK, "--timeout", "1s"], &[&a, &b]).await;
        assert_eq!(code, Some(1));
        assert!(stderr.contains("still configured in test as a sees it (Active): remove it first"), "{stderr}");

        for one in [&a, &b] {
            one.write(&nothing());
            until("it is removed", || one.hook(HOOK).is_none()).await;
        }
        let (code, _, stderr) = gatepost(&["drain", HOOK, "--timeout", "1s"], &[&a, &b]).await;
        assert_eq!(code, Some(1));
        assert!(stderr.contains("draining on a since "), "{stderr}");

        h.release.notify_one();
        until("it has drained", || [&a, &b].iter().all(|one| one.running.health.status.draining().is_empty())).await;
        let (code, _, stderr) = gatepost(&["drain", HOOK, "--expect", "3", "--timeout", "1s"], &[&a, &b]).await;
        assert_eq!(code, Some(1));
        assert!(stderr.contains("2 of 3 replicas are alive: a, b"), "{stderr}");
        let (code, stdout, stderr) = gatepost(&["drain", HOOK, "--timeout", "20s"], &[&a, &b]).await;
        let done = format!("{HOOK} is gone on 2 replicas: its endpoint may be switched off\n");
        assert_eq!((code, stdout), (Some(0), done), "{stderr}");
    };
    let (verdict, ()) = tokio::join!(review, story);
    assert_eq!(verdict.status, Some(0));
    let (code, _, stderr) = gatepost(&["drain", "other.example.com", "--timeout", "1h"], &[&a]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("none of 1 replica knows other.example.com"), "{stderr}");
}

/// The apiserver is gone; that is logged, and nothing else suffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replica_that_cannot_publish_its_report_serves_all_the_same() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let access = gatepost_etcd_client::EtcdAccess {
        endpoints: vec![format!("http://{free}")],
        ..gatepost_etcd_client::EtcdAccess::default()
    };
    let status_place = StatusPlace::Etcd { access, prefix: StatusPlace::ETCD_PREFIX.to_owned() };
    let h = ScriptedHook::start(Script::Allow).await;
    let a = Configured::publishing_to("a", status_place, &[hook(HOOK, &h.url(), "")]);
    let shown = async || {
        let mut page = TcpStream::connect(a.running.addresses.admin).await.expect("connects");
        page.write_all(b"GET /configz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("asks");
        let mut text = String::new();
        page.read_to_string(&mut text).await.expect("answers");
        let (_, page) = text.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str::<Value>(page).expect("JSON")["telling"].take()
    };
    let failing = timeout(front::LONG, async {
        loop {
            let publish_status = shown().await;
            if publish_status["failure"].is_string() {
                return publish_status;
            }
        }
    });
    let publish_status = failing.await.expect("it is said");
    let place = publish_status["place"].as_str().expect("a place");
    assert!(place.contains(&free.to_string()) && place.ends_with("key /gatepost/replicas/a"), "{publish_status}");
    assert!(
        publish_status["told"].is_null()
            && publish_status["failure"].as_str().expect("why").contains("cannot reach etcd")
    );

    let caller = front::caller(a.running.addresses.tcp).await;
    let verdict = caller.call(front::grpc(front::REVIEW), [message(create_pod("1", 2000))]).await;
    assert_eq!(verdict.status, Some(0));
    drop(caller);
    assert!(spawn_blocking(|| a.running.stop()).await.expect("stops").complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drain_reports_another_hook_at_the_same_endpoint() {
    let h = ScriptedHook::start(Script::Allow).await;
    let other = hook("other.example.com", &h.url(), "");
    let a = Configured::named("a", &[hook(HOOK, &h.url(), ""), other.clone()]);
    a.write(&document(&[other]));
    until("it is removed", || a.hook(HOOK).is_none()).await;
    let (code, _, stderr) = gatepost(&["drain", HOOK, "--timeout", "20s"], &[&a]).await;
    assert_eq!(code, Some(1));
    let shown = format!("{} is also that of other.example.com (Active on a): leave the endpoint on", h.url());
    assert!(stderr.contains(&shown), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_shows_at_which_step_a_probe_fails() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let a = Configured::named("a", &["  []\n".to_owned()]);
    a.write(&document(&[hook(HOOK, &format!("grpc://{free}"), "")]));
    let failed = || a.hook(HOOK).is_some_and(|live| live.rotation.reason().is_some());
    until("its probe has failed", failed).await;
    let (code, table, _) = gatepost(&["status"], &[&a]).await;
    assert_eq!(code, Some(0));
    assert!(
        table.contains("1 Probing\n")
            && table
                .contains(&format!("a: UNASKED {HOOK}: not called until grpc://{free} passes a probe; none has since")),
        "{table}"
    );
    assert!(table.contains("(step: connect)"), "{table}");
    timeout(Duration::from_secs(20), spawn_blocking(|| a.running.stop())).await.expect("stops").expect("ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_lists_shadows_and_stop_does_not_wait_for_them() {
    let h = ScriptedHook::start(Script::Deny("no")).await;
    let a = Configured::named("a", &[hook(HOOK, &h.url(), "enforcement: Shadow\ntimeout: 30s")]);
    let (_, table, _) = gatepost(&["status", "--shadow"], &[&a]).await;
    assert!(table.contains("a: what these reject passes: hook h.example.com (Shadow)\n"), "{table}");
    assert!(table.ends_with("\na: hook h.example.com in shadow: no request yet\n"), "{table}");

    let caller = front::caller(a.running.addresses.tcp).await;
    let review = || caller.call(front::grpc(front::REVIEW), [message(create_pod("u", 10))]);
    review().await.assert_allowed("u");
    let shadow = a.hook(HOOK).expect("in force").metrics;
    until("its denial is counted", || !shadow.shadow.denials().is_empty()).await;
    let (_, table, _) = gatepost(&["status", "--shadow"], &[&a]).await;
    assert!(table.contains("\na: hook h.example.com in shadow: 1 would_deny\n  "), "{table}");
    let denied = " CREATE Pod shop/web: admission webhook \"h.example.com\" denied the request: no\n";
    assert!(table.ends_with(denied), "{table}");

    h.set(Script::Hang);
    review().await.assert_allowed("u");
    until("it is called", || h.seen().len() == 2).await;
    drop(caller);
    let drained = timeout(front::LONG, spawn_blocking(|| a.running.stop())).await.expect("in time").expect("joined");
    assert!(drained.complete());
}

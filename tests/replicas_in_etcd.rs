//! Replicas publish reports in etcd, and `status` and `drain` read it there: tried with a real etcd and real
//! processes.
//!
//! The program is found as in `tests/etcd_source.rs`, and what cannot be run for want of it is said aloud. Words behind
//! `--` choose cases by a part of their name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where its own setup is wrong"
)]

#[path = "support/cases.rs"]
mod cases;
#[path = "support/etcd.rs"]
mod etcd;
mod support;

use std::{
    path::Path,
    process::{Child, Command, ExitCode, Output, Stdio},
    time::{Duration, Instant},
};

use cases::Case;
use etcd::{Cluster, wait};
use gatepost_replicas::{ReplicaReport, TTL};
use support::gate::{document, hook};

const CASES: [Case; 5] = [
    ("status_waits_until_all_three_have_the_revision", status_waits_until_all_three_have_the_revision),
    ("a_replica_that_dies_is_not_listed_for_long", a_replica_that_dies_is_not_listed_for_long),
    ("a_replica_that_lives_lets_its_lease_begin_anew", a_replica_that_lives_lets_its_lease_begin_anew),
    ("drain_ends_when_the_hook_is_gone_everywhere", drain_ends_when_the_hook_is_gone_everywhere),
    ("namesakes_are_reported", namesakes_are_reported),
];

const KEY: &str = "/gatepost/config/all.yaml";
const HOOK: &str = "h.example.com";

fn main() -> ExitCode {
    cases::run(&CASES)
}

/// A sidecar as a process of its own. It is killed when this is dropped.
struct Replica(Child);

impl Replica {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let serve = Command::new(env!("CARGO_BIN_EXE_gatepost"))
            .args(["serve", "--source", "etcd", "--etcd-endpoint", &cluster.url(0), "--replica", name])
            .args(["--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(serve.expect("runs"))
    }

    /// Sends it a signal, by its name.
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Exit code, stdout, stderr of a command that reads the replicas' reports there.
fn gatepost(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(arguments).args(["--source", "etcd", "--etcd-endpoint", &cluster.url(0)]).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn listed(cluster: &Cluster) -> Vec<ReplicaReport> {
    serde_json::from_str(&gatepost(cluster, &["status", "--json"]).1).unwrap_or_default()
}

/// The number by which a replica calls the state it has in force.
fn shown_by(cluster: &Cluster, name: &str) -> u64 {
    let listed = listed(cluster);
    let report = listed.iter().find(|report| report.replica == name).expect("it is alive");
    report.revision.parse().expect("a number of the store")
}

fn names(cluster: &Cluster) -> Vec<String> {
    listed(cluster).into_iter().map(|report| report.replica).collect()
}

/// A configuration of that hook, which nobody answers for.
fn configuration(port: u16) -> String {
    document(&[hook(HOOK, &format!("grpc://127.0.0.1:{port}"), "failurePolicy: Ignore")])
}

fn three(cluster: &Cluster) -> [Replica; 3] {
    let replicas = ["a", "b", "c"].map(|name| Replica::start(cluster, name));
    wait("three replicas", || (names(cluster) == ["a", "b", "c"]).then_some(()));
    replicas
}

fn status_waits_until_all_three_have_the_revision(program: &Path) {
    let cluster = Cluster::start(program, 1);
    let first = cluster.put(KEY, &configuration(1));
    let _two = ["a", "b"].map(|name| Replica::start(&cluster, name));
    wait("two replicas", || (names(&cluster) == ["a", "b"]).then_some(()));
    // These have written their reports into the same store and so moved its revision on: the third one reads
    // what was put at the first revision at a later one, and calls it by that.
    let c = Replica::start(&cluster, "c");
    let waited = |revision: &str, within: &str| {
        gatepost(&cluster, &["status", "--wait", revision, "--timeout", within, "--expect", "3"])
    };
    let (code, stdout, stderr) = waited(&first.to_string(), "60s");
    assert_eq!(
        (code, &*stdout),
        (Some(0), &*format!("3 replicas have revision {first} in force: a, b, c\n")),
        "{stderr}"
    );
    let shown = shown_by(&cluster, "c");

    // One that stands still has what it had, until it is taken to be dead.
    c.signal("STOP");
    let second = cluster.put(KEY, &configuration(2));
    assert!(first < shown && shown < second, "c shows {shown} for what was put at {first}, before {second}");
    let second = second.to_string();
    let (code, stdout, stderr) = waited(&second, "4s");
    assert_eq!((code, &*stdout), (Some(1), ""), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert_eq!(last, format!("gatepost: not within 4s: c is at revision {shown}"), "{stderr}");
    c.signal("CONT");
    let (code, _, stderr) = waited(&second, "60s");
    assert_eq!(code, Some(0), "{stderr}");

    let digests = || listed(&cluster).into_iter().map(|report| report.digest).collect::<Vec<_>>();
    let good = digests();
    let unsound = cluster.put(KEY, "kind: Nonsense").to_string();
    let (code, _, stderr) = waited(&unsound, "60s");
    assert_eq!(code, Some(1));
    assert!(stderr.contains(" has rejected it, for 1 problem(s): all.yaml"), "{stderr}");
    assert_eq!(digests(), good, "what was good stays in force");

    // Another key of the store: nothing of ours has changed, and all know that at their next sign of life.
    cluster.put(KEY, &configuration(2));
    let other = cluster.put("/elsewhere", "x").to_string();
    let (code, _, stderr) = waited(&other, "60s");
    assert_eq!(code, Some(0), "{stderr}");
}

fn a_replica_that_dies_is_not_listed_for_long(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(KEY, &configuration(1));
    let [mut a, b, _c] = three(&cluster);
    let killed = Instant::now();
    drop(b);
    assert_eq!(names(&cluster), ["a", "b", "c"], "nobody knows yet");
    a.signal("TERM");
    assert!(a.0.wait().expect("ended").success());
    assert!(!names(&cluster).contains(&"a".to_owned()), "who stops takes leave");
    wait("its end", || (names(&cluster) == ["c"]).then_some(()));
    // Etcd looks for leases that are over twice a second; the rest is for a busy machine.
    assert!(killed.elapsed() < TTL + Duration::from_secs(10), "{:?}", killed.elapsed());
    let (code, _, stderr) = gatepost(&cluster, &["status", "--expect", "2"]);
    assert_eq!((code, &*stderr), (Some(1), "gatepost: 1 replica alive; expected: 2\n"));
}

/// Or it would be away for seconds again and again, and a hook that it asks might be taken for gone.
fn a_replica_that_lives_lets_its_lease_begin_anew(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(KEY, &configuration(1));
    let _one = Replica::start(&cluster, "a");
    wait("the replica", || (names(&cluster) == ["a"]).then_some(()));
    let renewed = || cluster.counted("grpc_server_started_total{grpc_method=\"LeaseKeepAlive\"");
    let before = renewed();
    wait("a lease that begins anew, twice", || (renewed() >= before + 2.0).then_some(()));
    assert_eq!(cluster.counted("grpc_server_started_total{grpc_method=\"LeaseGrant\""), 1.0, "it is the same one");
}

fn drain_ends_when_the_hook_is_gone_everywhere(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(KEY, &configuration(1));
    let _three = three(&cluster);
    let drain = |within| gatepost(&cluster, &["drain", HOOK, "--expect", "3", "--timeout", within]);
    wait("the hook", || listed(&cluster).iter().all(|report| report.hooks.len() == 1).then_some(()));
    let (code, _, stderr) = drain("100ms");
    assert_eq!(code, Some(1));
    assert!(stderr.contains("still configured in test as a sees it (Active): remove it first"), "{stderr}");
    cluster.put(KEY, &document(&["  []\n".to_owned()]));
    let (code, stdout, stderr) = drain("60s");
    let done = format!("{HOOK} is gone on 3 replicas: its endpoint may be switched off\n");
    assert_eq!((code, stdout), (Some(0), done), "{stderr}");
}

fn namesakes_are_reported(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(KEY, &configuration(1));
    let _twins = ["a", "a"].map(|name| Replica::start(&cluster, name));
    wait("somebody who notices", || listed(&cluster).iter().any(|report| report.contested).then_some(()));
    let (code, _, stderr) = gatepost(&cluster, &["drain", HOOK, "--timeout", "100ms"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("two replicas go by the name a"), "{stderr}");
}

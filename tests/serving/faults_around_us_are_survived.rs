//! Broken surroundings of a sidecar stop no verdict: a full disk, and names that are not found.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use crate::front;
use crate::front::{Caller, LONG, until};
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A `gatepost serve` process, killed with its handle.
struct Serve {
    child: Child,
    tcp: SocketAddr,
    admin: SocketAddr,
}

impl Serve {
    fn start(folder: &Path, audit_log: &str, log: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gatepost"))
            .args(["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"])
            .args(["--audit-log", audit_log, "--log-format", "json", "--config"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |role: &str| -> SocketAddr {
            let line = lines.next().expect("it says where it listens").unwrap();
            line.strip_prefix(&format!("listening {role} ")).expect(role).parse().unwrap()
        };
        let (tcp, admin) = (address("tcp"), address("admin"));
        Self { child, tcp, admin }
    }

    async fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.expect(name).parse().unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn verdict(caller: &Caller, uid: &str) -> AdmissionResponse {
    let ended = caller.call(front::grpc(front::REVIEW), [message(create_pod(uid, 200))]).await;
    assert_eq!((ended.status, &*ended.message), (Some(0), ""));
    AdmissionReview::decode(&ended.body[5..]).unwrap().response.unwrap()
}

#[tokio::test]
async fn a_full_disk_loses_audit_lines_counts_them_says_so_once_and_stops_no_verdict() {
    let a = ScriptedHook::start(Script::Allow).await;
    let (folder, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("a.yaml"), document(&[hook("a.example.com", &a.url(), "")])).unwrap();
    let shown = || -> Vec<(String, SystemTime)> {
        let entries = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        entries
            .map(|entry| (entry.path().display().to_string(), entry.metadata().unwrap().modified().unwrap()))
            .collect()
    };
    let before = (shown(), fs::metadata(folder.path()).unwrap().modified().unwrap());
    let log = logs.path().join("log");
    // Every write to this device fails as one to a full disk does.
    let serve = Serve::start(folder.path(), "/dev/full", &log);
    let caller = front::caller(serve.tcp).await;
    let mut asked = 0_u32;
    // Several times the writer's pause, so that it fails more than once.
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        asked += 1;
        assert!(verdict(&caller, &asked.to_string()).await.allowed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all_counted = async {
        while serve.metric("gatepost_audit_lost_total").await < f64::from(asked) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, all_counted).await.expect("every line that is lost is counted");
    let output = fs::read_to_string(&log).unwrap();
    let of_it: Vec<_> = output.lines().filter(|line| line.contains("cannot write the audit log")).collect();
    assert_eq!(of_it.len(), 1, "{output}");
    assert!(of_it[0].contains("No space left on device"), "{of_it:?}");
    assert_eq!((shown(), fs::metadata(folder.path()).unwrap().modified().unwrap()), before, "it is only read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unresolvable_hook_fails_by_its_policy() {
    let a = ScriptedHook::start(Script::Allow).await;
    // No name server knows this one (RFC 6761), whether there is a name server or not.
    let url = "grpc://nowhere.invalid:9001";
    let gone = |policy: &str| hook("gone.example.com", url, &format!("failurePolicy: {policy}\ntimeout: 10s"));
    let configured = Configured::start(&[hook("a.example.com", &a.url(), ""), gone("Ignore")]);
    let current = &configured.running.current;
    let caller = front::caller(configured.running.addresses.tcp).await;

    let open = verdict(&caller, "1").await;
    assert!(open.allowed(), "{open:?}");
    let noted = open.audit_annotations.iter().find(|(key, _)| key.starts_with("failed-open.")).expect("noted");
    assert_eq!(noted.1, "gone.example.com");

    configured.write(&document(&[hook("a.example.com", &a.url(), ""), gone("Fail")]));
    until("the change is in force", || current.load().number == 2).await;
    let closed = verdict(&caller, "2").await.status.expect("rejected");
    let message = closed.message.expect("a message");
    assert_eq!(closed.code, Some(500));
    assert!(message.contains("\"gone.example.com\": failed to call webhook: cannot connect: "), "{message}");
    let text = configured.running.metrics.render().unwrap();
    for policy in ["Ignore", "Fail"] {
        let sample =
            format!("{{hook=\"gone.example.com\",type=\"validating\",kind=\"connect\",policy=\"{policy}\"}} 1\n");
        assert!(text.contains(&sample), "{sample} in {text}");
    }
    assert!(
        current.freshness().is_fresh(std::time::Instant::now())
            && configured.running.health.status.failed_read.get().is_none(),
        "no read needs a name"
    );
    drop(caller);
    tokio::task::spawn_blocking(|| drop(configured)).await.expect("stops");
}

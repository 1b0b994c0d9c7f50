//! `gatepost audit` over what was really written: rotated, compressed, cut short, and mixed with rubbish.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs::{self, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use crate::front::{REVIEW, before, caller, grpc, review, with};
use crate::support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use flate2::{Compression, write::GzEncoder};
use gatepost::{
    front::{FrontLimits, Listener},
    review::{AdmissionDeps, Reasons},
    telemetry::Audit,
};
use gatepost_wire::pb::k8s::io::{api::admission::v1::AdmissionResponse, apimachinery::pkg::apis::meta::v1::Status};
use serde_json::Value;
use tokio::net::TcpListener;

/// Exit code, stdout and stderr of `gatepost audit` with these arguments.
fn audit(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    let Output { status, stdout, stderr } =
        command.arg("audit").args(arguments).stdin(Stdio::null()).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

async fn denying(message: &str) -> ScriptedHook {
    let status = Status {
        code: Some(403),
        reason: Some("Forbidden".into()),
        message: Some(message.into()),
        ..Default::default()
    };
    let response = AdmissionResponse { uid: Some("denied".into()), status: Some(status), ..Default::default() };
    ScriptedHook::start(Script::Respond(response)).await
}

/// A gate over one hook, that audits into this file.
fn audited(hook: String, log: &Path) -> AdmissionDeps {
    let mut gate = Arc::into_inner(gate(&document(&[hook]), Reasons::First)).unwrap();
    gate.audit = Arc::new(Audit::to_path(log, || {}).unwrap().with_hook_messages(true));
    gate
}

#[tokio::test]
async fn old_denial_is_found_with_its_reason_in_rotated_files() {
    let folder = tempfile::tempdir().unwrap();
    let [log, first, second] =
        ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2.gz"].map(|name| folder.path().join(name));
    let path = log.to_str().unwrap();

    let no = denying("the tag \u{1b}[31mlatest is not allowed").await;
    let gate = audited(hook("no-latest.example.com", &no.url(), ""), &log);
    assert!(!ask(&gate, create_pod("denied", 100)).await.allowed());
    gate.audit.close();
    let mut packed = GzEncoder::new(fs::File::create(&second).unwrap(), Compression::default());
    packed.write_all(&fs::read(&log).unwrap()).unwrap();
    packed.finish().unwrap();
    fs::remove_file(&log).unwrap();

    let broken = ScriptedHook::start(Script::Status(13, "hunter2")).await;
    let gate = audited(hook("quota.example.com", &broken.url(), "failurePolicy: Ignore"), &log);
    assert!(ask(&gate, create_pod("failed", 100)).await.allowed());
    gate.audit.close();
    fs::rename(&log, &first).unwrap();

    let yes = ScriptedHook::start(Script::Allow).await;
    let gate = audited(hook("a.example.com", &yes.url(), ""), &log);
    assert!(ask(&gate, create_pod("allowed", 100)).await.allowed());
    gate.audit.close();
    OpenOptions::new()
        .append(true)
        .open(&log)
        .unwrap()
        .write_all(b"\x00\xff\xfe\n{\"half\": \n{\"time_us\":1,")
        .unwrap();

    let (code, stdout, stderr) = audit(&[path, "--json"]);
    let uids: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["uid"].clone()).collect();
    assert_eq!((code, &*uids), (Some(0), &["denied".into(), "failed".into(), "allowed".into()][..]), "{stderr}");
    assert_eq!(stderr, "gatepost: skipped, as no audit record: 2 lines\n");

    let (code, stdout, _) = audit(&["--denied", "--since", "1h", "--name", "shop/web", path]);
    assert_eq!(code, Some(0));
    for part in [
        "Z  denied 403 Forbidden  CREATE pods shop/web by ",
        "\n    admission webhook \"no-latest.example.com\" denied the request: the tag  [31mlatest is not allowed\n",
        "\n    hook no-latest.example.com: denied after ",
        "\n    uid denied; took ",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(!stdout.contains('\u{1b}') && !stdout.contains("uid allowed"), "{stdout}");

    let (_, stdout, _) = audit(&["--failed", "--hook", "quota.example.com", path]);
    let why = "grpc_status: the hook answered with gRPC status INTERNAL and 7 bytes of text\n";
    assert!(stdout.contains(why) && !stdout.contains("hunter2"), "{stdout}");

    let (_, stdout, _) = audit(&["--limit", "1", "--json", path]);
    assert!(stdout.lines().count() == 1 && stdout.contains("\"uid\":\"allowed\""), "{stdout}");
    let twice = audit(&["--json", path, first.to_str().unwrap(), second.to_str().unwrap()]).1;
    assert_eq!(twice.lines().count(), 3, "a file that is named, too, is read once");

    let (code, stdout, stderr) = audit(&["--since", "2099-01-01T00:00:00Z", path]);
    assert_eq!((code, &*stdout), (Some(0), ""));
    assert!(stderr.starts_with("gatepost: nothing found; "), "{stderr}");
}

#[tokio::test]
async fn a_review_is_found_by_its_identifier_in_the_callers_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let yes = ScriptedHook::start(Script::Allow).await;
    let gate = Arc::new(audited(hook("a.example.com", &yes.url(), ""), &log));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sidecar = before(Arc::clone(&gate), FrontLimits::default(), address, Listener::Tcp(listener));
    let caller = caller(sidecar.address).await;
    for (uid, id) in [("known", "9b1-2"), ("odd", "9b1 \"2\"")] {
        let ended = caller.call(with(grpc(REVIEW), "audit-id", id), [review(uid, 100)]).await;
        ended.assert_allowed(uid);
    }
    caller.review("none", 100).await.assert_allowed("none");
    gate.audit.close();
    let path = log.to_str().unwrap();
    let (_, stdout, _) = audit(&[path, "--json", "--uid", "9b1-2"]);
    let found: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), 1, "{stdout}");
    assert_eq!((&found[0]["uid"], &found[0]["audit_id"]), (&"known".into(), &"9b1-2".into()));
    let (_, stdout, _) = audit(&[path, "--json"]);
    assert_eq!((stdout.lines().count(), stdout.matches("audit_id").count()), (3, 1), "{stdout}");
}

#[test]
fn records_of_several_logs_come_in_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    let record = |time: u32| format!("{{\"time_us\":{time},\"uid\":\"{time}\",\"allowed\":true}}\n");
    fs::write(&a, [1, 4, 5].map(record).concat()).unwrap();
    fs::write(&b, [2, 3, 6].map(record).concat()).unwrap();
    let (code, stdout, stderr) = audit(&["--json", b.to_str().unwrap(), a.to_str().unwrap()]);
    assert_eq!((code, &*stdout, &*stderr), (Some(0), &*[1, 2, 3, 4, 5, 6].map(record).concat(), ""));
}

#[test]
fn unreadable_audit_lines_are_reported_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let [log, cut, absent] = ["log", "log.1.gz", "absent"].map(|name| folder.path().join(name));
    fs::write(&log, "{\"time_us\":2,\"uid\":\"u\",\"allowed\":true}\n").unwrap();
    fs::write(&cut, b"\x1f\x8b\x08\x00 cut short").unwrap();
    let (code, stdout, stderr) = audit(&["--json", log.to_str().unwrap(), absent.to_str().unwrap()]);
    assert_eq!((code, stdout.lines().count()), (Some(1), 1), "{stderr}");
    for part in [
        "log.1.gz cannot be read to its end: ",
        "cannot read ",
        "/absent: No such file",
        "give the path that serve has as --audit-log",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let (code, _, stderr) = audit(&[folder.path().to_str().unwrap()]);
    assert!(code == Some(1) && stderr.contains("is a folder: name the audit log in it"), "{stderr}");
    let (code, _, stderr) = audit(&["--since", "yesterday"]);
    assert!(code == Some(2) && stderr.contains("as 1h or 30m"), "{stderr}");
}

#[test]
fn standard_input_is_read_and_a_reader_that_has_seen_enough_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    let mut process =
        command.args(["audit", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let (mut stdin, mut stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let line = format!("{{\"time_us\":2,\"uid\":\"{}\",\"allowed\":true}}\n", "u".repeat(100_000));
    // More than a pipe and every buffer on the way hold.
    let writing = std::thread::spawn(move || {
        let written = (0..100).try_for_each(|_| stdin.write_all(line.as_bytes()));
        assert!(written.is_err(), "it stops reading");
    });
    let mut seen = [0; 20];
    stdout.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"1970-01-01T00:00:00.");
    drop(stdout);
    writing.join().unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

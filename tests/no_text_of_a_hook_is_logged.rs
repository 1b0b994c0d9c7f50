//! Texts of a hook may repeat the object it was asked about: the log never holds them, the audit log only where that is
//! wanted, and then their beginning.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

mod support;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

use gatepost::{review::Reasons, telemetry::Audit};
use gatepost_wire::pb::k8s::io::{api::admission::v1::AdmissionResponse, apimachinery::pkg::apis::meta::v1::Status};
use serde_json::Value;
use support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};

const SECRET: &str = "hunter2";

/// Bytes written to the log.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn denial(reason: &str, message: String) -> Script {
    let status = Status { code: Some(403), reason: Some(reason.into()), message: Some(message), ..Default::default() };
    Script::Respond(AdmissionResponse { uid: Some("1".into()), status: Some(status), ..Default::default() })
}

/// Contents of the log and the audit log after this answer.
async fn kept(script: Script, said: bool) -> (String, Value) {
    let a = ScriptedHook::start(script).await;
    let mut gate = Arc::into_inner(gate(&document(&[hook("a.example.com", &a.url(), "")]), Reasons::First)).unwrap();
    let (log, records) = (Kept::default(), Kept::default());
    gate.audit = Arc::new(Audit::to_sink(records.clone()).unwrap().with_hook_messages(said));
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let listening = tracing::subscriber::set_default(lines.finish());
    let verdict = ask(&gate, create_pod("1", 100)).await;
    drop(listening);
    assert!(verdict.refusal.expect("rejected").message.contains(SECRET), "its caller sees it");
    gate.audit.close();
    (log.text(), serde_json::from_str(&records.text()).unwrap())
}

#[tokio::test]
async fn a_failed_call_is_logged_by_its_class() {
    let (log, record) = kept(Script::Status(13, SECRET), false).await;
    assert!(log.contains("the hook answered with gRPC status INTERNAL and 7 bytes of text"), "{log}");
    assert!(!log.contains(SECRET) && !record.to_string().contains(SECRET), "{log}\n{record}");
    assert_eq!(record["hooks"][0]["failure"], "grpc_status");
    assert_eq!(record["hooks"][0]["error"], "the hook answered with gRPC status INTERNAL and 7 bytes of text");
    let time = humantime::parse_rfc3339(record["time"].as_str().unwrap()).unwrap();
    let micros = time.duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    assert_eq!(micros, record["time_us"].as_u64().unwrap() / 1000 * 1000, "{record}");
}

#[tokio::test]
async fn hook_reasons_and_messages_are_in_no_record() {
    let (log, record) = kept(denial(SECRET, SECRET.to_owned()), false).await;
    assert!(!log.contains(SECRET) && !record.to_string().contains(SECRET), "{log}\n{record}");
    assert_eq!((&record["reason"], &record["code"]), (&"Other".into(), &403.into()));
    let (_, record) = kept(denial("Forbidden", SECRET.to_owned()), false).await;
    assert_eq!((&record["reason"], &record["message"]), (&"Forbidden".into(), &Value::Null));
}

#[tokio::test]
async fn where_it_is_wanted_the_beginning_is_recorded_on_one_line() {
    let long = format!("{SECRET}\n{}", "x".repeat(10_000));
    let (log, record) = kept(denial("Secretive", long), true).await;
    assert!(!log.contains(SECRET), "{log}");
    let message = record["message"].as_str().unwrap();
    assert!(message.contains(SECRET) && message.len() < 1100 && !message.contains('\n'), "{message}");
    assert_eq!(record["reason"], "Secretive");
    let (_, record) = kept(Script::Status(13, SECRET), true).await;
    assert!(!record["hooks"].to_string().contains(SECRET), "the cause of a failed call is in our words: {record}");
}

/// Log at that level while one review is decided that one hook allows, and another fails.
async fn logged(level: tracing::Level) -> String {
    let (a, b) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Status(13, SECRET)).await);
    let ignored = hook("b.example.com", &b.url(), "failurePolicy: Ignore");
    let gate = gate(&document(&[hook("a.example.com", &a.url(), ""), ignored]), Reasons::First);
    let log = Kept::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(level).with_writer(move || writer.clone());
    let listening = tracing::subscriber::set_default(lines.finish());
    assert!(ask(&gate, create_pod("4711", 100)).await.allowed());
    drop(listening);
    log.text()
}

#[tokio::test]
async fn at_debug_each_call_is_logged_within_its_review_and_hook() {
    let log = logged(tracing::Level::DEBUG).await;
    let review = "review{uid=4711 kind=Pod namespace=shop operation=\"CREATE\" revision=1}";
    for hook in ["hook{name=a.example.com}", "hook{name=b.example.com}"] {
        let whole = format!("{review}:{hook}");
        assert!(log.lines().any(|line| line.contains(&whole) && line.contains("call ended")), "{hook}:\n{log}");
    }
    assert!(!log.contains(SECRET), "{log}");
}

#[tokio::test]
async fn failed_call_logs_only_hook_and_review_above_debug() {
    let log = logged(tracing::Level::INFO).await;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("hook=b.example.com") && lines[0].contains("uid=\"4711\""), "{log}");
}

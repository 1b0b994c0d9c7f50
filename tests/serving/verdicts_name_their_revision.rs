//! Every verdict says which state of the configuration decided it, and the audit record how old that was.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{
    gate::{ask, document, gate, hook, revision},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{live::Current, review::Reasons, telemetry::Audit};
use serde_json::Value;

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn verdict_has_the_revision_for_every_outcome() {
    let hooks = [ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await];
    let yaml = document(&[
        hook("a.example.com", &hooks[0].url(), ""),
        hook("gatepost.dev", &hooks[1].url(), "timeout: 150ms"),
    ]);
    let mut gate = Arc::into_inner(gate(&yaml, Reasons::All)).unwrap();
    let kept = Kept::default();
    gate.audit = Arc::new(Audit::to_sink(kept.clone()).unwrap());
    // A hook that bears our name and claims another revision.
    let lie = [("revision".to_owned(), "9".to_owned())].into();
    let lying = gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse {
        uid: Some("1".into()),
        allowed: Some(true),
        audit_annotations: lie,
        ..Default::default()
    };
    for (script, allowed) in
        [(Script::Respond(lying), true), (Script::Deny("no"), false), (Script::Hang, false), (Script::Allow, true)]
    {
        hooks[1].set(script);
        let verdict = ask(&gate, create_pod("1", 100)).await;
        assert_eq!((verdict.allowed(), verdict.audit_annotations), (allowed, vec![revision()]));
    }
    let now = Instant::now();
    let stale = Current::new(now.checked_sub(Duration::from_secs(60)).unwrap());
    stale.publish(gate.current.load());
    stale.freshness().stamp_awake(now.checked_sub(Duration::from_secs(6)).unwrap());
    gate.current = Arc::new(stale);
    let verdict = ask(&gate, create_pod("1", 100)).await;
    assert_eq!((verdict.allowed(), verdict.audit_annotations), (false, vec![revision()]), "refused unasked");

    gate.current = Arc::new(Current::new(now));
    assert!(ask(&gate, create_pod("1", 100)).await.audit_annotations.is_empty(), "nothing was ever read");

    gate.audit.close();
    let lines = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked = |line: &Value| -> Vec<(String, String, Option<String>)> {
        let text = |hook: &Value, key: &str| hook[key].as_str().map(str::to_owned);
        let hooks = line["hooks"].as_array().unwrap().iter();
        hooks.map(|hook| (text(hook, "hook").unwrap(), text(hook, "outcome").unwrap(), text(hook, "failure"))).collect()
    };
    let outcomes = [("allowed", None), ("denied", None), ("failed_closed", Some("timeout")), ("allowed", None)];
    for (line, (outcome, failure)) in lines.iter().zip(outcomes) {
        let both = [("a.example.com", "allowed", None), ("gatepost.dev", outcome, failure)];
        let both = both.map(|(hook, outcome, why)| (hook.to_owned(), outcome.to_owned(), why.map(str::to_owned)));
        assert_eq!(asked(line), both, "in the order of the configuration: {line}");
    }
    assert!(lines[4..].iter().all(|line| asked(line).is_empty()), "nobody was asked: {lines:?}");
    let age = |line: &Value| line.get("config_age_ms").map(|age| age.as_u64().unwrap());
    assert_eq!(lines.len(), 6);
    assert!(lines[..5].iter().all(|line| line["revision"] == "1"), "{lines:?}");
    assert!(lines[..4].iter().all(|line| age(line).unwrap() < 5000), "{lines:?}");
    assert!(age(&lines[4]).unwrap() >= 6000, "{:?}", lines[4]);
    assert_eq!(age(&lines[5]), None);
}

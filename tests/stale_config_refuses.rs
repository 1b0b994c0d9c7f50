//! A configuration that was not read for five seconds refuses every request; the first good read ends that.

mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost::{
    admit::{Gate, Reasons},
    live::{Current, current::STALE_AFTER},
    telemetry::{Audit, Metrics},
};
use support::{
    gate::{ask, document, gate, hook},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};

/// The same generation, last read at that time.
fn read_at(gate: &Gate, started: Option<Instant>) -> Gate {
    let now = Instant::now();
    let current = Current::new(now.checked_sub(Duration::from_secs(60)).unwrap_or(now));
    current.publish(gate.current.load());
    if let Some(started) = started {
        current.stamp(started);
    }
    let (metrics, audit) = (Arc::new(Metrics::new(1)), Arc::new(Audit::off()));
    Gate { current: Arc::new(current), metrics, audit, reasons: Reasons::First, namespaces: None }
}

#[tokio::test]
async fn a_stale_configuration_refuses_and_asks_nobody() {
    let a = ScriptedHook::start(Script::Allow).await;
    let gate = gate(&document(&[hook("a.example.com", &a.url(), "failurePolicy: Ignore")]), Reasons::First);
    for stale in [read_at(&gate, None), read_at(&gate, Instant::now().checked_sub(STALE_AFTER))] {
        let before = a.seen().len();
        let refusal = ask(&stale, create_pod("1", 100)).await.refusal.expect("refused");
        assert_eq!((refusal.code, &*refusal.reason), (503, "LoadingConfiguration"), "{refusal:?}");
        assert_eq!(refusal.retry_after_seconds, 1);
        assert_eq!(a.seen().len(), before, "nobody was asked");

        stale.current.stamp(Instant::now());
        assert!(ask(&stale, create_pod("2", 100)).await.allowed(), "the first good read ends it");
    }
}

#[tokio::test]
async fn a_configuration_without_hooks_is_no_less_stale() {
    let gate = read_at(&gate(&document(&["  []\n".to_owned()]), Reasons::First), None);
    assert!(!ask(&gate, create_pod("1", 100)).await.allowed());
}

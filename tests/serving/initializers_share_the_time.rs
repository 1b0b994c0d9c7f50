//! One initializer that hangs uses up its own share of a request's time, and not that of those behind it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use gatepost::review::{AdmissionDeps, Caller, decide};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_wire::{
    inbound::view,
    pb::gatepost::v1::{Done, initializer_answer::Outcome},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    front,
    initializers_attach::{Instance, TOKEN, configured, serving},
    support::{
        gate::caller,
        reviews::{create_pod, message},
    },
};

async fn create(gate: &AdmissionDeps, within: Duration) -> Verdict {
    let review = view(Rope::new([message(create_pod("u", 0))])).unwrap();
    decide(gate, &review, &Caller { phase: Phase::Mutate, ..caller(within) }).await
}

fn labels(key: &str) -> Outcome {
    let patch = json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": "x"}]);
    Outcome::Done(Done { patch: patch.to_string().into(), add: Vec::new() })
}

async fn attached(address: std::net::SocketAddr, name: &str) -> Instance {
    Instance::claim_over(&front::caller(address).await, name, TOKEN).await.unwrap()
}

#[tokio::test]
async fn one_that_hangs_is_passed_over_and_those_behind_it_act() {
    let gate = configured(
        "  - {name: hangs.example.com, @TOKEN}\n  - {name: adds.example.com, builtIn: {labels: {b: x}}}\n  \
         - {name: must.example.com, failurePolicy: Fail, @TOKEN}\n",
    );
    let sidecar = serving(&gate).await;
    let _hangs = attached(sidecar.address, "hangs.example.com").await;
    let mut must = attached(sidecar.address, "must.example.com").await;
    let acting = async {
        let task = must.task().await;
        assert!(task.milliseconds > 300, "an equal share of what was there: {}", task.milliseconds);
        must.answer(task.task, 1, labels("c"));
    };
    let (verdict, ()) = tokio::join!(create(&gate, Duration::from_secs(1)), acting);
    assert_eq!(verdict.refusal, None);
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains(r#""b""#) && patch.contains(r#""c""#), "{patch}");
    assert!(verdict.warnings[0].starts_with("initializer \"hangs.example.com\" did not act"), "{:?}", verdict.warnings);
    let turns = |name: &str, outcome: &str| {
        sidecar.metric(&format!(
            "gatepost_initializer_runs_total{{initializer=\"{name}.example.com\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((turns("hangs", "failed_open"), turns("adds", "changed"), turns("must", "changed")), (1.0, 1.0, 1.0));
}

#[tokio::test]
async fn one_that_left_the_next_no_time_is_blamed_for_that() {
    let gate = configured(
        "  - {name: slow.example.com, failurePolicy: Fail, @TOKEN}\n  \
         - {name: next.example.com, failurePolicy: Fail, @TOKEN}\n",
    );
    let sidecar = serving(&gate).await;
    let mut slow = attached(sidecar.address, "slow.example.com").await;
    let _next = attached(sidecar.address, "next.example.com").await;
    let acting = async {
        let task = slow.task().await;
        // It is slow.
        sleep(Duration::from_millis(1400)).await;
        slow.answer(task.task, 1, labels("a"));
    };
    let (verdict, ()) = tokio::join!(create(&gate, Duration::from_secs(2)), acting);
    let refusal = verdict.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.causes[0].field), (504, "slow.example.com"), "{refusal:?}");
    assert!(refusal.message.contains("\"next.example.com\"") && refusal.message.contains("\"slow.example.com\""));
}

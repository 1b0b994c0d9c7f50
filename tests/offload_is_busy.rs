//! While all turns for work beside the workers are taken, what has arrived in time still counts.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

mod support;

use std::{
    sync::mpsc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use gatepost::review::Reasons;
use gatepost_api::Verdict;
use gatepost_base::{
    memory::{MemoryBudget, Purpose},
    offload::{self, OFFLOAD_THRESHOLD},
};
use gatepost_initializers::hub::{Contribution, ToInstance};
use serde_json::json;
use support::{
    gate::{ask_within, document, gate},
    http_hook::{HttpHook, HttpScript},
    mutating::{LONG, entry},
    reviews::create_pod,
};
use tokio::{sync::Mutex, time::timeout};

/// The turns are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// All turns, until this is dropped.
struct Turns {
    _ends: Vec<mpsc::Sender<()>>,
}

impl Turns {
    async fn take() -> Self {
        let turns = available_parallelism().map_or(2, |cores| cores.get().max(2));
        let (taken, mut all) = tokio::sync::mpsc::channel(turns);
        let take = |_| {
            let ((end, ended), taken) = (mpsc::channel(), taken.clone());
            tokio::spawn(offload::run(OFFLOAD_THRESHOLD, move || {
                drop(taken);
                let _ = ended.recv();
            }));
            end
        };
        let ends = (0..turns).map(take).collect();
        drop(taken);
        let none: Option<()> = all.recv().await;
        assert_eq!(none, None, "each has begun");
        Self { _ends: ends }
    }
}

/// Verdict on a request while a large answer of a hook with a timeout of a second waits to be read for longer than
/// that.
async fn answered_late(hook_type: &str, response: serde_json::Value) -> Verdict {
    let _alone = ALONE.lock().await;
    let hook = HttpHook::plain(HttpScript::Respond(response)).await;
    let more = "failurePolicy: Ignore\ntimeout: 1s\nsideEffects: None";
    let gate = gate(&document(&[entry("h", hook_type, &hook, more)]), Reasons::First);
    let turns = Turns::take().await;
    let asking = tokio::spawn(async move { ask_within(&gate, create_pod("u", 0), LONG).await });
    tokio::pin!(asking);
    assert!(timeout(Duration::from_secs(2), &mut asking).await.is_err(), "the answer is there and nobody has read it");
    assert_eq!(hook.seen().len(), 1);
    drop(turns);
    asking.await.unwrap()
}

fn long() -> String {
    "x".repeat(OFFLOAD_THRESHOLD)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_that_came_in_time_is_a_no() {
    for hook_type in ["Validating", "Mutating"] {
        let verdict = answered_late(hook_type, json!({"allowed": false, "status": {"message": long()}})).await;
        assert!(verdict.refusal.expect("it said no").message.contains("denied the request: xxx"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_object_passes_if_no_initializer_must_act() {
    let _alone = ALONE.lock().await;
    let configured = |policy: &str| {
        let initializers = format!(
            "resourceInitializers:\n- resource: pods\n  initializers:\n  - {{name: a.example.com, failurePolicy: \
             {policy}, builtIn: {{labels: {{a: x}}}}}}\n"
        );
        gate(&(document(&[]) + &initializers), Reasons::First)
    };
    let (open, closed) = (configured("Ignore"), configured("Fail"));
    let turns = Turns::take().await;
    let within =
        |gate| async move { ask_within(gate, create_pod("u", OFFLOAD_THRESHOLD), Duration::from_millis(500)).await };
    let (open, closed) = tokio::join!(within(&*open), within(&*closed));
    drop(turns);
    assert_eq!((open.refusal, open.patch), (None, None));
    assert!(open.warnings[0].starts_with("initializer \"a.example.com\" did not act within"), "{:?}", open.warnings);
    assert_eq!(closed.refusal.expect("it must act").code, 504);
}

/// A small patch of a process may copy megabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_copies_waits_for_a_turn() {
    const COPY: &[u8] = br#"[{"op":"copy","from":"/metadata","path":"/copy"}]"#;
    let _alone = ALONE.lock().await;
    let gate = gate(
        &(document(&[])
            + &format!(
                "resourceInitializers:\n- resource: pods\n  initializers:\n  - {{name: a.example.com, failurePolicy: \
                 Ignore, attach: {{tokenSha256: ['{}']}}}}\n",
                "0a".repeat(32)
            )),
        Reasons::First,
    );
    let mut attached = gate.current.hub().attach(&"a.example.com".into(), 1, Instant::now()).expect("it is free");
    let answering = tokio::spawn(async move {
        while let Some(message) = attached.recv().await {
            let ToInstance::Task { task, attempt, .. } = message else { continue };
            let made = Contribution { patch: Some(COPY.into()), adds: Vec::new() };
            attached.answer(task, attempt, Ok(made), MemoryBudget::unlimited().empty(Purpose::Answer));
        }
    });
    assert!(ask_within(&gate, create_pod("u", 0), LONG).await.patch.is_some(), "with turns it is applied");
    let turns = Turns::take().await;
    let verdict = ask_within(&gate, create_pod("v", 0), Duration::from_millis(500)).await;
    drop(turns);
    assert_eq!((verdict.refusal, verdict.patch), (None, None));
    assert!(
        verdict.warnings[0].starts_with("initializer \"a.example.com\" did not act within"),
        "{:?}",
        verdict.warnings
    );
    answering.abort();
}

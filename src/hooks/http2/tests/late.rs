//! Calls that run out of time.

use std::time::Duration;

use super::*;
use crate::hooks::http2::testing::call;
use gatepost_base::clock::now;
use gatepost_http2_client::frame::{code, flag, kind, setting};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn call_is_reset_at_its_own_deadline() {
    let mut scene = connected(1 << 20, 1 << 20, &[(setting::MAX_CONCURRENT_STREAMS, 1)]).await;
    let began = now();
    // All of one review: its responses are not closed before the last has ended.
    for (tag, time) in [(0, SECOND), (1, 3 * SECOND), (2, 3 * SECOND)] {
        scene.submit(call(&scene.responses, tag, body(10), time));
    }
    assert_eq!(scene.hook.call().await, 1, "it never answers that");
    let (reset, payload) = scene.hook.next().await.expect("a reset");
    assert_eq!((reset.kind, reset.stream, payload), (kind::RST_STREAM, 1, code::CANCEL.to_be_bytes().to_vec()));
    assert!(now() - began < 2 * SECOND, "{:?}", now() - began);
    for stream in [3, 5] {
        assert_eq!(scene.hook.call().await, stream);
        scene.hook.answer(stream, b"yes").await;
        assert!(scene.arrived().await.1.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_is_not_sent() {
    let mut scene = connected(1 << 20, 1 << 20, &[(setting::MAX_CONCURRENT_STREAMS, 1)]).await;
    scene.submit(call(&scene.responses, 0, body(10), 2 * SECOND));
    scene.submit(call(&scene.responses, 1, body(11), SECOND));
    scene.submit(call(&scene.responses, 2, body(12), 3 * SECOND));
    assert_eq!(scene.hook.call().await, 1);
    assert_eq!(scene.hook.next().await.expect("a reset").0.kind, kind::RST_STREAM);
    assert_eq!(scene.hook.next().await.expect("headers").0.stream, 3);
    let (data, _) = scene.hook.next().await.expect("data");
    assert_eq!((data.len, data.has(flag::END_STREAM)), (12, true), "the one before had no time left");
}

#[tokio::test(start_paused = true)]
async fn abandoned_calls_are_reset_at_once() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    let other = Arc::new(Responses::default());
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.submit(call(&other, 1, body(10), SECOND));
    assert_eq!((scene.hook.call().await, scene.hook.call().await), (1, 3));
    other.close();
    scene.commands.send(Command::CancelAbandoned).expect("driven");
    let (reset, _) = scene.hook.next().await.expect("a reset");
    assert_eq!((reset.kind, reset.stream), (kind::RST_STREAM, 3));
    scene.hook.answer(1, b"yes").await;
    assert!(scene.arrived().await.1.is_ok(), "the others are unharmed");
}

#[tokio::test(start_paused = true)]
async fn an_answer_beyond_the_budget_fails_its_call_only() {
    let mut scene = connected(1 << 20, 160 << 10, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    scene.hook.answer(1, &body(100 << 10)).await;
    assert_eq!(scene.arrived().await.1, Err(CallFailure::Overloaded));
    assert_eq!((scene.hook.next().await.expect("a reset").0.kind, scene.budget.held()), (kind::RST_STREAM, 0));
    scene.submit(call(&scene.responses, 1, body(10), SECOND));
    assert_eq!(scene.hook.call().await, 3);
    scene.hook.answer(3, &body(30 << 10)).await;
    let answer = scene.arrived().await.1.expect("an answer");
    assert!(scene.budget.held() >= 30 << 10, "for as long as the answer is held");
    drop(answer);
    assert_eq!(scene.budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_a_large_answer_is_read() {
    let mut scene = connected(2 << 20, 64 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    // All of it lies there before any of it is read.
    scene.hook.answer(1, &body(900 << 10)).await;
    let responses = Arc::clone(&scene.responses);
    let arrival = tokio::spawn(async move { responses.take().await });
    let mut arbiter = 0;
    while !arrival.is_finished() {
        tokio::task::yield_now().await;
        arbiter += 1;
    }
    assert!(arrival.await.expect("no panic")[0].1.is_ok());
    assert!(arbiter >= 4, "{arbiter}");
}

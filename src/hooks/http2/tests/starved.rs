//! Hooks whose flow control leaves no room for calls.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::*;
use crate::hooks::http2::testing::call;
use gatepost_http2_client::frame::{DEFAULT_WINDOW, flag, kind, setting};

const SECOND: Duration = Duration::from_secs(1);
const NO_WINDOW: (u16, u32) = (setting::INITIAL_WINDOW_SIZE, 0);
const NO_STREAMS: (u16, u32) = (setting::MAX_CONCURRENT_STREAMS, 0);

/// Uses up the connection's window with calls that the hook answers without giving room back.
async fn use_up(scene: &mut Scene) {
    let mut left = DEFAULT_WINDOW as usize;
    while left > 0 {
        let len = left.min(7 << 10);
        scene.submit(call(&scene.responses, 0, body(len), SECOND));
        let stream = scene.hook.call().await;
        scene.hook.answer(stream, b"yes").await;
        assert!(scene.arrived().await.1.is_ok());
        left -= len;
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_window_closes_connection_after_two_calls_and_3s() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    use_up(&mut scene).await;
    for tag in 0..3 {
        scene.submit(call(&scene.responses, tag, body(7 << 10), SECOND));
        sleep(SECOND).await;
    }
    let ended = timeout(SECOND, scene.ended).await.expect("it is left").expect("no panic");
    assert_eq!(ended.why.as_deref(), Some("the hook gives no room for calls on this connection"));
    assert!(ended.starved && ended.answered && ended.draining.is_some());
}

#[tokio::test(start_paused = true)]
async fn exhausted_window_closes_connection_after_10s_of_one_call() {
    for settings in [NO_WINDOW, NO_STREAMS] {
        let scene = connected(1 << 20, 1 << 20, &[settings]).await;
        scene.submit(call(&scene.responses, 0, body(10), 60 * SECOND));
        sleep(9 * SECOND).await;
        assert!(!scene.ended.is_finished(), "{settings:?}");
        let ended = timeout(2 * SECOND, scene.ended).await.expect("it is left").expect("no panic");
        assert!(ended.starved && ended.draining.is_some(), "{settings:?}");
        assert_eq!(ended.unsent.len(), usize::from(settings == NO_STREAMS), "a call that has begun stays");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_on_a_starved_connection_are_returned_unsent() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    use_up(&mut scene).await;
    scene.submit(call(&scene.responses, 1, body(10), SECOND));
    sleep(60 * SECOND).await;
    assert!(!scene.ended.is_finished(), "nothing waits");
    scene.submit(call(&scene.responses, 2, body(10), SECOND));
    let ended = timeout(SECOND / 2, scene.ended).await.expect("it is left").expect("no panic");
    assert_eq!(ended.unsent.iter().map(|call| call.tag).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn occasional_window_updates_keep_the_connection() {
    let mut scene = connected(1 << 20, 1 << 20, &[NO_WINDOW]).await;
    for tag in 0..5 {
        // The calls behind these end without a byte sent.
        for (tag, time) in [(tag, 60), (tag, 1), (tag, 1)] {
            scene.submit(call(&scene.responses, tag, body(20), time * SECOND));
        }
        let (first, _) = scene.hook.next().await.expect("a call");
        assert_eq!(first.kind, kind::HEADERS);
        for _ in 0..2 {
            sleep(2 * SECOND).await;
            scene.hook.send(kind::WINDOW_UPDATE, 0, first.stream, &10_u32.to_be_bytes()).await;
        }
        loop {
            let (head, _) = scene.hook.next().await.expect("the call's content");
            if head.kind == kind::DATA && head.has(flag::END_STREAM) {
                break;
            }
        }
        scene.hook.answer(first.stream, b"yes").await;
        assert!(scene.arrived().await.1.is_ok());
    }
    assert!(!scene.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_busy_hook_keeps_its_connection() {
    let mut scene = connected(1 << 20, 1 << 20, &[(setting::MAX_CONCURRENT_STREAMS, 1)]).await;
    for tag in 0..3 {
        scene.submit(call(&scene.responses, tag, body(10), 60 * SECOND));
    }
    for _ in 0..3 {
        let stream = scene.hook.call().await;
        sleep(15 * SECOND).await;
        scene.hook.answer(stream, b"yes").await;
        assert!(scene.arrived().await.1.is_ok());
    }
    assert!(!scene.ended.is_finished());
}

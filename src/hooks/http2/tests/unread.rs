//! Hooks that do not read.

use std::time::Duration;

use tokio::{io::AsyncReadExt, time::sleep};

use super::*;
use crate::hooks::http2::testing::call;
use gatepost_http2_client::frame::{DEFAULT_MAX_FRAME, HEAD, kind, setting};

const MILLI: Duration = Duration::from_millis(1);
/// The hook's windows are as large as can be: only the socket holds us up.
const WIDE: (u16, u32) = (setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1);

/// A body that knows how many hold it.
fn tracked(len: usize) -> (Arc<Vec<u8>>, Bytes) {
    struct Tracked(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Tracked {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let scene = Arc::new(vec![b'x'; len]);
    (Arc::clone(&scene), Bytes::from_owner(Tracked(scene)))
}

#[tokio::test(start_paused = true)]
async fn unread_bytes_neither_grow_nor_hold_reviews() {
    let mut scene = connected(1024, 1 << 20, &[WIDE]).await;
    let mut bodies = Vec::new();
    for tag in 0..5_000 {
        let (body, bytes) = tracked(30 << 10);
        bodies.push(body);
        scene.submit(call(&scene.responses, tag, bytes, MILLI));
        if tag % 5 == 0 {
            sleep(MILLI).await;
        }
    }
    sleep(100 * MILLI).await;
    assert_eq!(bodies.iter().filter(|body| Arc::strong_count(body) > 1).count(), 0, "no review is held");
    assert_eq!(Arc::strong_count(&scene.responses), 1, "no call is held");
    let queued = scene.budget.held();
    assert!(queued > 0 && queued <= DEFAULT_MAX_FRAME, "the rest of the frame that was begun: {queued}");
    drop(scene.commands);
    let mut rest = Vec::new();
    scene.hook.0.read_to_end(&mut rest).await.expect("read");
    assert!(rest.len() < BATCH, "{}", rest.len());
    assert_eq!(scene.ended.await.expect("no panic").why, None);
    assert_eq!(scene.budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_charged_for_unread_bytes_only() {
    let mut scene = connected(1024, 1 << 20, &[WIDE]).await;
    scene.hook.send(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).await;
    let mut most = 0;
    for tick in 0..500 {
        // More is asked than it reads, so that something is always queued, and a frame begun.
        for tag in [2 * tick, 2 * tick + 1] {
            scene.submit(call(&scene.responses, tag, body(12_000), 25 * MILLI));
        }
        scene.hook.0.read_exact(&mut [0; 12_100]).await.expect("read");
        sleep(10 * MILLI).await;
        most = most.max(scene.budget.held());
    }
    assert!(most > 0 && most <= DEFAULT_MAX_FRAME, "at most the rest of one frame: {most}");
}

#[tokio::test(start_paused = true)]
async fn unsent_calls_are_withdrawn_without_a_reset() {
    let mut scene = connected(16, 1 << 20, &[WIDE]).await;
    // The first call fills the hook's header table.
    scene.submit(call(&scene.responses, 0, body(10), 1000 * MILLI));
    scene.hook.call().await;
    scene.hook.answer(1, b"yes").await;
    assert!(scene.arrived().await.1.is_ok());
    // These begin together; not even the first one's head fits the pipe.
    scene.submit(call(&scene.responses, 1, body(10 << 10), 1000 * MILLI));
    scene.submit(call(&scene.responses, 2, body(20), MILLI));
    scene.submit(call(&scene.responses, 3, body(30), MILLI));
    sleep(10 * MILLI).await;
    scene.submit(call(&scene.responses, 4, body(40), 1000 * MILLI));
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let (head, payload) = scene.hook.next().await.expect("frames");
        if head.kind == kind::HEADERS {
            assert!(payload.len() < 40, "the hook's table is used: {payload:x?}");
        }
        seen.push((head.kind, head.stream, head.len));
    }
    let [headers, data] = [seen[0], seen[1]];
    assert_eq!((headers.0, headers.1, data), (kind::HEADERS, 3, (kind::DATA, 3, 10 << 10)));
    assert_eq!((seen[2].0, seen[2].1, seen[3]), (kind::HEADERS, 9, (kind::DATA, 9, 40)), "no HEADERS and no reset");
}

#[tokio::test(start_paused = true)]
async fn a_begun_frame_is_finished_before_its_call_is_reset() {
    let mut scene = connected(1024, 1 << 20, &[WIDE]).await;
    scene.submit(call(&scene.responses, 0, body(40 << 10), MILLI));
    sleep(10 * MILLI).await;
    let mut seen = Vec::new();
    while let Some((head, _)) = scene.hook.next().await {
        seen.push((head.kind, head.len));
        if head.kind == kind::RST_STREAM {
            break;
        }
    }
    assert_eq!(seen[1..], [(kind::DATA, DEFAULT_MAX_FRAME), (kind::RST_STREAM, 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_write_progress_is_closed() {
    let scene = connected(1024, 1 << 20, &[WIDE]).await;
    scene.submit(call(&scene.responses, 0, body(40 << 10), Duration::from_secs(30)));
    assert!(scene.failure().await.contains("has taken nothing of what it was sent for 10 s"));
    assert!(scene.ended.await.expect("no panic").why.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_reads_slowly_keeps_its_connection() {
    let mut scene = connected(1024, 1 << 20, &[WIDE]).await;
    scene.submit(call(&scene.responses, 0, body(20 << 10), Duration::from_secs(3000)));
    // The pipe is emptied every nine seconds.
    let mut left = 20 * 1024 + HEAD;
    while left > 0 {
        sleep(Duration::from_secs(9)).await;
        let n = scene.hook.0.read(&mut [0; 1024]).await.expect("read");
        left = left.saturating_sub(n);
    }
    scene.hook.answer(1, b"yes").await;
    assert!(scene.arrived().await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn unread_bytes_beyond_the_budget_end_the_connection() {
    let scene = connected(1024, 100, &[WIDE]).await;
    scene.submit(call(&scene.responses, 0, body(40 << 10), MILLI));
    assert!(scene.ended.await.expect("no panic").why.expect("lost").contains("no memory budget"));
    assert_eq!(scene.budget.held(), 0);
}

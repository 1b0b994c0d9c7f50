//! Bounds on the time for which callers may hold resources.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::{Duration, Instant, timeout},
};

use crate::front::{
    accept::client::Identity,
    testing::{connect, front, refused, serve, serve_admitted},
};

const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Xyz"},"resource":{"group":"","version":"v1","resource":"xyzs"},"operation":"CREATE"}}"#;

fn posted(length: usize, body: &str) -> String {
    format!(
        "POST /validate?timeout=4s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test(start_paused = true)]
async fn http1_unread_verdict_ends_at_its_deadline() {
    let front = front(64 << 20);
    // Room for less than a verdict.
    let (mut io, theirs) = duplex(64);
    let (_life, serving) = serve(&front, theirs);
    io.write_all(posted(REVIEW.len(), REVIEW).as_bytes()).await.expect("written");
    let began = Instant::now();
    timeout(Duration::from_secs(30), serving).await.expect("ends").expect("joined");
    assert!((3..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(refused(&front, "unread"), 1.0);
    assert_eq!(front.inflight.budget().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn http1_eviction_waits_for_the_verdict() {
    let front = front(64 << 20);
    // Room for less than a verdict.
    let (mut io, theirs) = duplex(64);
    let now = Instant::now().into_std();
    let admitted = front.clients.admit(Identity::Loopback, now).expect("room");
    let session = Arc::clone(&admitted.session);
    let (_life, serving) = serve_admitted(&front, theirs, admitted);
    io.write_all(posted(REVIEW.len(), REVIEW).as_bytes()).await.expect("written");
    while session.unsent.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(session.calls(), 0);
    session.evict();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.expect("an end");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.trim_end().ends_with('}'), "{answer}");
    serving.await.expect("joined");
    assert_eq!(refused(&front, "evicted"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn http1_slow_review_reserves_nothing_and_is_refused() {
    let front = front(64 << 20);
    let (mut io, _life, _serving) = connect(&front);
    let head = posted(16 << 20, "").replace("timeout=4s", "timeout=30s");
    io.write_all(head.as_bytes()).await.expect("written");
    let began = Instant::now();
    let mut answer = vec![0; 4096];
    let read = io.read(&mut answer).await.expect("answered");
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("came too slowly: 0 bytes within 5s"), "{answer}");
    assert_eq!((began.elapsed().as_secs(), refused(&front, "stalled")), (5, 1.0));
}

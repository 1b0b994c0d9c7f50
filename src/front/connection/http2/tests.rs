//! Bounds on the time for which callers may hold resources.

use bytes::Bytes;
use h2::client::{self, SendRequest};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
    time::sleep,
};

use super::*;
use crate::front::{
    accept::client::Identity,
    testing::{MESSAGE, connect, front, metric, refused, review, serve_admitted},
};

const BUDGET: usize = 64 << 20;
/// Connection preface of an HTTP/2 client, with empty SETTINGS.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A client's end, and the task that drives its connection.
struct Caller {
    send: SendRequest<Bytes>,
    driven: JoinHandle<Result<(), h2::Error>>,
}

async fn caller(io: tokio::io::DuplexStream, window: u32) -> Caller {
    let builder = client::Builder::new().initial_window_size(window).handshake(io);
    let (send, connection) = builder.await.expect("handshake");
    Caller { send, driven: tokio::spawn(connection) }
}

/// Lets everything that can happen now happen.
async fn settled() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn http2_goaway_comes_after_the_idle_timeout_of_clients() {
    let front = front(BUDGET);
    let (io, _life, serving) = connect(&front);
    let mut caller = caller(io, 65_535).await;
    let (response, mut stream) = caller.send.send_request(review(), false).expect("sent");
    stream.send_data(MESSAGE.into(), true).expect("sent");
    assert_eq!(response.await.expect("answered").status(), 200);
    let began = Instant::now();
    timeout(Duration::from_secs(200), serving).await.expect("ends").expect("joined");
    assert!((90..150).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(caller.driven.await.expect("joined").is_ok(), "no reset");
}

#[tokio::test(start_paused = true)]
async fn http2_peer_that_answers_no_ping_is_dropped() {
    let front = front(BUDGET);
    let (mut io, _life, serving) = connect(&front);
    io.write_all(GREETING).await.expect("written");
    let began = Instant::now();
    let mut read = Vec::new();
    io.read_to_end(&mut read).await.expect("an end");
    serving.await.expect("joined");
    assert_eq!(began.elapsed().as_secs(), 49, "asked after 30 s, and waited for 20");
    assert_eq!(refused(&front, "unanswered"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn http2_unread_verdict_ends_at_its_deadline() {
    let front = front(BUDGET);
    let (io, _life, serving) = connect(&front);
    let mut caller = caller(io, 0).await;
    let mut open = Vec::new();
    let mut request = review();
    request.headers_mut().insert("grpc-timeout", "3S".parse().expect("a value"));
    for _ in 0..100 {
        let (response, mut stream) = caller.send.send_request(request.clone(), false).expect("sent");
        stream.send_data(MESSAGE.into(), true).expect("sent");
        open.push(response.await.expect("answered"));
    }
    let held = metric(&front, "gatepost_inflight_bytes{purpose=\"verdict\"}");
    assert!(held > 100.0 * 1024.0, "{held}");
    let began = Instant::now();
    timeout(Duration::from_secs(20), serving).await.expect("ends").expect("joined");
    assert!((3..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(refused(&front, "unread"), 1.0);
    assert_eq!(front.inflight.budget().held(), 0);
    assert!(caller.driven.await.expect("joined").is_err(), "it ends with an error");
}

#[tokio::test(start_paused = true)]
async fn http2_slow_review_reserves_nothing_and_is_refused() {
    let front = front(BUDGET);
    let (io, _life, _serving) = connect(&front);
    let mut caller = caller(io, 65_535).await;
    let mut stalled = Vec::new();
    for _ in 0..32 {
        let (response, mut stream) = caller.send.send_request(review(), false).expect("sent");
        stream.send_data(Bytes::from_static(b"\0\x01\0\0\0"), false).expect("sent");
        stalled.push((response, stream));
    }
    settled().await;
    assert_eq!(front.inflight.requests(), 32);
    assert!(front.inflight.bytes() < 32 * (17 << 10), "{}", front.inflight.bytes());
    // One that comes at twice the rate that is expected goes on.
    let (steady, mut stream) = caller.send.send_request(review(), false).expect("sent");
    stream.send_data(Bytes::from_static(b"\0\0\x10\0\0"), false).expect("sent");
    let (began, steady) = (Instant::now(), tokio::spawn(steady));
    while began.elapsed() < Duration::from_secs(20) {
        stream.send_data(Bytes::from(vec![0; 8 << 10]), false).expect("sent");
        sleep(Duration::from_millis(250)).await;
    }
    for (response, _) in stalled {
        let headers = response.await.expect("answered").headers().clone();
        assert_eq!(headers["grpc-status"], "4");
        let said = headers["grpc-message"].to_str().expect("text");
        assert!(said.starts_with("the message came too slowly: 5 bytes within 5s"), "{said}");
    }
    assert_eq!(refused(&front, "stalled"), 32.0);
    assert!(!steady.is_finished() && front.inflight.requests() == 1);
}

#[tokio::test(start_paused = true)]
async fn http2_flood_of_pings_ends_the_connection() {
    let front = front(BUDGET);
    let (mut io, _life, serving) = connect(&front);
    io.write_all(GREETING).await.expect("written");
    let pings = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(100);
    let mut dropped = vec![0; 1 << 16];
    let flooding = async {
        while io.write_all(&pings).await.is_ok() {
            // Answers are read, or h2 itself would stop.
            let _ = timeout(Duration::from_millis(1), io.read(&mut dropped)).await;
        }
    };
    timeout(Duration::from_secs(60), flooding).await.expect("cut");
    serving.await.expect("joined");
    assert_eq!(refused(&front, "flood"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn http2_idle_connection_is_evicted_for_a_new_one() {
    let front = front(BUDGET);
    let limit = front.limits.connections;
    let mut idle = Vec::new();
    for _ in 0..limit {
        idle.push(connect(&front));
    }
    for (io, ..) in &mut idle {
        io.write_all(GREETING).await.expect("written");
    }
    let (io, _life, _serving) = connect(&front);
    let mut caller = caller(io, 65_535).await;
    let (response, mut stream) = caller.send.send_request(review(), false).expect("sent");
    stream.send_data(MESSAGE.into(), true).expect("sent");
    assert_eq!(response.await.expect("answered").status(), 200);
    assert_eq!(refused(&front, "evicted"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn http2_evicted_connection_does_not_stay_for_a_watch() {
    let front = front(BUDGET);
    let (io, theirs) = tokio::io::duplex(1 << 16);
    let admitted = front.clients.admit(Identity::Loopback, Instant::now().into_std()).expect("room");
    let session = Arc::clone(&admitted.session);
    let (_life, serving) = serve_admitted(&front, theirs, admitted);
    let mut caller = caller(io, 65_535).await;
    let watches = Request::post("http://gatepost/grpc.health.v1.Health/Watch");
    let watches = watches.header("content-type", "application/grpc").body(()).expect("request");
    let (response, mut stream) = caller.send.send_request(watches, false).expect("sent");
    stream.send_data(Bytes::from_static(&[0; 5]), true).expect("sent");
    let _watched = response.await.expect("watched");
    session.evict();
    timeout(Duration::from_secs(5), serving).await.expect("ends").expect("joined");
    assert_eq!(refused(&front, "evicted"), 1.0);
}

/// HEADERS of a review, then the head of a DATA frame of `len` bytes on that stream.
fn begun(len: u32) -> Vec<u8> {
    // Literal fields without indexing: :method POST and :scheme http are indexed.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", "/validate"), (":authority", "a"), ("content-type", "application/json")] {
        block.extend([0, name.len() as u8]);
        block.extend(name.bytes());
        block.push(value.len() as u8);
        block.extend(value.bytes());
    }
    let frame = |kind: u8, flags: u8, len: u32| {
        let [_, a, b, c] = len.to_be_bytes();
        [a, b, c, kind, flags, 0, 0, 0, 1]
    };
    [GREETING, &frame(1, 4, block.len() as u32), &block, &frame(0, 1, len)].concat()
}

#[tokio::test(start_paused = true)]
async fn http2_partial_large_frame_is_held_in_the_budget() {
    let front = front(128 << 20);
    let (mut io, _life, _serving) = connect(&front);
    let (len, first) = (256 << 10, 50 << 10);
    io.write_all(&begun(len as u32)).await.expect("written");
    io.write_all(&vec![b'x'; first]).await.expect("written");
    settled().await;
    let held = front.inflight.bytes();
    assert!((first..first + (16 << 10)).contains(&held), "{held}");
    drop(io);
    settled().await;
    assert_eq!(front.inflight.bytes(), 0);
}

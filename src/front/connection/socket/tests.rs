//! First bytes that are read twice, stalled writes, and for how long and how much a connection lingers.

use std::{future::poll_fn, sync::Arc};

use tokio::{
    io::{AsyncReadExt, DuplexStream, duplex},
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::*;
use crate::front::{accept::client::Identity, testing::front};

/// A peer of a connection that lingers with "bye" on its way.
async fn lingering() -> (DuplexStream, JoinHandle<Duration>) {
    let (peer, mut ours) = duplex(1 << 16);
    ours.write_all(b"bye").await.expect("room");
    let began = Instant::now();
    let ended = tokio::spawn(async move {
        Socket::new(ours).close().await;
        began.elapsed()
    });
    (peer, ended)
}

#[tokio::test(start_paused = true)]
async fn lingering_reads_until_the_peer_has_closed_its_side() {
    let (mut peer, ended) = lingering().await;
    for _ in 0..3 {
        peer.write_all(&[0; 1000]).await.expect("it is read");
        sleep(LINGER_TIMEOUT / 4).await;
    }
    let mut read = Vec::new();
    peer.read_to_end(&mut read).await.expect("an end");
    assert_eq!(read, b"bye");
    assert!(!ended.is_finished());
    drop(peer);
    let took = ended.await.expect("joined");
    assert!(took >= LINGER_TIMEOUT * 3 / 4 && took < LINGER_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_with_its_timeout() {
    let (_peer, ended) = lingering().await;
    assert_eq!(ended.await.expect("joined").as_secs(), LINGER_TIMEOUT.as_secs());
    // A peer that takes nothing of what is on its way has no more.
    let (_peer, mut ours) = duplex(1);
    let began = Instant::now();
    poll_fn(|cx| Pin::new(&mut ours).poll_write(cx, b"b")).await.expect("room");
    Socket::new(ours).close().await;
    assert_eq!(began.elapsed().as_secs(), LINGER_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_with_its_bytes() {
    let (mut peer, ended) = lingering().await;
    let (block, mut sent) = (vec![0; 64 << 10], 0);
    while peer.write_all(&block).await.is_ok() {
        sent += block.len();
    }
    assert!((MAX_LINGER_BYTES..MAX_LINGER_BYTES + (1 << 20)).contains(&sent), "{sent}");
    assert!(ended.await.expect("joined") < LINGER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn evicted_connection_does_not_linger() {
    let (_peer, ours) = duplex(1);
    let admitted = front(1 << 20).clients.admit(Identity::Loopback, Instant::now().into_std()).expect("room");
    let session = Arc::clone(&admitted.session);
    let began = Instant::now();
    session.evict();
    timeout(LINGER_TIMEOUT, Socket::new(ours).close_unless_evicted(&session)).await.expect("at once");
    assert_eq!(began.elapsed().as_secs(), 0);
}

/// Writes these pieces and hangs up; returns the version of HTTP and the bytes that are then read.
async fn sniffed(pieces: &[&[u8]]) -> (Option<HttpVersion>, Vec<u8>) {
    let (mut theirs, ours) = duplex(3);
    let pieces: Vec<_> = pieces.iter().map(|piece| piece.to_vec()).collect();
    tokio::spawn(async move {
        for piece in pieces {
            theirs.write_all(&piece).await.expect("written");
        }
    });
    let mut socket = Socket::new(ours);
    let version = socket.sniff().await.expect("sniffed");
    let mut read = Vec::new();
    socket.read_to_end(&mut read).await.expect("read");
    (version, read)
}

#[tokio::test]
async fn sniffing_finds_http2_by_its_preface_and_loses_nothing() {
    let whole = [HTTP2_PREFACE, &b"more"[..]].concat();
    assert_eq!(sniffed(&[&whole[..5], &whole[5..]]).await, (Some(HttpVersion::Http2), whole));
    for other in ["POST /validate HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", "P", "\x16\x03\x01"] {
        assert_eq!(sniffed(&[other.as_bytes()]).await, (Some(HttpVersion::Http1), other.as_bytes().to_vec()));
    }
    assert_eq!(sniffed(&[]).await, (None, vec![]));
}

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn write_timeout_closes_a_stalled_connection() {
    let (ours, _theirs) = duplex(4);
    let mut ours = Socket::new(ours).with_write_timeout(WRITE_TIMEOUT);
    assert_eq!(ours.write_all(b"more than fits").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn write_timeout_spares_a_slow_peer() {
    let (ours, mut theirs) = duplex(4);
    let mut ours = Socket::new(ours).with_write_timeout(WRITE_TIMEOUT);
    let writing = tokio::spawn(async move { ours.write_all(&[b'x'; 40]).await });
    let mut taken = Vec::new();
    while taken.len() < 40 {
        sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
        let mut piece = [0; 4];
        let length = theirs.read(&mut piece).await.unwrap();
        taken.extend_from_slice(&piece[..length]);
    }
    writing.await.unwrap().unwrap();
}

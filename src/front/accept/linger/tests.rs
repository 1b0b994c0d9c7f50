//! For how long, and for how much, a connection lingers.

use std::{future::poll_fn, sync::Arc};

use tokio::{
    io::{AsyncReadExt, DuplexStream, duplex},
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::*;
use crate::front::{accept::identity::Identity, testing::front};

/// A peer of a connection that lingers with "bye" on its way.
async fn leaving() -> (DuplexStream, JoinHandle<Duration>) {
    let (peer, mut ours) = duplex(1 << 16);
    ours.write_all(b"bye").await.expect("room");
    let began = Instant::now();
    let ended = tokio::spawn(async move {
        linger(ours).await;
        began.elapsed()
    });
    (peer, ended)
}

#[tokio::test(start_paused = true)]
async fn a_peer_may_write_on_until_it_has_closed_its_side() {
    let (mut peer, ended) = leaving().await;
    for _ in 0..3 {
        peer.write_all(&[0; 1000]).await.expect("it is read");
        sleep(LINGER / 4).await;
    }
    let mut read = Vec::new();
    peer.read_to_end(&mut read).await.expect("an end");
    assert_eq!(read, b"bye");
    assert!(!ended.is_finished());
    drop(peer);
    let took = ended.await.expect("joined");
    assert!(took >= LINGER * 3 / 4 && took < LINGER, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stays_has_its_time_and_no_more() {
    let (_peer, ended) = leaving().await;
    assert_eq!(ended.await.expect("joined").as_secs(), LINGER.as_secs());
    // Nor does one that takes nothing of what is still to be said.
    let (_peer, mut ours) = duplex(1);
    let began = Instant::now();
    poll_fn(|cx| Pin::new(&mut ours).poll_write(cx, b"b")).await.expect("room");
    linger(ours).await;
    assert_eq!(began.elapsed().as_secs(), LINGER.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_goes_on_and_on_is_cut() {
    let (mut peer, ended) = leaving().await;
    let (block, mut sent) = (vec![0; 64 << 10], 0);
    while peer.write_all(&block).await.is_ok() {
        sent += block.len();
    }
    assert!((MOST..MOST + (1 << 20)).contains(&sent), "{sent}");
    assert!(ended.await.expect("joined") < LINGER);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_to_make_room_does_not_linger() {
    let (_peer, ours) = duplex(1);
    let admitted = front(1 << 20).clients().admit(Identity::Loopback, Instant::now().into_std()).expect("room");
    let session = Arc::clone(admitted.session());
    let began = Instant::now();
    session.evict();
    timeout(LINGER, linger_unless_evicted(ours, &session)).await.expect("at once");
    assert_eq!(began.elapsed().as_secs(), 0);
}

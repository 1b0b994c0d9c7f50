//! A shutdown takes no new calls and lets those under way end, for a bounded time.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

#[path = "support/front.rs"]
mod front;

use std::{net::SocketAddr, time::Duration};

use front::{LONG, REVIEW, ended, grpc, review, sidecar, until};
use gatepost::front::{Bound, Drained, Limits};
use tokio::{net::TcpStream, time::timeout};

#[tokio::test]
async fn a_call_under_way_is_finished_and_no_new_connection_taken() {
    let sidecar = sidecar(Limits::default()).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut rest) = caller.begin(grpc(REVIEW)).await;
    let mut message = review("1", 50_000);
    rest.send_data(message.split_to(10_000), false).expect("sent");
    until("the call is read", || sidecar.front.inflight().bytes() > 0).await;
    sidecar.shutdown.send(()).expect("serving");
    until("draining", || sidecar.current.is_draining()).await;
    rest.send_data(message, true).expect("sent");
    ended(response).await.assert_allowed("1");
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, Drained { cut: 0 });
    assert!(TcpStream::connect(sidecar.address).await.is_err(), "the socket is closed");
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut() {
    let sidecar = sidecar(Limits { drain: Duration::from_millis(50), ..Limits::default() }).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut rest) = caller.begin(grpc(REVIEW)).await;
    rest.send_data(review("1", 50_000).slice(..10_000), false).expect("sent");
    until("the call is read", || sidecar.front.inflight().bytes() > 0).await;
    sidecar.shutdown.send(()).expect("serving");
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, Drained { cut: 1 });
    assert!(timeout(LONG, response).await.expect("in time").is_err());
    let inflight = sidecar.front.inflight();
    until("its call is cancelled", || inflight.requests() == 0).await;
}

#[tokio::test]
async fn a_unix_socket_serves_the_same() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("gatepost.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("binds");
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let sidecar = front::serving(Limits::default(), nowhere, Bound::Unix(listener));
    sidecar.current.stamp(std::time::Instant::now());
    let caller = front::over(tokio::net::UnixStream::connect(&path).await.expect("connects")).await;
    caller.review("1", 100_000).await.assert_allowed("1");
}

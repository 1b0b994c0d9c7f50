//! A caller that resets its call, or hangs up, takes its hook calls with it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use crate::front::{LONG, REVIEW, before, caller, grpc, until};
use crate::support::{
    gate::{document, gate, hook},
    reviews,
    scripted_hook::{Script, ScriptedHook},
};
use crate::{front, webhook};
use bytes::Bytes;
use gatepost::{
    front::{FrontLimits, Listener},
    review::Reasons,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    time::timeout,
};

async fn sidecar(hook_url: &str) -> front::Sidecar {
    let gate = gate(&document(&[hook("slow", hook_url, "timeout: 20s\nsideEffects: None\n")]), Reasons::First);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    before(gate, FrontLimits::default(), address, Listener::Tcp(listener))
}

#[tokio::test]
async fn by_a_reset_or_by_hanging_up() {
    let hook = ScriptedHook::start(Script::Hang).await;
    let sidecar = sidecar(&hook.url()).await;
    for hangs_up in [false, true] {
        let caller = caller(sidecar.address).await;
        let message: Bytes = reviews::message(reviews::create_pod("1", 2048));
        let (response, mut stream) = caller.begin(grpc(REVIEW)).await;
        stream.send_data(message, true).expect("sent");
        timeout(LONG, hook.asked.notified()).await.expect("the hook is asked");
        if hangs_up {
            drop((caller, response, stream));
        } else {
            stream.send_reset(h2::Reason::CANCEL);
        }
        timeout(LONG, hook.cancelled.notified()).await.expect("the hook call is cancelled");
        until("nothing is in flight", || sidecar.front.inflight.requests() == 0).await;
    }
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"cancelled\"}"), 2.0);
}

#[tokio::test]
async fn over_plain_http_too() {
    let hook = ScriptedHook::start(Script::Hang).await;
    let sidecar = sidecar(&hook.url()).await;
    let review = webhook::review("1", 2048);
    let request = front::with(webhook::post("/validate"), "content-length", &review.len().to_string());
    for way in ["reset", "hang up", "hang up on HTTP/1.1"] {
        if way == "hang up on HTTP/1.1" {
            let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
            stream.write_all(&[webhook::head(&request).as_bytes(), &review].concat()).await.expect("sent");
            timeout(LONG, hook.asked.notified()).await.expect("the hook is asked");
        } else {
            let caller = caller(sidecar.address).await;
            let (_response, mut stream) = caller.begin(request.clone()).await;
            stream.send_data(review.clone(), true).expect("sent");
            timeout(LONG, hook.asked.notified()).await.expect("the hook is asked");
            if way == "reset" {
                stream.send_reset(h2::Reason::CANCEL);
            }
        }
        timeout(LONG, hook.cancelled.notified()).await.expect("the hook call is cancelled");
        until("nothing is in flight", || sidecar.front.inflight.requests() == 0).await;
    }
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"cancelled\"}"), 3.0);
}

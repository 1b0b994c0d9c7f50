//! Limits on callers of health and reflection.

use h2::{
    SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use tokio::{sync::watch, time::Instant};

use super::*;
use crate::front::{
    drain::ServerStage,
    state::Front,
    testing::{connect, front, refused},
};
use gatepost_base::memory::Purpose;

const CHECK: &str = "/grpc.health.v1.Health/Check";
const REFLECT: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// A framed message without a field: the service "".
const EMPTY: &[u8] = &[0; 5];

struct Caller {
    front: Arc<Front>,
    send: SendRequest<Bytes>,
    _life: watch::Sender<ServerStage>,
}

async fn caller() -> Caller {
    let front = front(64 << 20);
    let (io, life, _serving) = connect(&front);
    let (send, connection) = client::handshake(io).await.expect("handshake");
    tokio::spawn(connection);
    Caller { front, send, _life: life }
}

impl Caller {
    async fn begin(&mut self, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post(format!("http://gatepost{path}")).header("content-type", "application/grpc");
        let mut send = self.send.clone().ready().await.expect("ready");
        send.send_request(request.body(()).expect("request"), false).expect("sent")
    }
}

async fn status(response: ResponseFuture) -> String {
    let response = response.await.expect("answered");
    response.headers().get("grpc-status").map_or("none yet", |status| status.to_str().expect("text")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn health_and_reflection_refuse_endless_messages() {
    let mut caller = caller().await;
    for (path, most) in [(CHECK, 4 << 10), (REFLECT, 64 << 10)] {
        let (response, mut stream) = caller.begin(path).await;
        // The head of a message of 4 MiB, and a little of it again and again.
        stream.send_data(Bytes::from_static(b"\0\0\x40\0\0"), false).expect("sent");
        let mut sent = 5;
        while stream.send_data(Bytes::from(vec![0; 1000]), false).is_ok() {
            sent += 1000;
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(sent < 2 * most, "{path}: still taken after {sent} bytes");
        }
        let response = response.await.expect("answered");
        assert!(matches!(response.headers().get("grpc-status"), Some(code) if code == "8") || path == REFLECT);
    }
    assert_eq!((refused(&caller.front, "too_large"), caller.front.inflight.budget().held()), (2.0, 0));
}

#[tokio::test(start_paused = true)]
async fn health_check_ends_with_its_deadline() {
    let mut caller = caller().await;
    let (response, _stream) = caller.begin(CHECK).await;
    let began = Instant::now();
    assert_eq!(status(response).await, "4");
    assert_eq!((began.elapsed().as_secs(), refused(&caller.front, "deadline")), (30, 1.0));
    assert_eq!(caller.front.inflight.budget().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn health_check_succeeds_while_the_review_budget_is_exhausted() {
    let mut caller = caller().await;
    let budget = caller.front.inflight.budget();
    let _reviews = budget.reserve(Purpose::Review, budget.ceiling(Purpose::Review)).expect("room");
    let (response, mut stream) = caller.begin(CHECK).await;
    stream.send_data(EMPTY.into(), true).expect("sent");
    assert_eq!(status(response).await, "none yet");
}

#[tokio::test(start_paused = true)]
async fn health_watches_are_limited_and_hold_memory() {
    let mut caller = caller().await;
    let mut watches = Vec::new();
    for _ in 0..8 {
        let (response, mut stream) = caller.begin(names::HEALTH_WATCH).await;
        stream.send_data(EMPTY.into(), true).expect("sent");
        watches.push(response.await.expect("watched"));
    }
    assert_eq!(caller.front.inflight.budget().held(), 8 * AuxService::Health.memory());
    let (response, _stream) = caller.begin(CHECK).await;
    assert_eq!(status(response).await, "8");
    assert_eq!(refused(&caller.front, "client_share"), 1.0);
    // None ends by itself.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(caller.front.inflight.budget().held(), 8 * AuxService::Health.memory());
    drop(watches);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(caller.front.inflight.budget().held(), 0);
    let (response, mut stream) = caller.begin(CHECK).await;
    stream.send_data(EMPTY.into(), true).expect("sent");
    assert_eq!(response.await.expect("answered").status(), 200);
}

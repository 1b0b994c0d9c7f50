use std::{
    net::SocketAddr,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Wake, Waker},
};

use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    time::timeout,
};

use super::*;
use crate::hooks::{
    Channel, Method, Reply, Resources, Responses,
    http2::testing::{ScriptedHook, call},
};
use gatepost_api::{Endpoint, Transport, hook::Address};
use gatepost_http2_client::frame::{kind, setting};

const LONG: Duration = Duration::from_secs(20);

async fn listening() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn endpoint(at: SocketAddr) -> Endpoint {
    let address = Address::Tcp { host: at.ip().to_string().into(), port: at.port() };
    Endpoint { address, tls: None, transport: Transport::Grpc, authorization: None }
}

fn client_to(address: SocketAddr) -> WorkerClient {
    let endpoint = endpoint(address);
    let (client, task) =
        WorkerClient::new(Arc::new(Dialler::new(endpoint, None, &Resources::unlimited(), 1)), Arc::default());
    tokio::spawn(task);
    client
}

async fn accepted(listener: &TcpListener) -> ScriptedHook<TcpStream> {
    let (socket, _) = timeout(LONG, listener.accept()).await.expect("dialled in time").expect("accepted");
    ScriptedHook::greet(socket, &[]).await
}

async fn result(responses: &Responses) -> Result<Reply, CallFailure> {
    timeout(LONG, responses.take()).await.expect("settled in time").remove(0).1.map_err(|lost| lost.failure)
}

/// A waker that panics in the task that wakes it.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("as a test wants it");
    }
}

#[tokio::test]
async fn a_client_that_panics_fails_its_calls_and_is_restarted() {
    let (listener, address) = listening().await;
    let client = client_to(address);
    let responses = Arc::new(Responses::default());
    let before = reading::hook_worker_panics();
    client.submit(call(&responses, 0, Bytes::from_static(b"one"), LONG));
    let mut hook = accepted(&listener).await;
    hook.call().await;
    // The client wakes this waker when it reports that it is connected.
    let (probe, mut connected) = oneshot::channel();
    let waker = Waker::from(Arc::new(PanickingWaker));
    assert!(Pin::new(&mut connected).poll(&mut Context::from_waker(&waker)).is_pending());
    client.probe(probe);
    assert!(matches!(result(&responses).await, Err(CallFailure::Connection(_))));
    client.submit(call(&responses, 1, Bytes::from_static(b"two"), LONG));
    let mut hook = accepted(&listener).await;
    let stream = hook.call().await;
    hook.answer(stream, b"yes").await;
    assert_eq!(result(&responses).await, Ok(Reply::Grpc(Bytes::from_static(b"yes"))));
    assert!(reading::hook_worker_panics() > before, "it is counted");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_closes_connections_is_dialled_seldom() {
    let (listener, address) = listening().await;
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = dials.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, SeqCst);
            drop(ScriptedHook::greet(socket, &[]).await);
        }
    });
    let client = client_to(address);
    sleep(Duration::from_secs(60)).await;
    let dialled = dials.swap(0, SeqCst);
    // 50 ms, 100 ms and so on to 5 s; up to a quarter more or less.
    assert!((2..=24).contains(&dialled), "{dialled} dials in a minute");
    // Calls that come all the time find it soon, and do not make us dial for each.
    let responses = Arc::new(Responses::default());
    for tag in 0..1000 {
        client.submit(call(&responses, tag, Bytes::from_static(b"x"), Duration::from_millis(5)));
        sleep(Duration::from_millis(10)).await;
    }
    let dialled = dials.load(SeqCst);
    assert!((2..=45).contains(&dialled), "{dialled} dials in ten seconds with calls");
}

#[tokio::test]
async fn a_probe_beyond_every_goaway_is_sent_three_times() {
    let (listener, address) = listening().await;
    let channel = Channel::open(endpoint(address), None, &[Handle::current()]);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let hook = tokio::spawn(async move {
        loop {
            let mut hook = accepted(&listener).await;
            hook.call().await;
            counted.fetch_add(1, SeqCst);
            hook.goaway(0, 11).await;
            hook.read_to_end().await;
        }
    });
    let asked = channel.call_once(Method::Health, Bytes::from_static(b"one"), LONG).await;
    let failure = asked.expect_err("nobody took it").to_string();
    assert!(failure.ends_with("on none of 3 connections: GOAWAY ENHANCE_YOUR_CALM"), "{failure}");
    assert_eq!(sent.load(SeqCst), 3);
    hook.abort();
}

#[tokio::test]
async fn draining_connections_are_limited_and_drop_abandoned_calls() {
    let (listener, address) = listening().await;
    let client = client_to(address);
    let (first, later) = (Arc::new(Responses::default()), Arc::new(Responses::default()));
    // Each call is on a connection of its own that takes no others.
    let mut hooks = Vec::new();
    for tag in 0..10 {
        let responses = if tag < 2 { &first } else { &later };
        client.submit(call(responses, tag, Bytes::from_static(b"x"), LONG));
        let mut hook = accepted(&listener).await;
        assert_eq!(hook.call().await, 1);
        hook.goaway(1, 0).await;
        // The next call is for the next connection.
        hook.wait_until_read().await;
        hooks.push(hook);
    }
    let mut arrived = Vec::new();
    while arrived.len() < 2 {
        arrived.extend(timeout(LONG, first.take()).await.expect("given up in time"));
    }
    for (_, result) in arrived {
        let failure = result.expect_err("given up").failure.to_string();
        assert!(failure.contains("too many connections"), "{failure}");
    }
    later.close();
    client.cancel_abandoned();
    // Swept, each has no call any more, and ends.
    for hook in &mut hooks[2..] {
        timeout(LONG, hook.read_to_end()).await.expect("it ends");
    }
}

#[tokio::test]
async fn calls_move_to_a_new_connection_when_the_window_stays_used_up() {
    let (listener, address) = listening().await;
    let client = client_to(address);
    let before = reading::starved_connections();
    let responses = Arc::new(Responses::default());
    client.submit(call(&responses, 0, Bytes::from_static(b"review"), LONG));
    let (socket, _) = timeout(LONG, listener.accept()).await.expect("dialled in time").expect("accepted");
    let mut shut = ScriptedHook::greet(socket, &[(setting::INITIAL_WINDOW_SIZE, 0)]).await;
    while shut.any().await.expect("a call").0.kind != kind::HEADERS {}
    tokio::time::pause();
    sleep(Duration::from_secs(11)).await;
    tokio::time::resume();
    client.submit(call(&responses, 1, Bytes::from_static(b"review"), LONG));
    let mut open = accepted(&listener).await;
    let stream = open.call().await;
    open.answer(stream, b"yes").await;
    assert_eq!(result(&responses).await, Ok(Reply::Grpc(Bytes::from_static(b"yes"))));
    assert!(reading::starved_connections() > before, "it is counted");
}

//! A shutdown takes no new calls and lets those under way end, for a bounded time.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost::front::{DrainSummary, FrontLimits, Listener};
use gatepost_tls::ServerTls;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    front::{self, LONG, REVIEW, ended, grpc, review, sidecar, until},
    tls::{self, Authority, BOTH, client, files, put_pair},
    webhook,
};

#[tokio::test]
async fn shutdown_finishes_calls_and_takes_no_new_connection() {
    let sidecar = sidecar(FrontLimits::default()).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut rest) = caller.begin(grpc(REVIEW)).await;
    let mut message = review("1", 50_000);
    rest.send_data(message.split_to(10_000), false).expect("sent");
    until("the call is read", || sidecar.front.inflight.bytes() > 0).await;
    sidecar.shutdown.send(()).expect("serving");
    until("draining", || sidecar.health.is_stopping()).await;
    rest.send_data(message, true).expect("sent");
    ended(response).await.assert_allowed("1");
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, DrainSummary { cut: 0 });
    assert!(TcpStream::connect(sidecar.address).await.is_err(), "the socket is closed");
}

#[tokio::test]
async fn shutdown_cuts_a_call_that_does_not_end() {
    let sidecar = sidecar(FrontLimits { drain: Duration::from_millis(50), ..FrontLimits::default() }).await;
    let caller = front::caller(sidecar.address).await;
    let (response, mut rest) = caller.begin(grpc(REVIEW)).await;
    rest.send_data(review("1", 50_000).slice(..10_000), false).expect("sent");
    until("the call is read", || sidecar.front.inflight.bytes() > 0).await;
    sidecar.shutdown.send(()).expect("serving");
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, DrainSummary { cut: 1 });
    assert!(timeout(LONG, response).await.expect("in time").is_err());
    let inflight = &sidecar.front.inflight;
    until("its call is cancelled", || inflight.requests() == 0).await;
}

#[tokio::test]
async fn unix_socket_serves_until_shutdown() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("gatepost.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("binds");
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let sidecar = front::serving(FrontLimits::default(), nowhere, Listener::Unix(listener));
    sidecar.current.freshness().stamp_awake(Instant::now());
    let caller = front::over(tokio::net::UnixStream::connect(&path).await.expect("connects")).await;
    caller.review("1", 100_000).await.assert_allowed("1");
}

/// A caller's side of an HTTP/2 connection, byte by byte: h2's own closes what it has finished with.
struct Bytewise<Io>(Io);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

impl<Io: AsyncRead + AsyncWrite + Unpin> Bytewise<Io> {
    async fn begin(mut io: Io) -> Self {
        io.write_all(PREFACE).await.expect("written");
        let mut caller = Self(io);
        caller.send(SETTINGS, 0, 0, b"").await;
        caller
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).await.expect("written");
        self.0.flush().await.expect("written");
    }

    /// The head of a review, and the first byte of its message.
    async fn ask(&mut self, stream: u32, message: &[u8]) {
        // POST and http by their indexes, the others spelled out.
        let mut block = vec![0x83, 0x86];
        for (name, value) in [(":path", REVIEW), (":authority", "a"), ("content-type", "application/grpc")] {
            block.extend([&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat());
        }
        self.send(HEADERS, END_HEADERS, stream, &block).await;
        self.send(DATA, 0, stream, &message[..1]).await;
    }

    /// Kind, flags, stream and payload of the next frame; none at the end.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
            read => read.expect("no reset"),
        };
        let [a, b, c, kind, flags, s, t, u, v] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.expect("a whole frame");
        Some((kind, flags, u32::from_be_bytes([s, t, u, v]), payload))
    }

    async fn next_of(&mut self, wanted: u8) -> Vec<u8> {
        loop {
            let (kind, flags, _, payload) = self.next().await.expect("a frame");
            if kind == wanted && flags & ACK == 0 {
                return payload;
            }
        }
    }
}

/// Drains a front under a caller that writes on and reads nothing until it has.
async fn drained_under<Io: AsyncRead + AsyncWrite + Unpin>(sidecar: front::Sidecar, io: Io) {
    let message = review("1", 50_000);
    let mut caller = Bytewise::begin(io).await;
    caller.ask(1, &message).await;
    until("the call is read", || sidecar.front.inflight.requests() == 1).await;
    sidecar.shutdown.send(()).expect("serving");
    // First no stream is ruled out: what is on its way is still to come. Then there is a PING, behind which it has
    // come.
    assert_eq!(caller.next_of(GOAWAY).await, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let ping = caller.next_of(PING).await;
    caller.ask(3, &message).await;
    caller.send(PING, ACK, 0, &ping).await;
    for stream in [1, 3] {
        for (at, part) in message[1..].chunks(16_384).enumerate() {
            let last = 1 + at * 16_384 + part.len() == message.len();
            caller.send(DATA, if last { END_STREAM } else { 0 }, stream, part).await;
        }
    }
    // From here on everything is said, and the last answer is on its way. Meanwhile the caller says what it pleases.
    for _ in 0..200 {
        caller.send(PING, 0, 0, b"anybody?").await;
        caller.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).await;
        tokio::task::yield_now().await;
    }
    let (mut answered, mut ended, mut last) = (Vec::new(), Vec::new(), Vec::new());
    while let Some((kind, flags, stream, payload)) = timeout(LONG, caller.next()).await.expect("in time") {
        match kind {
            DATA if payload.len() > 5 => answered.push(stream),
            HEADERS if flags & END_STREAM != 0 => ended.push(stream),
            GOAWAY => last = payload,
            _ => {}
        }
    }
    answered.sort_unstable();
    ended.sort_unstable();
    assert_eq!((answered, ended, last), (vec![1, 3], vec![1, 3], vec![0, 0, 0, 3, 0, 0, 0, 0]));
    // It has read the end, and still may write.
    for _ in 0..50 {
        caller.send(PING, 0, 0, b"anybody?").await;
        tokio::task::yield_now().await;
    }
    assert!(!sidecar.serving.is_finished(), "nor does the process end before its callers have read");
    drop(caller);
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, DrainSummary { cut: 0 });
}

#[tokio::test]
async fn shutdown_lets_a_writing_caller_read_its_last_answer() {
    let sidecar = sidecar(FrontLimits::default()).await;
    let stream = TcpStream::connect(sidecar.address).await.expect("connects");
    drained_under(sidecar, stream).await;
}

#[tokio::test]
async fn shutdown_lets_a_writing_caller_over_tls_read_its_last_answer() {
    let (authority, folder) = (Authority::new("cluster"), tempfile::tempdir().expect("folder"));
    put_pair(folder.path(), &authority.server());
    let tls = Arc::new(ServerTls::load(files(folder.path())).expect("sound files"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let sidecar = front::serving(FrontLimits::default(), address, Listener::Tls(listener, tls));
    sidecar.current.freshness().stamp_awake(Instant::now() + Duration::from_secs(3600));
    let stream = tls::connect(address, &client(&authority, None, &["h2"], BOTH)).await.expect("shakes hands");
    drained_under(sidecar, stream).await;
}

#[tokio::test]
async fn shutdown_delivers_the_last_http1_answer() {
    let sidecar = sidecar(FrontLimits::default()).await;
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    let whole = webhook::review("last", 1000);
    let request = front::with(webhook::post("/validate"), "content-length", &whole.len().to_string());
    stream.write_all(webhook::head(&request).as_bytes()).await.expect("sent");
    until("the request is read", || sidecar.front.inflight.requests() == 1).await;
    sidecar.shutdown.send(()).expect("serving");
    until("draining", || sidecar.health.is_stopping()).await;
    stream.write_all(&whole).await.expect("sent");
    for _ in 0..200 {
        stream.write_all(b"GET /more HTTP/1.1\r\n").await.expect("it is read");
        tokio::task::yield_now().await;
    }
    webhook::assert_allowed(&webhook::ended(&mut stream).await, "last");
    assert_eq!(stream.read(&mut [0]).await.expect("no reset"), 0);
    drop(stream);
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, DrainSummary { cut: 0 });
}

#[tokio::test]
async fn shutdown_waits_a_bounded_time_for_a_caller_that_never_closes() {
    let sidecar = sidecar(FrontLimits { drain: Duration::from_millis(200), ..FrontLimits::default() }).await;
    let mut caller = Bytewise::begin(TcpStream::connect(sidecar.address).await.expect("connects")).await;
    let message = review("1", 10);
    caller.ask(1, &message).await;
    until("the call is read", || sidecar.front.inflight.requests() == 1).await;
    sidecar.shutdown.send(()).expect("serving");
    let ping = caller.next_of(PING).await;
    caller.send(PING, ACK, 0, &ping).await;
    caller.send(DATA, END_STREAM, 1, &message[1..]).await;
    let drained = timeout(LONG, sidecar.serving).await.expect("in time").expect("joined");
    assert_eq!(drained, DrainSummary { cut: 0 });
}

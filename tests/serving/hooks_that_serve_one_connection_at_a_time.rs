//! Hooks such as gunicorn's sync workers or Python's `http.server`: while a connection is open, they hear no other.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{certificates::localhost, http_hook::HTTP1};
use bytes::Bytes;
use gatepost::hooks::{Call, Channel, HookRequest, HttpReply, HttpRequest, ProbePost, Reply, Responses, Reuse};
use gatepost_api::{
    Endpoint, HttpForm, ReviewVersion, Rope, Transport,
    hook::{Address, EndpointTls},
};
use gatepost_tls::{SystemRoots, client_config};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::{runtime::Handle, time::timeout};

/// The longest anything may take here; less than idle connections are kept.
const LONG: Duration = Duration::from_secs(20);
const WORKERS: usize = 2;

/// Answer to every call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Close,
    KeepAlive,
}

impl Says {
    fn reply(self) -> &'static [u8] {
        match self {
            Self::Close => b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nyes",
            Self::KeepAlive => b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes",
        }
    }
}

/// A hook on a thread of its own, which ends with the test's process.
fn hook(says: Says, tls: Option<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let tls = tls.map(Arc::new);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.expect("accepted");
            // However a connection ends, the next one is served.
            let _ = match &tls {
                None => serve(socket, says),
                Some(config) => {
                    let session = ServerConnection::new(config.clone()).expect("a session");
                    serve(StreamOwned::new(session, socket), says)
                }
            };
        }
    });
    address
}

/// Answers the calls of one connection until it ends.
fn serve(socket: impl Read + Write, says: Says) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if socket.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        socket.read_exact(&mut vec![0; length])?;
        socket.get_mut().write_all(says.reply())?;
        socket.get_mut().flush()?;
        if says == Says::Close {
            return Ok(());
        }
    }
}

fn channel(address: SocketAddr, ca_pem: Option<&str>) -> Arc<Channel> {
    let tls = ca_pem.map(|ca| EndpointTls {
        server_name: "localhost".into(),
        ca_pem: Some(ca.as_bytes().into()),
        client_pem: None,
    });
    let config =
        tls.as_ref().map(|tls| client_config(tls, Transport::Http, &SystemRoots::default()).expect("good material"));
    let address = Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
    let workers = vec![Handle::current(); WORKERS];
    Channel::open(Endpoint { address, tls, transport: Transport::Http, authorization: None }, config, &workers)
}

fn ask(channel: &Channel, worker: usize, responses: &Arc<Responses>) {
    let request = HookRequest::Http(HttpRequest {
        path: "/validate".into(),
        form: HttpForm::Json(ReviewVersion::V1),
        timeout: LONG,
    });
    let body = Rope::new([Bytes::from_static(b"{}")]);
    let deadline = Instant::now() + LONG;
    channel.submit(
        worker,
        Call {
            request,
            body,
            deadline,
            responses: responses.clone(),
            tag: worker as u32,
            reuse: Reuse::Allowed,
            resends: 0,
            forwarded: gatepost_api::Hops::FIRST.into(),
        },
    );
}

async fn answers(responses: &Responses, calls: usize) {
    let mut arrived = 0;
    while arrived < calls {
        for (worker, result) in timeout(LONG, responses.take()).await.expect("answered") {
            assert!(matches!(&result, Ok(Reply::Http(HttpReply { status: 200, .. }))), "{worker}: {result:?}");
            arrived += 1;
        }
    }
}

/// Whichever worker asks, it is answered: one after the other, and all at once.
async fn every_worker_is_answered(channel: &Channel) {
    let post = ProbePost { path: "/validate".into(), form: HttpForm::Json(ReviewVersion::V1) };
    for post in [None, Some(&post)] {
        channel.probe(post, LONG).await.expect("passes");
    }
    let responses = Arc::new(Responses::default());
    for call in 0..6 {
        ask(channel, call % WORKERS, &responses);
        answers(&responses, 1).await;
    }
    for call in 0..6 {
        ask(channel, call % WORKERS, &responses);
    }
    answers(&responses, 6).await;
    // The first worker's connection may be idle, or the other's.
    channel.probe(None, LONG).await.expect("connects");
}

#[tokio::test]
async fn single_closing_connection_serves_every_worker() {
    every_worker_is_answered(&channel(hook(Says::Close, None), None)).await;
}

#[tokio::test]
async fn single_kept_connection_serves_every_worker() {
    every_worker_is_answered(&channel(hook(Says::KeepAlive, None), None)).await;
}

#[tokio::test]
async fn single_closing_tls_connection_serves_every_worker() {
    let (ca, config) = localhost(&[HTTP1]);
    every_worker_is_answered(&channel(hook(Says::Close, Some(config)), Some(&ca))).await;
}

#[tokio::test]
async fn single_kept_tls_connection_serves_every_worker() {
    let (ca, config) = localhost(&[HTTP1]);
    every_worker_is_answered(&channel(hook(Says::KeepAlive, Some(config)), Some(&ca))).await;
}

//! HTTP/2 with servers of others: hyperium's h2 with its knobs turned as far as they go, and nghttp2's.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    env, fs,
    io::{self, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use gatepost::hooks::{Channel, Method};
use gatepost_api::{
    Endpoint, HttpForm, ReviewVersion, Rope, Transport,
    hook::{Address, EndpointTls},
};
use gatepost_tls::{SystemRoots, client_config};
use h2::{RecvStream, server};
use http::{HeaderMap, HeaderValue, Response};
use rcgen::{CertificateParams, KeyPair};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn endpoint(at: SocketAddr, tls: Option<EndpointTls>, transport: Transport) -> Endpoint {
    let address = Address::Tcp { host: at.ip().to_string().into(), port: at.port() };
    Endpoint { address, tls, transport, authorization: None }
}

/// Bytes that are like no others.
pub(crate) fn body(len: usize, seed: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect::<Vec<u8>>().into()
}

/// Says what could not run here. Straight to stderr: what a test prints that passes is never seen.
pub(crate) fn not_run(what: &str) {
    let line = format!("################ NOT RUN: {what}\n");
    io::stderr().lock().write_all(line.as_bytes()).expect("stderr");
}

/// Sends each message back, over gRPC.
async fn echo(stream: TcpStream, builder: server::Builder) {
    let mut connection = builder.handshake::<_, Bytes>(stream).await.expect("handshake");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let message = whole(request.into_body()).await;
            let head = Response::builder().header("content-type", "application/grpc").header("date", "x");
            let mut send = respond.send_response(head.body(()).expect("a head"), false).expect("sent");
            send.send_data(message, false).expect("sent");
            let status =
                HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from_static("0"))]);
            send.send_trailers(status).expect("sent");
        });
    }
}

async fn whole(mut body: RecvStream) -> Bytes {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("data");
        body.flow_control().release_capacity(data.len()).expect("given back");
        all.extend_from_slice(&data);
    }
    all.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_with_every_knob_turned() {
    type Knob = fn(&mut server::Builder) -> &mut server::Builder;
    let knobs: [(&str, usize, Knob); 7] = [
        ("as it is", 300_000, |h2| h2),
        // More would be a flood of WINDOW_UPDATE.
        ("windows of a byte", 240, |h2| h2.initial_window_size(1)),
        ("odd windows", 100_000, |h2| h2.initial_window_size(977).initial_connection_window_size(65_535)),
        ("large frames and windows", 900_000, |h2| h2.max_frame_size(1 << 20).initial_window_size(1 << 24)),
        ("one stream at once", 50_000, |h2| h2.max_concurrent_streams(1)),
        ("no header table", 1_000, |h2| h2.header_table_size(0)),
        ("a small header table", 1_000, |h2| h2.header_table_size(100).max_header_list_size(16 << 10)),
    ];
    for (what, largest, turn) in knobs {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut builder = server::Builder::new();
                turn(&mut builder);
                tokio::spawn(echo(stream, builder));
            }
        });
        let channel = Channel::open(endpoint(at, None, Transport::Grpc), None, &[Handle::current()]);
        let mut calls = JoinSet::new();
        for call in 0..24 {
            let channel = Arc::clone(&channel);
            let message = body(largest / 24 * call, call);
            calls.spawn(async move {
                let framed = [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat();
                let answer = channel.call_once(Method::Validate, framed.into(), LONG).await.expect("an answer");
                assert!(answer == message, "other bytes");
            });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        serving.abort();
    }
}

/// Writes a server's key pair into the folder, and says how to trust it.
pub(crate) fn certified(folder: &Path) -> EndpointTls {
    let key = KeyPair::generate().expect("a key");
    let pair = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name").self_signed(&key).expect("signed");
    fs::write(folder.join("tls.crt"), pair.pem()).expect("written");
    fs::write(folder.join("tls.key"), key.serialize_pem()).expect("written");
    EndpointTls { server_name: "localhost".into(), ca_pem: Some(pair.pem().into_bytes().into()), client_pem: None }
}

/// nghttp2's server, which sends back what it is posted; it ends with its handle.
struct Nghttpd {
    process: Child,
    at: SocketAddr,
}

impl Drop for Nghttpd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nghttpd {
    /// None where it is not installed.
    fn start(folder: &Path, options: &[&str]) -> Option<Self> {
        let file = |name: &str| folder.join(name).display().to_string();
        let process = Command::new("nghttpd")
            .args(["--echo-upload", "--address=127.0.0.1"])
            .args(options)
            .args(["0", &file("tls.key"), &file("tls.crt")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // It does not say which port it was given.
        let at = loop {
            if let Some(at) = listening(process.id()) {
                break at;
            }
            std::thread::yield_now();
        };
        Some(Self { process, at })
    }
}

/// The address on which a process listens, once it does.
fn listening(process: u32) -> Option<SocketAddr> {
    let open = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let sockets: Vec<String> = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // State 0A is LISTEN.
        let ours = fields[3] == "0A" && sockets.iter().any(|inode| inode == fields[9]);
        let port = u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok()?;
        ours.then_some(SocketAddr::from(([127, 0, 0, 1], port)))
    })
}

#[test]
fn skipped_test_prints_not_run() {
    let one = ["--exact", "hooks_speak_http2_in_many_ways::nghttp2_with_windows_of_every_size"];
    let mut again = Command::new(env::current_exe().expect("a test binary"));
    let output = again.args(one).env("PATH", "/nowhere").output().expect("runs");
    let (said, shown) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
    assert!(said.contains("################ NOT RUN: HTTP/2 with nghttp2"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nghttp2_with_windows_of_every_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certified(folder.path());
    let config = client_config(&tls, Transport::Http, &SystemRoots::default()).expect("sound");
    for options in [
        &[][..],
        &["--window-bits=9", "--max-concurrent-streams=1"],
        &["--window-bits=30", "--connection-window-bits=30", "--header-table-size=0"],
        &["--header-table-size=65536", "--encoder-header-table-size=65536", "--padding=200"],
    ] {
        let Some(server) = Nghttpd::start(folder.path(), options) else {
            return not_run("HTTP/2 with nghttp2: nghttpd is not here; Debian has it in nghttp2-server");
        };
        let endpoint = endpoint(server.at, Some(tls.clone()), Transport::Http);
        let channel = Channel::open(endpoint, Some(config.clone()), &[Handle::current()]);
        let largest = 300_000;
        let mut calls = JoinSet::new();
        for call in 0..12 {
            let (channel, body) = (Arc::clone(&channel), body(largest / 12 * call, call));
            calls.spawn(async move {
                let form = HttpForm::Json(ReviewVersion::V1);
                let reply = channel.post_once("/echo", form, Rope::new([body.clone()]), LONG).await.expect("a reply");
                assert_eq!(reply.status, 200);
                assert!(reply.body().expect("a body") == body, "other bytes");
            });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap_or_else(|error| panic!("{options:?}: {error}"));
        }
    }
}

//! HTTP/2 over TLS with Go's servers, net/http and grpc-go, with their knobs turned (`tests/serving/go_peer`).
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use gatepost::hooks::{Channel, Method};
use gatepost_api::{HttpForm, ReviewVersion, Rope, Transport, hook::EndpointTls};
use gatepost_tls::{SystemRoots, client_config};
use tokio::{runtime::Handle, task::JoinSet};

use super::hooks_speak_http2_in_many_ways::{LONG, body, certified, endpoint, not_run};

const CALLS: usize = 24;

/// A server's arguments, the largest body it is sent, and how many connections it sees at least.
type Knobs = (&'static [&'static str], usize, usize);

/// The program, built once; or why it cannot be.
fn built() -> Result<PathBuf, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf, &'static str> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serving/go_peer");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-peer");
    let go = |arguments: &[&str]| Command::new("go").args(arguments).current_dir(&folder).output();
    match go(&["mod", "download"]) {
        Err(_) => return Err("go is not here; it is at https://go.dev/dl"),
        Ok(output) if !output.status.success() => return Err("its modules are not here and cannot be downloaded"),
        Ok(_) => {}
    }
    let output = go(&["build", "-o", &program.display().to_string(), "."]).expect("go runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// A server in Go, which sends back what it is sent; it ends with its handle.
struct Peer {
    process: Child,
    at: SocketAddr,
    lines: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Peer {
    fn start(program: &Path, folder: &Path, protocol: &str, knobs: &[&str]) -> Self {
        let file = |name: &str| folder.join(name).display().to_string();
        let mut process = Command::new(program)
            .args(["-protocol", protocol, "-cert", &file("tls.crt"), "-key", &file("tls.key")])
            .args(knobs)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was built");
        let mut lines = BufReader::new(process.stdout.take().expect("piped"));
        let mut at = String::new();
        lines.read_line(&mut at).expect("it says where it listens");
        Self { process, at: at.trim().parse().expect("an address"), lines }
    }

    /// Number of connections that it has accepted, once it has ended.
    fn connections(mut self) -> usize {
        self.process.kill().expect("it runs");
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("lines");
        rest.lines().count()
    }
}

/// Sends bodies of all sizes at once, by `call`, and expects them back.
async fn echoed<F>(what: &str, largest: usize, call: impl Fn(Bytes) -> F)
where
    F: Future<Output = Bytes> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let sent = body(largest / CALLS * number, number);
        let answer = call(sent.clone());
        calls.spawn(async move { assert!(answer.await == sent, "other bytes") });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Asks a server with each of these knobs, once it is built.
async fn with_each(protocol: &str, transport: Transport, knobs: &[Knobs]) {
    let program = match tokio::task::spawn_blocking(built).await.expect("no panic") {
        Ok(program) => program,
        Err(why) => return not_run(&format!("HTTP/2 with Go ({protocol}): {why}")),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let tls: EndpointTls = certified(folder.path());
    let config = client_config(&tls, transport, &SystemRoots::default()).expect("sound");
    for (arguments, largest, connections) in knobs {
        let peer = Peer::start(&program, folder.path(), protocol, arguments);
        let channel =
            Channel::open(endpoint(peer.at, Some(tls.clone()), transport), Some(config.clone()), &[Handle::current()]);
        let call = |sent: Bytes| {
            let channel = Arc::clone(&channel);
            async move {
                if transport == Transport::Grpc {
                    let framed = [&[0], &(sent.len() as u32).to_be_bytes()[..], &sent].concat();
                    return channel.call_once(Method::Validate, framed.into(), LONG).await.expect("an answer");
                }
                let form = HttpForm::Json(ReviewVersion::V1);
                let reply = channel.post_once("/echo", form, Rope::new([sent]), LONG).await.expect("a reply");
                assert_eq!(reply.status, 200);
                reply.body().expect("a body")
            }
        };
        echoed(&format!("{protocol} {arguments:?}"), *largest, call).await;
        let seen = peer.connections();
        assert!(seen >= *connections && seen <= connections + 2, "{protocol} {arguments:?}: {seen} connections");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn net_http_with_every_knob_turned() {
    let knobs: [Knobs; 6] = [
        (&[], 900_000, 1),
        (&["-stream-window=977", "-connection-window=65536"], 100_000, 1),
        (&["-stream-window=16777216", "-connection-window=16777216", "-frame=1048576"], 900_000, 1),
        (&["-frame=16384"], 300_000, 1),
        (&["-streams=1", "-table=1"], 50_000, 1),
        // Two GOAWAY in all, so that no call is left out more often than it is sent again.
        (&["-streams=4", "-goaway-every=10"], 50_000, 2),
    ];
    with_each("http", Transport::Http, &knobs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_go_with_every_knob_turned() {
    let knobs: [Knobs; 5] = [
        (&[], 900_000, 1),
        (&["-stream-window=65535", "-connection-window=65535"], 900_000, 1),
        (&["-stream-window=16777216", "-connection-window=16777216"], 900_000, 1),
        (&["-streams=1", "-table=0"], 50_000, 1),
        (&["-streams=4", "-goaway-every=10"], 50_000, 2),
    ];
    with_each("grpc", Transport::Grpc, &knobs).await;
}

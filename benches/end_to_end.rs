//! One review over loopback: a caller, a sidecar, four hooks, and back; one review at a time.
//!
//! Ours is `runtime::Sidecar` as `serve` runs it (matching, deadlines, metrics), with one worker; the naive reference is
//! stock tonic, see `loadtest/naive/`, on one `current_thread` runtime. Caller and hooks are the same for both: h2 with
//! messages made beforehand, hooks on a thread of their own that drain the message and say yes.
//!
//! Hypothesis: at 2 KiB a review is mostly system calls and wake-ups, which both need; at 256 KiB the copies of the
//! naive one show. The last lines of a run print the ratios naive / ours. Unit: time per review.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

mod common;
#[path = "common/naive.rs"]
mod naive;

use std::{
    env, fs,
    future::Future,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use common::message;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::runtime::{Settings, Sidecar};
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview},
};
use h2::{RecvStream, client::SendRequest, server::SendResponse};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};

const HOOKS: usize = 4;
const SIZES: [(usize, &str); 2] = [(2 << 10, "2KiB"), (256 << 10, "256KiB")];
/// The uid in [`message`].
const UID: &str = "3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts something on a thread of its own that lives as long as the process.
fn beside<T, F>(start: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            sender.send(start().await).expect("somebody waits");
            std::future::pending::<()>().await;
        });
    });
    text.recv().expect("it has started")
}

/// Hooks that say yes.
async fn hooks() -> Vec<SocketAddr> {
    let response = AdmissionResponse { uid: Some(UID.into()), allowed: Some(true), ..Default::default() };
    let yes = framed(&AdmissionReview { request: None, response: Some(response) });
    let mut addresses = Vec::with_capacity(HOOKS);
    for _ in 0..HOOKS {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        addresses.push(listener.local_addr().expect("an address"));
        let yes = yes.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(connection(socket, yes.clone()));
            }
        });
    }
    addresses
}

async fn connection(socket: TcpStream, yes: Bytes) {
    socket.set_nodelay(true).expect("nodelay");
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request.into_body(), respond, yes.clone()));
    }
}

async fn answer(mut body: RecvStream, mut respond: SendResponse<Bytes>, yes: Bytes) {
    while let Some(Ok(data)) = body.data().await {
        // Fails only when the stream is gone, which the next read reports.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let response = Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    let _ = stream.send_data(yes, false).and_then(|()| stream.send_trailers(trailers));
}

/// A connection to a sidecar; it moves while its runtime is inside `ask`.
struct Caller {
    runtime: Runtime,
    send: SendRequest<Bytes>,
}

impl Caller {
    fn connect(sidecar: SocketAddr) -> Self {
        let runtime = runtime();
        let send = runtime.block_on(async {
            let socket = TcpStream::connect(sidecar).await.expect("connects");
            socket.set_nodelay(true).expect("nodelay");
            let (send, connection) = h2::client::handshake(socket).await.expect("handshake");
            tokio::spawn(connection);
            send
        });
        Self { runtime, send }
    }

    /// One review and its verdict, which must be a yes.
    fn ask(&self, message: &Bytes) {
        let answer = self.runtime.block_on(async {
            let request = Request::post("http://gatepost/gatepost.v1.Admission/Review")
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            let request = request.body(()).expect("a request");
            let mut send = self.send.clone().ready().await.expect("the connection lives");
            let (response, mut stream) = send.send_request(request, false).expect("sent");
            stream.send_data(message.clone(), true).expect("sent");
            let mut body = response.await.expect("a response").into_body();
            let mut answer = BytesMut::new();
            while let Some(data) = body.data().await {
                let data = data.expect("data");
                body.flow_control().release_capacity(data.len()).expect("released");
                answer.extend_from_slice(&data);
            }
            answer.freeze()
        });
        let review = AdmissionReview::decode(answer.slice(5..)).expect("a review");
        assert!(review.response.expect("a response").allowed());
    }
}

fn configuration(hooks: &[SocketAddr]) -> String {
    let entry = |(index, hook): (usize, &SocketAddr)| {
        format!(
            "- name: hook-{index}.example.com\n  clientConfig: {{url: \"grpc://{hook}\"}}\n  rules: [{{operations: \
             [\"*\"], apiGroups: [\"*\"], apiVersions: [\"*\"], resources: [\"*/*\"]}}]\n"
        )
    };
    let entries: String = hooks.iter().enumerate().map(entry).collect();
    format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: bench}}\n\
         externalAdmissionHooks:\n{entries}"
    )
}

fn end_to_end(c: &mut Criterion) {
    let hooks = beside(hooks);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("gatepost.yaml"), configuration(&hooks)).expect("written");
    let settings = Settings { workers: NonZeroUsize::MIN, ..Settings::local(folder.path()) };
    let running = Sidecar::start(settings).expect("a sidecar");
    let ours = Caller::connect(running.addresses.tcp);
    let naive = Caller::connect(beside(move || async move { naive::start(&hooks).await }));

    for (size, name) in SIZES {
        let message = message(size);
        let mut group = c.benchmark_group(format!("end_to_end/{HOOKS} hooks"));
        group.bench_function(BenchmarkId::new("naive", name), |b| b.iter(|| naive.ask(&message)));
        group.bench_function(BenchmarkId::new("ours", name), |b| b.iter(|| ours.ask(&message)));
        group.finish();
    }
    ratios(&naive, &ours);
    // A sidecar that drains waits for its callers.
    drop(ours);
    drop(running);
}

/// Interleaved, median of eleven: naive / ours, printed in every run.
fn ratios(naive: &Caller, ours: &Caller) {
    // `cargo test --benches` only looks whether it works.
    let is_measured = env::args().any(|argument| argument == "--bench");
    println!("\none review over loopback, {HOOKS} hooks, naive / ours (median of 11, interleaved)");
    for (size, name) in SIZES {
        let message = message(size);
        // Long enough that a busy moment of the machine does not decide a round.
        let (reviews, rounds) = match size {
            _ if !is_measured => (1, 1),
            0..=65_535 => (1000, 11),
            _ => (200, 11),
        };
        let time = |caller: &Caller| {
            let began = Instant::now();
            (0..reviews).for_each(|_| caller.ask(&message));
            began.elapsed()
        };
        let mut rounds: Vec<(Duration, Duration)> = (0..rounds).map(|_| (time(naive), time(ours))).collect();
        let ratio = |(naive, ours): &(Duration, Duration)| naive.as_secs_f64() / ours.as_secs_f64();
        rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        println!("{name:>8} {:>6.2}x", ratio(&rounds[rounds.len() / 2]));
    }
}

criterion_group!(benches, end_to_end);
criterion_main!(benches);

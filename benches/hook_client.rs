//! Cost of asking N hooks over HTTP/2 to the thread that asks, by our client and by h2's.
//!
//! Both send the same shared bytes over plain TCP, on one connection to each hook, and collect the answers; nothing is
//! decoded. The hooks are on another thread, with frames and windows as in a stock server of h2. So the difference is
//! framing, header compression and the number of writes: what `crates/http2-client` is for (see "Our own HTTP/2
//! client for hooks" in `crates/http2-client/decisions`).
//!
//! Hypothesis: with 4 hooks h2 takes at least 1.1 times the CPU at every size. Where it does not, h2 could take our
//! client's place. Unit: CPU time of the calling thread per review, kernel included. The last lines of a run print the
//! ratios h2 / ours.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

mod common;
#[path = "common/cpu.rs"]
mod cpu;

use std::{
    env,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use common::{SIZES, message};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use gatepost::hooks::{Call, Channel, GrpcRequest, HookRequest, Method, Reply, Responses, Reuse};
use gatepost_api::{Endpoint, Hops, Rope, Transport, hook::Address};
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview},
};
use h2::{RecvStream, client::SendRequest, server::SendResponse};
use http::{HeaderMap, Response};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};

const HOOKS: [usize; 3] = [1, 4, 16];
/// Answer to `grpc.health.v1.Health/Check`: SERVING.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

/// Starts so many hooks; they live as long as the process.
fn hooks(number: usize) -> Vec<SocketAddr> {
    let response = AdmissionResponse { allowed: Some(true), ..Default::default() };
    let yes = framed(&AdmissionReview { request: None, response: Some(response) });
    let (sender, addresses) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            for _ in 0..number {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                sender.send(listener.local_addr().expect("an address")).expect("somebody waits");
                let yes = yes.clone();
                tokio::spawn(async move {
                    while let Ok((socket, _)) = listener.accept().await {
                        tokio::spawn(connection(socket, yes.clone()));
                    }
                });
            }
            drop(sender);
            std::future::pending::<()>().await;
        });
    });
    addresses.iter().collect()
}

async fn connection(socket: TcpStream, yes: Bytes) {
    socket.set_nodelay(true).expect("nodelay");
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let is_health = request.uri().path() == Method::Health.path();
        let message = if is_health { Bytes::from_static(SERVING) } else { yes.clone() };
        tokio::spawn(answer(request.into_body(), respond, message));
    }
}

async fn answer(mut body: RecvStream, mut respond: SendResponse<Bytes>, message: Bytes) {
    while let Some(Ok(data)) = body.data().await {
        // Fails only when the stream is gone, which the next read reports.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let response = Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    // Fails only when the caller has left.
    let _ = stream.send_data(message, false).and_then(|()| stream.send_trailers(trailers));
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The thread that asks, with a connection of each client to each hook.
struct Caller {
    runtime: Runtime,
    ours: Vec<Arc<Channel>>,
    h2: Vec<SendRequest<Bytes>>,
}

/// One review to that many hooks, by one of the clients.
type Side = fn(&Caller, &Bytes, usize);

impl Caller {
    fn connect(hooks: &[SocketAddr]) -> Self {
        let runtime = runtime();
        let endpoint = |hook: &SocketAddr| Endpoint {
            address: Address::Tcp { host: hook.ip().to_string().into(), port: hook.port() },
            tls: None,
            transport: Transport::Grpc,
            authorization: None,
        };
        let open = |hook| Channel::open(endpoint(hook), None, &[runtime.handle().clone()]);
        let ours: Vec<_> = hooks.iter().map(open).collect();
        let mut h2 = Vec::with_capacity(hooks.len());
        runtime.block_on(async {
            for channel in &ours {
                channel.probe(None, Duration::from_secs(10)).await.expect("connects");
            }
            for hook in hooks {
                let socket = TcpStream::connect(hook).await.expect("connects");
                socket.set_nodelay(true).expect("nodelay");
                let (send, connection) = h2::client::handshake(socket).await.expect("handshake");
                tokio::spawn(connection);
                h2.push(send);
            }
        });
        Self { runtime, ours, h2 }
    }
}

fn ours(caller: &Caller, message: &Bytes, hooks: usize) {
    let responses = Arc::new(Responses::default());
    let body = Rope::new([message.clone()]);
    for (tag, channel) in caller.ours[..hooks].iter().enumerate() {
        let call = Call {
            request: HookRequest::Grpc(GrpcRequest { method: Method::Validate, namespace_labels: None }),
            body: body.clone(),
            deadline: Instant::now() + Duration::from_secs(30),
            responses: responses.clone(),
            tag: tag as u32,
            reuse: Reuse::Allowed,
            resends: 0,
            forwarded: Hops::FIRST.into(),
        };
        channel.submit(0, call);
    }
    caller.runtime.block_on(async {
        let mut arrived = 0;
        while arrived < hooks {
            for (_, reply) in responses.take().await {
                assert!(matches!(reply, Ok(Reply::Grpc(_))), "{reply:?}");
                arrived += 1;
            }
        }
    });
}

fn stock(caller: &Caller, message: &Bytes, hooks: usize) {
    caller.runtime.block_on(async {
        let replies = join_all(caller.h2[..hooks].iter().map(|send| ask(send.clone(), message.clone()))).await;
        assert!(replies.iter().all(|reply| reply.len() > 5));
    });
}

/// One call by h2, with the fields that ours sends.
async fn ask(send: SendRequest<Bytes>, message: Bytes) -> Bytes {
    let request = http::Request::post(format!("http://hook{}", Method::Validate.path()))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header("user-agent", "gatepost/0.1.0")
        .header("grpc-timeout", "29999m")
        .header("gatepost-hops", "1");
    let request = request.body(()).expect("a request");
    let mut send = send.ready().await.expect("the connection lives");
    let (response, mut stream) = send.send_request(request, false).expect("sent");
    stream.send_data(message, true).expect("sent");
    let mut body = response.await.expect("a response").into_body();
    let mut answer = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.expect("data");
        body.flow_control().release_capacity(data.len()).expect("released");
        answer.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.expect("trailers").expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    answer.freeze()
}

fn hook_client(c: &mut Criterion) {
    let caller = Caller::connect(&hooks(HOOKS[HOOKS.len() - 1]));
    let sides: [(&str, Side); 2] = [("ours", ours), ("h2", stock)];
    for (size, name) in SIZES {
        let message = message(size);
        let mut group = c.benchmark_group(format!("hook_client/{name}"));
        for hooks in HOOKS {
            for (side, ask) in sides {
                group.bench_function(BenchmarkId::new(side, hooks), |b| {
                    b.iter_custom(|reviews| cpu::of(|| (0..reviews).for_each(|_| ask(&caller, &message, hooks))));
                });
            }
        }
        group.finish();
    }
    ratios(&caller);
}

/// Interleaved, median of eleven: h2 / ours, printed in every run.
fn ratios(caller: &Caller) {
    // `cargo test --benches` only looks whether it works.
    let is_measured = env::args().any(|argument| argument == "--bench");
    println!("\nCPU per review, h2 / ours (median of 11, interleaved)");
    println!("{:>8} {}", "", HOOKS.map(|hooks| format!("{hooks:>8} hooks")).join(""));
    for (size, name) in SIZES {
        let message = message(size);
        // Long enough that the clock of the thread is fine enough.
        let (reviews, rounds) = match size {
            _ if !is_measured => (1, 1),
            0..=65_535 => (200, 11),
            _ => (20, 11),
        };
        let cells = HOOKS.map(|hooks| {
            let time = |side: Side| cpu::of(|| (0..reviews).for_each(|_| side(caller, &message, hooks))).as_secs_f64();
            let mut ratios: Vec<f64> = (0..rounds).map(|_| time(stock) / time(ours)).collect();
            ratios.sort_by(f64::total_cmp);
            format!("{:>14.2}", ratios[ratios.len() / 2])
        });
        println!("{name:>8} {}", cells.join(""));
    }
}

criterion_group!(benches, hook_client);
criterion_main!(benches);

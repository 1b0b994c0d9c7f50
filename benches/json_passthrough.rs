//! Cost of a JSON review to the thread that passes it on to JSON hooks.
//!
//! Ours views the bytes that arrived and sends them to every hook as they are. The reference does as most sidecars
//! would: it parses the review, and for every hook clones it, gives it a uid of its own, and serialises it. Both ask
//! over the same channels (HTTP/2 over TLS, frames and windows as in Go's server); the hooks are on another thread.
//! "no sockets" is the same without the hooks.
//!
//! Hypothesis: with 16 hooks and a Deployment of 256 KiB, ours takes at most a quarter of the reference's CPU. A
//! ConfigMap that is one text stands beside it: there the reference has least to do, and what both send over TLS counts
//! for more. Unit: CPU time of the calling thread per review, kernel included. The last lines of a run print the ratios
//! ours / reference.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;
#[path = "../tests/support/certificates.rs"]
#[allow(unreachable_pub, reason = "the tests share it")]
mod certificates;
#[path = "common/cpu.rs"]
mod cpu;
#[path = "common/json_hook.rs"]
mod json_hook;
#[path = "common/json_review.rs"]
mod json_review;

use std::{
    env,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::hooks::{Call, Channel, HookRequest, HttpReply, HttpRequest, Reply, Responses, Reuse};
use gatepost_api::{HookType, HttpForm, ReviewVersion, Rope};
use gatepost_wire::{
    encodings::{Encodings, HookEncoding},
    http_answer, json_view,
};
use json_review::{deployment, review};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

const JSON: HttpForm = HttpForm::Json(ReviewVersion::V1);
const HOOKS: [usize; 3] = [1, 4, 16];
const SIZES: [(usize, &str); 2] = [(2 << 10, "2KiB"), (256 << 10, "256KiB")];

/// A ConfigMap whose object is one text: the least there can be to parse and clone.
fn config_map(size: usize) -> String {
    let text = "the quick brown fox ".repeat(size / 20);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{"text":"{text}"}}}}"#)
}

/// The caller: its thread, its connections.
struct Caller {
    runtime: Runtime,
    channels: Vec<Arc<Channel>>,
}

/// Way of passing a review on.
type Side = fn(&Caller, &Bytes, usize);

/// An object of about a size.
type Object = fn(usize) -> String;

impl Caller {
    fn connect(hooks: usize) -> Self {
        let (endpoints, config) = json_hook::start(hooks);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let open = |endpoint| Channel::open(endpoint, Some(config.clone()), &[runtime.handle().clone()]);
        let channels: Vec<_> = endpoints.into_iter().map(open).collect();
        runtime.block_on(async {
            for channel in &channels {
                channel.probe(None, Duration::from_secs(10)).await.expect("connects");
            }
        });
        Self { runtime, channels }
    }

    /// Asks hook `tag`, which learns from the path what uid to answer to.
    fn ask(&self, responses: &Arc<Responses>, tag: usize, uid: &str, body: Rope) {
        let timeout = Duration::from_secs(30);
        let request =
            HookRequest::Http(HttpRequest { path: format!("/validate?uid={uid}").into(), form: JSON, timeout });
        let deadline = Instant::now() + timeout;
        let call = Call {
            request,
            body,
            deadline,
            responses: responses.clone(),
            tag: tag as u32,
            reuse: Reuse::Allowed,
            resends: 0,
            forwarded: gatepost_api::Hops::FIRST.into(),
        };
        self.channels[tag].submit(0, call);
    }

    fn answers(&self, responses: &Responses, hooks: usize, decode: impl Fn(usize, HttpReply)) {
        self.runtime.block_on(async {
            let mut arrived = 0;
            while arrived < hooks {
                for (tag, reply) in responses.take().await {
                    let Ok(Reply::Http(reply)) = reply else { panic!("a reply: {reply:?}") };
                    decode(tag as usize, reply);
                    arrived += 1;
                }
            }
        });
    }
}

fn ours(caller: &Caller, body: &Bytes, hooks: usize) {
    let review = json_view::view(body.clone()).expect("a review");
    let encodings = Encodings::of(&review);
    let responses = Arc::new(Responses::default());
    for tag in 0..hooks {
        caller.ask(&responses, tag, &review.uid, encodings.get(HookEncoding::from(JSON)).expect("encoded"));
    }
    caller.answers(&responses, hooks, |_, reply| {
        http_answer::decode(HookType::Validating, JSON, &review.uid, reply.status, reply.body().expect("a body"))
            .expect("an answer");
    });
}

fn reference(caller: &Caller, body: &Bytes, hooks: usize) {
    let review: Value = serde_json::from_slice(body).expect("JSON");
    let responses = Arc::new(Responses::default());
    for tag in 0..hooks {
        let (uid, body) = respelled(&review, tag);
        caller.ask(&responses, tag, &uid, Rope::new([body]));
    }
    caller.answers(&responses, hooks, |tag, reply| {
        let answer: Value = serde_json::from_slice(&reply.body().expect("a body")).expect("JSON");
        assert_eq!(answer["response"]["uid"], uid_for(tag));
        assert_eq!(answer["response"]["allowed"], true);
    });
}

fn ours_no_sockets(_: &Caller, body: &Bytes, hooks: usize) {
    let review = json_view::view(body.clone()).expect("a review");
    let encodings = Encodings::of(&review);
    for _ in 0..hooks {
        black_box(encodings.get(HookEncoding::from(JSON)).expect("encoded"));
    }
}

fn reference_no_sockets(_: &Caller, body: &Bytes, hooks: usize) {
    let review: Value = serde_json::from_slice(body).expect("JSON");
    for tag in 0..hooks {
        black_box(respelled(&review, tag));
    }
}

fn uid_for(tag: usize) -> String {
    format!("{tag:08x}-0f10-4d62-9b1e-2f7b0c4b8e11")
}

/// A copy of the review for one hook.
fn respelled(review: &Value, tag: usize) -> (String, Bytes) {
    let (mut copy, uid) = (review.clone(), uid_for(tag));
    copy["request"]["uid"] = uid.clone().into();
    (uid, serde_json::to_vec(&copy).expect("written").into())
}

fn json_passthrough(c: &mut Criterion) {
    let caller = Caller::connect(HOOKS[HOOKS.len() - 1]);
    let sides: [(&str, Side); 4] = [
        ("ours", ours),
        ("reference", reference),
        ("ours, no sockets", ours_no_sockets),
        ("reference, no sockets", reference_no_sockets),
    ];
    for (size, name) in SIZES {
        let body = review(&deployment(size));
        let mut group = c.benchmark_group(format!("json_passthrough/{name}"));
        for hooks in HOOKS {
            for (side, pass) in sides {
                group.bench_function(BenchmarkId::new(side, hooks), |b| {
                    b.iter_custom(|reviews| cpu::of(|| (0..reviews).for_each(|_| pass(&caller, &body, hooks))));
                });
            }
        }
        group.finish();
    }
    ratios(&caller);
}

/// Interleaved, median of seven: ours / reference, printed in every run.
fn ratios(caller: &Caller) {
    // `cargo test --benches` only looks whether it works.
    let is_measured = env::args().any(|argument| argument == "--bench");
    println!("\nCPU per review, ours / reference (median of 7, interleaved)");
    println!("{:>34} {}", "", HOOKS.map(|hooks| format!("{hooks:>8} hooks")).join(""));
    let objects: [(&str, Object); 2] = [("Deployment", deployment), ("ConfigMap", config_map)];
    let sides: [(&str, Side, Side); 2] =
        [("", ours, reference), (", no sockets", ours_no_sockets, reference_no_sockets)];
    for (kind, object) in objects {
        for (size, name) in SIZES {
            let body = review(&object(size));
            for (how, ours, reference) in sides {
                let (reviews, rounds) = match size {
                    _ if !is_measured => (1, 1),
                    0..=65_535 => (400, 7),
                    _ => (20, 7),
                };
                let cells = HOOKS.map(|hooks| {
                    let time = |pass: Side| {
                        let took = cpu::of(|| (0..reviews).for_each(|_| pass(caller, &body, hooks)));
                        took.as_secs_f64()
                    };
                    let mut ratios: Vec<f64> = (0..rounds).map(|_| time(ours) / time(reference)).collect();
                    ratios.sort_by(f64::total_cmp);
                    format!("{:>14.3}", ratios[ratios.len() / 2])
                });
                println!("{:>34} {}", format!("{kind} {name}{how}"), cells.join(""));
            }
        }
    }
}

criterion_group!(benches, json_passthrough);
criterion_main!(benches);

//! From a message that has arrived to the bodies that N hooks are sent.
//!
//! Ours views the message and cuts the shared bytes into frames, once for each hook. The naive reference decodes it
//! and, for each hook, clones the message and hands it to a tonic client, which encodes it again; the client stands
//! over a service that drains the body and answers at once, so no network is measured on either side.
//!
//! Hypothesis: ours does not grow with the object, but for one frame head in 16 KiB; the naive one copies the object
//! twice a hook. The last lines of a run print the ratios naive / ours. Unit: time per review.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

mod common;

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    SIZES, message,
    naive_pb::{gatepost::v1::admission_client::AdmissionClient, k8s::io::api::admission::v1::AdmissionReview},
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::hooks::{Call, GrpcRequest, HookRequest, Method, Responses, Reuse, frames_of};
use gatepost_api::Rope;
use gatepost_wire::inbound;
use http_body::Body as _;
use prost::Message;

const HOOKS: [usize; 4] = [1, 4, 16, 64];

/// Drains the request's body and answers with an empty review.
#[derive(Clone)]
struct Sink;

impl tower_service::Service<http::Request<tonic::body::Body>> for Sink {
    type Response = http::Response<http_body_util::Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let mut body = pin!(request.into_body());
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
            black_box(frame.expect("a frame"));
        }
        let response = http::Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "0")
            .body(http_body_util::Full::new(Bytes::from_static(&[0; 5])));
        ready(Ok(response.expect("a response")))
    }
}

/// The naive reference: decode, then clone and encode for each hook.
fn naive(whole: &Bytes, hooks: usize) {
    let review = AdmissionReview::decode(whole.slice(5..)).expect("a review");
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..hooks {
        let mut client = AdmissionClient::new(Sink);
        let copy = review.clone();
        let answer = pin!(async move { client.validate(copy).await }).poll(&mut cx);
        assert!(black_box(answer).is_ready());
    }
}

/// Ours: view, then share.
fn ours(whole: &Bytes, hooks: usize) {
    let review = inbound::view(Rope::new([whole.clone()])).expect("a review");
    let responses = Arc::new(Responses::default());
    let deadline = Instant::now() + Duration::from_secs(10);
    for tag in 0..hooks {
        black_box(frames_of(Call {
            request: HookRequest::Grpc(GrpcRequest { method: Method::Validate, namespace_labels: None }),
            body: review.bytes.clone(),
            deadline,
            responses: responses.clone(),
            tag: tag as u32,
            reuse: Reuse::Allowed,
            resends: 0,
            forwarded: gatepost_api::Hops::FIRST.into(),
        }));
    }
}

fn fanout(c: &mut Criterion) {
    for (size, name) in SIZES {
        let whole = message(size);
        let mut group = c.benchmark_group(format!("fanout/{name}"));
        for hooks in HOOKS {
            group.bench_with_input(BenchmarkId::new("naive", hooks), &hooks, |b, &n| b.iter(|| naive(&whole, n)));
            group.bench_with_input(BenchmarkId::new("ours", hooks), &hooks, |b, &n| b.iter(|| ours(&whole, n)));
        }
        group.finish();
    }
    ratios();
}

/// Interleaved, median of eleven: naive / ours, printed in every run.
fn ratios() {
    println!("\nfan-out body construction, naive / ours (median of 11, interleaved)");
    println!("{:>8} {}", "", HOOKS.map(|hooks| format!("{hooks:>9} hooks")).join(""));
    for (size, name) in SIZES {
        let whole = message(size);
        let cells = HOOKS.map(|hooks| {
            let rounds = (64 / hooks).max(1);
            let time = |side: fn(&Bytes, usize)| {
                let began = Instant::now();
                (0..rounds).for_each(|_| side(black_box(&whole), hooks));
                began.elapsed().as_secs_f64()
            };
            let mut ratios: Vec<f64> = (0..11).map(|_| time(naive) / time(ours)).collect();
            ratios.sort_by(f64::total_cmp);
            format!("{:>14.1}x", ratios[ratios.len() / 2])
        });
        println!("{name:>8} {}", cells.join(""));
    }
}

criterion_group!(benches, fanout);
criterion_main!(benches);

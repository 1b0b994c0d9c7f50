//! Cost of decoding a review that has arrived.
//!
//! Hypothesis: viewing takes the same time at every size (below 1 µs), as the object is never looked at; decoding into
//! `Vec<u8>`, as most people would, copies it. Beside both, prost with `Bytes`. Unit: time per review.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

mod common;

use std::hint::black_box;

use common::{SIZES, message, naive_pb::k8s::io::api::admission::v1::AdmissionReview as NaiveReview};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost_api::Rope;
use gatepost_wire::{inbound, pb::k8s::io::api::admission::v1::AdmissionReview};
use prost::Message;

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for (size, name) in SIZES {
        let whole = message(size);
        group.bench_with_input(BenchmarkId::new("naive-vec", name), &whole, |b, whole| {
            b.iter(|| NaiveReview::decode(black_box(whole.slice(5..))).expect("a review"));
        });
        group.bench_with_input(BenchmarkId::new("prost-bytes", name), &whole, |b, whole| {
            b.iter(|| AdmissionReview::decode(black_box(whole.slice(5..))).expect("a review"));
        });
        group.bench_with_input(BenchmarkId::new("view", name), &whole, |b, whole| {
            b.iter(|| inbound::view(Rope::new([black_box(whole.clone())])).expect("a review"));
        });
        let pieces: Vec<_> =
            (0..whole.len()).step_by(16384).map(|at| whole.slice(at..whole.len().min(at + 16384))).collect();
        group.bench_with_input(BenchmarkId::new("view-16KiB-frames", name), &pieces, |b, pieces| {
            b.iter(|| inbound::view(Rope::new(black_box(pieces.clone()))).expect("a review"));
        });
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);

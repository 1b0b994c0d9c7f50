//! Cost of finding and checking the object in a review that arrived in JSON.
//!
//! Hypothesis: at least 1 GB/s on both payloads. Beside it, serde_json with `RawValue` for the objects, as most people
//! would. Unit: bytes of the review per second.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;
#[path = "common/json_review.rs"]
#[allow(dead_code, reason = "each bench uses its own part")]
mod json_review;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gatepost_wire::{json, json_view, review_json};
use json_review::{deployment, review};

const SIZE: usize = 256 << 10;

/// A ConfigMap that holds a script of short lines: an escape every eight bytes.
fn escapes() -> String {
    let text = r"abcdef\n".repeat(SIZE / 8);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{"script":"{text}"}}}}"#)
}

fn view(c: &mut Criterion) {
    let mut group = c.benchmark_group("json_view");
    for (name, object) in [("short-keys", deployment(SIZE)), ("escapes", escapes())] {
        let body = review(&object);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("view", name), &body, |b, body| {
            b.iter(|| json_view::view(black_box(body.clone())).expect("a review"));
        });
        group.bench_with_input(BenchmarkId::new("serde-raw-value", name), &body, |b, body| {
            b.iter(|| review_json::from_json(black_box(body)).expect("a review"));
        });
        group.throughput(Throughput::Bytes(object.len() as u64));
        group.bench_with_input(BenchmarkId::new("skip-object", name), &object, |b, object| {
            b.iter(|| json::skip(black_box(object), 0).expect("an object"));
        });
    }
    group.finish();
}

criterion_group!(benches, view);
criterion_main!(benches);

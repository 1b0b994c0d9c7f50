//! Cost of patching an object.
//!
//! Ours locates the paths in the bytes and makes a rope; the reference parses the object and the patch with serde_json,
//! patches with the crate `json-patch`, and writes the result. Three operations, as a mutating webhook sends them: a
//! label, an annotation, a container's image.
//!
//! Hypothesis: ours ÷ reference is at most 0.3 for 2 KiB and 0.1 for 256 KiB and 3 MiB, for a Deployment of many small
//! fields and for a ConfigMap that is one text. Unit: time per object, from its bytes to the patched ones. The last
//! lines of a run print the ratios.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;
#[path = "common/json_review.rs"]
#[allow(dead_code, reason = "each bench uses its own part")]
mod json_review;

use std::{
    env,
    hint::black_box,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gatepost_api::Rope;
use gatepost_json_patch::{Document, Patch, PatchLimits};
use json_review::deployment;

/// With what the largest is grown by, it stays within the limit.
const SIZES: [(usize, &str); 3] = [(2 << 10, "2KiB"), (256 << 10, "256KiB"), ((3 << 20) - 1024, "3MiB")];

const DEPLOYMENT: &str = r#"[{"op":"add","path":"/metadata/labels/tier","value":"web"},{"op":"add","path":"/metadata/annotations","value":{"audit.example.com/by":"policy"}},{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"registry.example.com/team/app@sha256:0123456789abcdef"}]"#;
const CONFIG_MAP: &str = r#"[{"op":"add","path":"/metadata/labels","value":{"tier":"web"}},{"op":"add","path":"/metadata/annotations","value":{"audit.example.com/by":"policy"}},{"op":"add","path":"/data/extra","value":"yes"}]"#;

/// A ConfigMap that is one text.
fn config_map(size: usize) -> String {
    let text = "the quick brown fox ".repeat(size / 20);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{"text":"{text}"}}}}"#)
}

/// The largest Deployment that is no larger.
fn at_most(size: usize) -> String {
    let container = deployment(0).len();
    deployment(size.saturating_sub(container))
}

fn ours(object: &Bytes, patch: &Bytes) -> usize {
    let patch = Patch::parse(patch.clone()).expect("a patch");
    let document = Document::new(Rope::new([object.clone()])).expect("an object");
    document.patched(&patch, PatchLimits::default()).expect("it applies").rope().len()
}

fn reference(object: &Bytes, patch: &Bytes) -> usize {
    let mut value: serde_json::Value = serde_json::from_slice(object).expect("an object");
    let patch: json_patch::Patch = serde_json::from_slice(patch).expect("a patch");
    json_patch::patch(&mut value, &patch).expect("it applies");
    serde_json::to_vec(&value).expect("it is written").len()
}

/// The quickest of some runs.
fn quickest(work: fn(&Bytes, &Bytes) -> usize, object: &Bytes, patch: &Bytes) -> Duration {
    let timed = |_| {
        let start = Instant::now();
        black_box(work(black_box(object), black_box(patch)));
        start.elapsed()
    };
    // `cargo test --benches` only looks whether it works.
    let runs = if env::args().any(|argument| argument == "--bench") { 200 } else { 1 };
    (0..runs).map(timed).min().unwrap_or_default()
}

fn patch(c: &mut Criterion) {
    let mut ratios = Vec::new();
    for (size, name) in SIZES {
        let objects = [("deployment", at_most(size), DEPLOYMENT), ("config-map", config_map(size - 200), CONFIG_MAP)];
        for (kind, object, patch) in objects {
            let (object, patch) = (Bytes::from(object), Bytes::from_static(patch.as_bytes()));
            let mut group = c.benchmark_group(format!("patch/{kind}"));
            group.throughput(Throughput::Bytes(object.len() as u64));
            group.bench_function(BenchmarkId::new("ours", name), |b| b.iter(|| ours(black_box(&object), &patch)));
            group.bench_function(BenchmarkId::new("reference", name), |b| {
                b.iter(|| reference(black_box(&object), &patch));
            });
            group.finish();
            let (ours, reference) = (quickest(ours, &object, &patch), quickest(reference, &object, &patch));
            let ratio = ours.as_secs_f64() / reference.as_secs_f64();
            ratios.push(format!("{kind} {name}: {ours:?} / {reference:?} = {ratio:.3}"));
        }
    }
    ratios.iter().for_each(|ratio| eprintln!("{ratio}"));
}

criterion_group!(benches, patch);
criterion_main!(benches);

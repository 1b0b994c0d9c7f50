//! What it costs to find and check the object in a review that arrived in JSON.
//!
//! Hypothesis: at least 1 GB/s on both payloads. Beside it, serde_json with `RawValue` for the objects, as most people
//! would. Unit: bytes of the review per second.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

use std::{fmt::Write, hint::black_box};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gatepost::wire::{json, json_view, review_json};

const SIZE: usize = 256 << 10;

/// A Deployment with so many containers that it has the size: short keys and values, numbers, nesting.
fn short_keys() -> String {
    let mut object = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"big","namespace":"shop","labels":{"app":"big"}},"spec":{"replicas":3,"template":{"spec":{"containers":["#.to_owned();
    for n in 0.. {
        let comma = if n == 0 { "" } else { "," };
        write!(
            object,
            r#"{comma}{{"name":"c{n}","image":"registry.example.com/team/app:{n}","args":["--port={n}","--v=2"],"ports":[{{"containerPort":{n},"protocol":"TCP"}}],"env":[{{"name":"A","value":"b"}},{{"name":"POD","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"100m"}}}},"tty":false}}"#
        )
        .expect("written to memory");
        if object.len() >= SIZE {
            break;
        }
    }
    object + "]}}}}"
}

/// A ConfigMap that holds a script of short lines: an escape every eight bytes.
fn escapes() -> String {
    let text = r"abcdef\n".repeat(SIZE / 8);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{"script":"{text}"}}}}"#)
}

fn review(object: &str) -> Bytes {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11","kind":{{"group":"","version":"v1","kind":"ConfigMap"}},"resource":{{"group":"","version":"v1","resource":"configmaps"}},"requestKind":{{"group":"","version":"v1","kind":"ConfigMap"}},"requestResource":{{"group":"","version":"v1","resource":"configmaps"}},"name":"big","namespace":"shop","operation":"CREATE","userInfo":{{"username":"ann","groups":["system:masters","system:authenticated"]}},"object":{object},"oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
    .into()
}

fn view(c: &mut Criterion) {
    let mut group = c.benchmark_group("json_view");
    for (name, object) in [("short-keys", short_keys()), ("escapes", escapes())] {
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

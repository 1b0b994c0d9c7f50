//! Clock and counters: the cost of reading the time suspended, and of recording one call of a hook.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

#[path = "common/allocator.rs"]
mod allocator;

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use gatepost::telemetry::{HookOutcome, Metrics};
use gatepost_api::hook::HookType;
use gatepost_base::clock;

fn clock(criterion: &mut Criterion) {
    criterion.bench_function("slept", |bench| bench.iter(clock::suspended_time));
    let hook = Metrics::new(2).hook(HookType::Validating, &"a".into());
    criterion.bench_function("record a call", |bench| {
        bench.iter(|| hook.record(0, HookOutcome::Allowed, black_box(Duration::from_micros(700))));
    });
}

criterion_group!(benches, clock);
criterion_main!(benches);

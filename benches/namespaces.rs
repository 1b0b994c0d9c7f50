//! Reading one namespace's labels of ten thousand, while they change.
//!
//! Hypothesis: some tens of nanoseconds; no more beside a second reader of the same namespace, nor while a hundred
//! namespaces change each second. Beside it a map behind an `RwLock`. Unit: time per read.

#[path = "common/allocator.rs"]
mod allocator;

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{
        RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use gatepost::live::Namespaces;
use gatepost_api::Labels;

const NAMESPACES: usize = 10_000;
/// Between two of a hundred changes a second.
const PAUSE: Duration = Duration::from_millis(10);
const HOT: &str = "team-77-production";

fn name(number: usize) -> String {
    format!("team-{number}-production")
}

fn labels(number: usize) -> Labels {
    let number = number.to_string();
    [("kubernetes.io/metadata.name", "a-name"), ("tier", &number)].into_iter().collect()
}

/// Runs `measure` while `disturb` runs over and over on another thread.
fn beside(disturb: impl Fn(usize) + Sync, measure: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                disturb(count);
                count += 1;
            }
        });
        measure();
        stop.store(true, Ordering::Relaxed);
    });
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("namespaces");
    let (namespaces, _questions) = Namespaces::new(Instant::now());
    namespaces.replace((0..NAMESPACES).map(|number| (name(number).into(), labels(0))));
    let read = || namespaces.seen(black_box(HOT)).labels(HOT).is_some();
    let change = |count| {
        namespaces.set(&name(count % NAMESPACES), labels(count));
        thread::sleep(PAUSE);
    };
    group.bench_function("read", |b| b.iter(|| black_box(read())));
    beside(
        |_| _ = black_box(read()),
        || {
            group.bench_function("read, second reader", |b| b.iter(|| black_box(read())));
        },
    );
    beside(change, || {
        group.bench_function("read, 100 changes a second", |b| b.iter(|| black_box(read())));
    });
    beside(
        |count| namespaces.set(HOT, labels(count)),
        || {
            group.bench_function("read, its own changes without pause", |b| b.iter(|| black_box(read())));
        },
    );
    group.bench_function("change", |b| b.iter(|| namespaces.set(HOT, labels(1))));

    let locked: RwLock<HashMap<String, Labels>> =
        RwLock::new((0..NAMESPACES).map(|number| (name(number), labels(0))).collect());
    let read = || locked.read().is_ok_and(|known| known.get(black_box(HOT)).is_some());
    group.bench_function("rwlock", |b| b.iter(|| black_box(read())));
    beside(
        |_| _ = black_box(read()),
        || {
            group.bench_function("rwlock, second reader", |b| b.iter(|| black_box(read())));
        },
    );
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

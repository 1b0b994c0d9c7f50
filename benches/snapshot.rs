//! Reading what is in force, while it is being swapped.
//!
//! Hypothesis: `enter`, what a request does, takes less than 20 ns, and no more under a hundred swaps a second, nor
//! beside a second reader than beside a thread that reads something else. Beside it `load_full`, which counts in one
//! place for all threads, and the same behind an `RwLock`. Unit: time per read, and drop of what was read.

#[path = "common/allocator.rs"]
mod allocator;

use std::{
    hint::black_box,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use criterion::{Criterion, criterion_group, criterion_main};
use gatepost::{
    live::{Current, Generation},
    telemetry::Metrics,
};
use gatepost_config::Snapshot;

fn generation(number: u64) -> Arc<Generation> {
    Arc::new(Generation {
        number,
        published: SystemTime::UNIX_EPOCH,
        ..Generation::of(Arc::new(Snapshot::empty()), &Metrics::new(1))
    })
}

/// Runs `measure` while `disturb` runs over and over on another thread.
fn beside(disturb: impl Fn() + Sync, measure: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        measure();
        stop.store(true, Ordering::Relaxed);
    });
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot");
    let current = Current::new(Instant::now());
    current.publish(generation(1));
    let (enter, load) = (|| current.enter().number, || current.load().number);
    group.bench_function("enter", |b| b.iter(|| black_box(enter())));
    group.bench_function("load_full", |b| b.iter(|| black_box(load())));
    beside(
        || _ = black_box(enter()),
        || {
            group.bench_function("enter, second reader", |b| b.iter(|| black_box(enter())));
        },
    );
    // The cost of two cores of one processor to each other although they share nothing.
    let apart = Current::new(Instant::now());
    beside(
        || _ = black_box(apart.enter().number),
        || {
            group.bench_function("enter, beside a reader of something else", |b| b.iter(|| black_box(enter())));
        },
    );
    beside(
        || _ = black_box(load()),
        || {
            group.bench_function("load_full, second reader", |b| b.iter(|| black_box(load())));
        },
    );
    let often = || drop(current.publish(generation(2)));
    let now_and_then = || {
        often();
        thread::sleep(Duration::from_millis(10));
    };
    beside(now_and_then, || {
        group.bench_function("enter, 100 swaps a second", |b| b.iter(|| black_box(enter())));
    });
    beside(often, || {
        group.bench_function("enter, swaps without pause", |b| b.iter(|| black_box(enter())));
    });
    beside(often, || {
        group.bench_function("load_full, swaps without pause", |b| b.iter(|| black_box(load())));
    });
    let locked = RwLock::new(generation(1));
    let load = || locked.read().map(|generation| generation.clone());
    group.bench_function("rwlock", |b| b.iter(|| black_box(load()).is_ok()));
    beside(
        || drop(locked.write().map(|mut slot| *slot = generation(2))),
        || {
            group.bench_function("rwlock, swaps without pause", |b| b.iter(|| black_box(load()).is_ok()));
        },
    );
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

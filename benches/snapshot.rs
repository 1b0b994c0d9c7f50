//! Reading what is in force, while it is being swapped.
//!
//! Hypothesis: some tens of nanoseconds, and no worse while another thread publishes as fast as it can; beside it the
//! same behind an `RwLock`. Unit: time per load (and drop of what was loaded).

use std::{
    hint::black_box,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Instant, SystemTime},
};

use criterion::{Criterion, criterion_group, criterion_main};
use gatepost::{
    live::{Current, Generation},
    snapshot::Snapshot,
};

fn generation(number: u64) -> Arc<Generation> {
    Arc::new(Generation {
        number,
        digest: String::new(),
        revision: gatepost::model::Revision::Store(1),
        published: SystemTime::UNIX_EPOCH,
        snapshot: Arc::new(Snapshot::empty()),
        hooks: Vec::new(),
        bypassed: Vec::new(),
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
    let mut group = c.benchmark_group("snapshot-load");
    let current = Current::new(Instant::now());
    current.publish(generation(1));
    group.bench_function("quiet", |b| b.iter(|| black_box(current.load()).number));
    beside(
        || drop(black_box(current.load())),
        || {
            group.bench_function("second reader", |b| b.iter(|| black_box(current.load()).number));
        },
    );
    beside(
        || drop(current.publish(generation(2))),
        || {
            group.bench_function("under swap", |b| b.iter(|| black_box(current.load()).number));
        },
    );
    let locked = RwLock::new(generation(1));
    let load = || locked.read().map(|generation| generation.clone());
    group.bench_function("rwlock quiet", |b| b.iter(|| black_box(load()).is_ok()));
    beside(
        || drop(locked.write().map(|mut slot| *slot = generation(2))),
        || {
            group.bench_function("rwlock under swap", |b| b.iter(|| black_box(load()).is_ok()));
        },
    );
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

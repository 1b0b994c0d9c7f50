//! Time of the worst inputs that a caller or a hook can send.
//!
//! Each parser with what it finds hardest, at 256 KiB, 5 and 10 MiB. Hypotheses: time(10 MiB) ÷ time(5 MiB) is at most
//! 2.2 for every one of them; and 256 KiB, the most that is parsed on a worker (`offload::OFFLOAD_THRESHOLD`), take at most 5 ms.
//! The allocator is the product's: small answers make many small pieces. Unit: time per input, and bytes a second.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;
#[path = "common/worst_cases.rs"]
mod worst_cases;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("worst");
    group.sample_size(10);
    for case in worst_cases::ALL {
        for (size, name) in [(256 << 10, "256KiB"), (5 << 20, "5MiB"), (10 << 20, "10MiB")] {
            let work = (case.prepare)(size);
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new(case.name, name), |b| b.iter(&work));
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

//! From N outcomes to the one verdict.
//!
//! Hypothesis: below 10 ns a hook where all simply agree, below half a microsecond where they warn, note and deny;
//! nothing compared with asking them. Unit: time per review.

#[path = "common/allocator.rs"]
mod allocator;

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::{
    model::{Answer, CallFailure, Denial, FailurePolicy, StatusInfo},
    review::{
        combine::combine,
        decider::Decider,
        outcome::{Ending, Outcome},
    },
};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("hook{n}.example.com")).collect()
}

fn outcomes<'a>(names: &'a [String], ending: impl Fn(usize) -> Ending) -> Vec<Outcome<'a>> {
    let outcome = |(n, name): (usize, &'a String)| {
        let decider = Decider { name, id: name, failure_policy: FailurePolicy::Fail, chained: true };
        Outcome::ended(decider, ending(n), Duration::from_micros(300))
    };
    names.iter().enumerate().map(outcome).collect()
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("combine");
    for count in [1, 4, 16, 64] {
        let names = names(count);
        let allowed = outcomes(&names, |_| Ending::Answered(Answer::default()));
        group.bench_with_input(BenchmarkId::new("allowed", count), &allowed, |b, all| {
            b.iter(|| combine(&[], black_box(all), [&[], &[]], false));
        });
        let mixed = outcomes(&names, |n| match n % 3 {
            0 => Ending::Answered(Answer {
                warnings: vec![format!("hook {n} warns")],
                audit_annotations: vec![("checked".into(), "true".into())],
                ..Answer::default()
            }),
            1 => Ending::FailedOpen(CallFailure::Timeout(Duration::from_secs(1))),
            _ => Ending::Answered(Answer {
                denial: Some(Denial(Box::new(StatusInfo { message: "no".into(), ..StatusInfo::default() }))),
                ..Answer::default()
            }),
        });
        group.bench_with_input(BenchmarkId::new("mixed", count), &mixed, |b, all| {
            b.iter(|| combine(&[], black_box(all), [&[], &[]], false));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

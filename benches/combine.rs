//! From N outcomes to the one verdict.
//!
//! Hypothesis: below 10 ns a hook where all simply agree, below half a microsecond where they warn, note and deny;
//! nothing compared with asking them. Unit: time per review.

#[path = "common/allocator.rs"]
mod allocator;

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::review::{CallRecord, Decider, Ending, combine};
use gatepost_api::{Answer, CallFailure, Denial, FailurePolicy, HookType, StatusInfo};

/// A hook that may itself be a sidecar.
#[derive(Debug)]
struct Chained(String);

impl Decider for Chained {
    fn name(&self) -> &str {
        &self.0
    }

    fn id(&self) -> &str {
        &self.0
    }

    fn failure_policy(&self) -> FailurePolicy {
        FailurePolicy::Fail
    }

    fn is_chained(&self) -> bool {
        true
    }
}

fn calls(hooks: &[Chained], ending: impl Fn(usize) -> Ending) -> Vec<CallRecord<'_>> {
    let call =
        |(n, hook): (usize, _)| CallRecord::new(hook, HookType::Validating, ending(n), Duration::from_micros(300));
    hooks.iter().map(|hook| hook as &dyn Decider).enumerate().map(call).collect()
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("combine");
    for count in [1, 4, 16, 64] {
        let hooks: Vec<_> = (0..count).map(|n| Chained(format!("hook{n}.example.com"))).collect();
        let allowed = calls(&hooks, |_| Ending::Answered(Answer::default()));
        group.bench_with_input(BenchmarkId::new("allowed", count), &allowed, |b, all| {
            b.iter(|| combine(black_box(all), false));
        });
        let mixed = calls(&hooks, |n| match n % 3 {
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
            b.iter(|| combine(black_box(all), false));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

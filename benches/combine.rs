//! From N outcomes to the one verdict.
//!
//! Hypothesis: below 10 ns a hook where all simply agree, below half a microsecond where they warn, note and deny;
//! nothing compared with asking them. Unit: time per review.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

use std::{
    hint::black_box,
    time::{Duration, SystemTime},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gatepost::{
    admit::{
        combine::combine,
        outcome::{Ending, Outcome},
    },
    hooks::Channel,
    live::{LiveHook, Rotation, Target},
    model::{Answer, CallFailure, Denial, StatusInfo},
    snapshot::{SourceFile, load},
    telemetry::Metrics,
};

fn hooks(count: usize) -> Vec<LiveHook> {
    let entries: Vec<String> = (0..count)
        .map(|n| {
            format!(r#"{{"name":"hook{n}.example.com","clientConfig":{{"url":"grpc://127.0.0.1:9001"}},"rules":[]}}"#)
        })
        .collect();
    let text = format!(
        r#"{{"apiVersion":"gatepost.dev/v1alpha1","kind":"AdmissionControlConfiguration","metadata":{{"name":"bench"}},"externalAdmissionHooks":[{}]}}"#,
        entries.join(",")
    );
    let file = SourceFile { name: "bench.json".into(), bytes: text.into() };
    let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("no problem");
    let metrics = Metrics::new(1);
    snapshot
        .hooks
        .iter()
        .map(|hook| LiveHook {
            hook: hook.clone(),
            target: Target::new(hook.clone(), Channel::open(hook.endpoint.clone(), None, &[])),
            rotation: Rotation::Active { since: SystemTime::UNIX_EPOCH },
            metrics: metrics.hook(&hook.name),
            replacing: None,
            overdue: None,
        })
        .collect()
}

fn outcomes<'a>(hooks: &'a [LiveHook], ending: impl Fn(usize) -> Ending) -> Vec<Outcome<'a>> {
    let outcome = |(n, live)| Outcome { live, ending: ending(n), took: Duration::from_micros(300) };
    hooks.iter().enumerate().map(outcome).collect()
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("combine");
    for count in [1, 4, 16, 64] {
        let hooks = hooks(count);
        let allowed = outcomes(&hooks, |_| Ending::Answered(Answer::default()));
        group.bench_with_input(BenchmarkId::new("allowed", count), &allowed, |b, all| {
            b.iter(|| combine(black_box(all), &[]));
        });
        let mixed = outcomes(&hooks, |n| match n % 3 {
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
            b.iter(|| combine(black_box(all), &[]));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

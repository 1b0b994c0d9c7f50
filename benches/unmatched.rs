//! Cost of mutating hooks to a review that none of them matches.
//!
//! Hypothesis: at most 5 % more than deciding the same review where no mutating hook is configured, as both phases of a
//! review and as the mutating one alone. Ten validating hooks stand in either configuration, and match as little. Unit:
//! time per decision. The two are decided in turns, so that a busy machine slows both; the last lines of a run print the
//! ratio of their medians.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;
#[path = "../tests/support/gate.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests share it")]
mod gate;
#[path = "../tests/support/reviews.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests share it")]
mod reviews;

use std::{
    env,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gate::{caller, document};
use gatepost::review::{AdmissionDeps, Caller, Reasons, decide};
use gatepost_api::{Phase, Review, Rope};
use gatepost_wire::inbound::view;
use reviews::{create_pod, message};
use tokio::runtime::{Builder, Runtime};

const HOOKS: usize = 10;
const AN_HOUR: Duration = Duration::from_secs(3600);

/// Hooks of one type, each for a resource of its own.
fn hooks(hook_type: &str) -> impl Iterator<Item = String> {
    (0..HOOKS).map(move |n| {
        format!(
            "- name: h{n}.{}.example.com\n  type: {hook_type}\n  sideEffects: None\n  clientConfig: {{url: \
             \"grpc://127.0.0.1:9001\"}}\n  rules: [{{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], \
             resources: [things{n}]}}]\n",
            hook_type.to_lowercase()
        )
    })
}

fn gate_of(entries: &[String]) -> Arc<AdmissionDeps> {
    let gate = gate::gate(&document(entries), Reasons::First);
    gate.current.freshness().stamp_awake(Instant::now() + AN_HOUR);
    gate
}

fn decided(runtime: &Runtime, gate: &AdmissionDeps, review: &Review, caller: &Caller, times: u32) -> Duration {
    runtime.block_on(async {
        let start = Instant::now();
        for _ in 0..times {
            assert!(black_box(decide(gate, black_box(review), caller).await).allowed());
        }
        start.elapsed() / times
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn unmatched(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let without: Vec<_> = hooks("Validating").collect();
    let with: Vec<_> = hooks("Validating").chain(hooks("Mutating")).collect();
    let gates = runtime.block_on(async { [gate_of(&without), gate_of(&with)] });
    let review = view(Rope::new([message(create_pod("u", 2 << 10))])).expect("a review");
    let mut ratios = Vec::new();
    for (name, phase) in [("Review", Phase::Review), ("Mutate", Phase::Mutate)] {
        let caller = Caller { phase, ..caller(AN_HOUR) };
        let mut group = c.benchmark_group(format!("unmatched/{name}"));
        for (hooks, gate) in ["none configured", "none matches"].iter().zip(&gates) {
            group.bench_function(BenchmarkId::from_parameter(hooks), |b| {
                b.iter_custom(|times| {
                    let times = u32::try_from(times).unwrap_or(u32::MAX);
                    times * decided(&runtime, gate, &review, &caller, times)
                });
            });
        }
        group.finish();
        let mut times = [Vec::new(), Vec::new()];
        // `cargo test --benches` only looks whether it works.
        let runs = if env::args().any(|argument| argument == "--bench") { 500 } else { 1 };
        for _ in 0..runs {
            for (times, gate) in times.iter_mut().zip(&gates) {
                times.push(decided(&runtime, gate, &review, &caller, 200));
            }
        }
        let [without, with] = times.map(median);
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        ratios.push(format!("{name}: {with:?} / {without:?} = {ratio:.3}"));
    }
    ratios.iter().for_each(|ratio| eprintln!("{ratio}"));
}

criterion_group!(benches, unmatched);
criterion_main!(benches);

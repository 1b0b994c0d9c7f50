use std::time::Duration;

use super::*;
use crate::{apiserver::writers::WriteResults, figures::ENOUGH, size::Size};

/// A repetition of `writes` writes that took `milliseconds` each.
fn repetition(variant: Variant, number: usize, (writes, milliseconds): (u64, u64), cpu: Cpu) -> Repetition {
    let mut latencies = histogram().unwrap();
    latencies.record_n(milliseconds * 1_000_000, writes).unwrap();
    let elapsed = Duration::from_millis(writes * milliseconds);
    Repetition::new(variant, number, WriteResults { latencies, elapsed }, cpu, 16.0).unwrap()
}

fn cpu(apiserver: f64, sidecar: f64) -> Cpu {
    Cpu { apiserver, sidecar, hooks: 9.0 }
}

fn cell() -> Cell {
    let repetitions = vec![
        repetition(Variant::None, 0, (100, 1), cpu(0.1, 0.0)),
        repetition(Variant::Direct, 0, (100, 8), cpu(0.5, 0.0)),
        repetition(Variant::Json, 0, (100, 4), cpu(0.2, 0.1)),
        // The second begins elsewhere, and beside a neighbour.
        repetition(Variant::Json, 1, (100, 4), cpu(0.6, 0.1)),
        repetition(Variant::None, 1, (100, 1), cpu(0.5, 0.0)),
        repetition(Variant::Direct, 1, (100, 8), cpu(0.9, 0.0)),
        repetition(Variant::None, 2, (100, 1), cpu(0.1, 0.0)),
        repetition(Variant::Direct, 2, (100, 8), cpu(0.9, 0.0)),
        repetition(Variant::Json, 2, (100, 4), cpu(0.2, 0.1)),
    ];
    Cell { course: "table", size: Size(50 << 10), hooks: 16, repetitions }
}

#[test]
fn what_hooks_add_is_apiserver_and_sidecar_less_none_in_the_same_repetition() {
    let json = cell().tally(Variant::Json).unwrap();
    assert!((json.added - 2000.0).abs() < 1e-6, "{json:?}");
    assert!((json.cpu.apiserver - 2000.0).abs() < 1e-6 && (json.cpu.hooks - 90_000.0).abs() < 1e-6, "{json:?}");
    assert!((cell().added_ratio(Variant::Json, Variant::Direct) - 0.5).abs() < 1e-6);
}

#[test]
fn percentiles_and_rate_are_those_of_all_writes() {
    let direct = cell().tally(Variant::Direct).unwrap();
    assert_eq!(direct.writes, 300);
    assert!((direct.rate - 125.0).abs() < 1e-6, "{direct:?}");
    assert!((cell().p99_ratio(Variant::Json, Variant::Direct) - 0.5).abs() < 0.01);
    assert!(cell().tally(Variant::Grpc).is_none());
}

#[test]
fn targets_are_judged_and_few_writes_are_reported() {
    let judged = crate::apiserver::judge::cell(&cell());
    let lines: Vec<_> = judged.iter().map(|judged| format!("{}: {}", judged.what, judged.verdict())).collect();
    assert_eq!(
        lines,
        [
            "50K, 16 hooks: added CPU, (b) ÷ (a): **missed**",
            "50K, 16 hooks: p99, (b) ÷ (a): hit (indicative: 300 writes)"
        ],
        "without (c) there is nothing to say of it, and {ENOUGH} writes are enough"
    );
}

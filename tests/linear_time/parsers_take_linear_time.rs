//! Every parser of callers' and hooks' bytes takes time that grows with the bytes and not with their square, whatever
//! they are. The measure is this thread's CPU time for so many bytes and for sixteen times as many: linear is 16,
//! quadratic is 256, and the bound lies between.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

#[path = "../../benches/common/worst_cases.rs"]
mod worst_cases;

use std::time::Duration;

use crate::cpu;
use worst_cases::{ALL, WorstCase};

const SMALL: usize = 16 << 10;
const TIMES: usize = 16;
/// Three times linear: caches, sorting and a busy machine have their part.
const BOUND: u32 = 48;
/// Below this a measurement says more about the clock.
const LEAST: Duration = Duration::from_micros(100);

#[test]
fn sixteen_times_the_bytes_take_sixteen_times_as_long() {
    let slow: Vec<_> = ALL.iter().filter(|case| !is_linear(case)).map(|case| case.name).collect();
    assert!(slow.is_empty(), "more than linear: {slow:?}");
}

/// The quickest of a few runs each; one good comparison suffices, as noise only ever makes a run slower.
fn is_linear(case: &WorstCase) -> bool {
    let quickest = |size: usize, runs: usize| {
        let work = (case.prepare)(size);
        (0..runs).map(|_| cpu::of(&work)).min().unwrap_or_default()
    };
    let small = quickest(SMALL, 5).max(LEAST);
    (0..3).any(|_| quickest(SMALL * TIMES, 1) <= small * BOUND)
}

#[test]
fn quadratic_work_is_found() {
    let prepare = |size: usize| -> Box<dyn Fn()> {
        let items: Vec<_> = (0..size / 16).collect();
        Box::new(move || {
            let repeats = items.iter().filter(|item| items.iter().filter(|other| other == item).count() > 1).count();
            assert_eq!(repeats, 0);
        })
    };
    assert!(!is_linear(&WorstCase { name: "each with each", prepare }));
}

//! The figures, one file a group. Every ratio is a median of per-repetition ratios, so that a noisy neighbour who
//! stays for a while disturbs both sides of a repetition and not the comparison.

pub(crate) mod allocations;
pub(crate) mod cpu;
pub(crate) mod hung;
pub(crate) mod latency;
pub(crate) mod memory;

use crate::rig::Pair;

/// Samples a p99 needs before it is judged.
pub(crate) const ENOUGH: u64 = 10_000;

/// The middle value; the lower of two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Medians of one quantity over all repetitions: naive, ours, and `ratio(naive, ours)`.
pub(crate) fn medians(
    pairs: &[Pair],
    of: impl Fn(&crate::generate::Report) -> f64,
    ratio: fn(f64, f64) -> f64,
) -> (f64, f64, f64) {
    let over = |value: &dyn Fn(&Pair) -> f64| median(pairs.iter().map(value).collect());
    (over(&|pair| of(&pair.naive)), over(&|pair| of(&pair.ours)), over(&|pair| ratio(of(&pair.naive), of(&pair.ours))))
}

fn naive_over_ours(naive: f64, ours: f64) -> f64 {
    naive / ours
}

fn ours_over_naive(naive: f64, ours: f64) -> f64 {
    ours / naive
}

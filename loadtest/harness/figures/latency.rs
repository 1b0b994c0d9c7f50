//! p50 and p99 at a fixed moderate rate, open loop.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{ENOUGH, median, ours_over_naive};
use crate::{
    Fallible,
    generate::{Report, histogram},
    plan::Plan,
    results::{Results, Row},
    rig::{Load, Pair, Rig, Setting, Shape, Side, Workshop},
    size::Size,
    targets,
};

/// Of what the naive side manages in a closed loop: a rate above this is no longer moderate...
const MOST: f64 = 0.40;

/// ...and becomes this.
const MODERATE: f64 = 0.28;

/// Latency takes more and shorter repetitions than the rest: a pause of the machine then spoils few of them.
const FINER: usize = 3;

/// Longest measurement of one side in one cell of a quick run.
const QUICK_CAP: Duration = Duration::from_secs(16);

/// The cells of a quick run.
const QUICK: [(usize, usize); 4] = [(2 << 10, 4), (32 << 10, 16), (256 << 10, 4), (1 << 20, 4)];

/// Every size x 1, 4, 16 hooks; one hook is informational.
pub(crate) fn measure(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    for hooks in plan.hooks(&[4, 16, 1]) {
        let sizes =
            plan.sizes().into_iter().filter(|size| !plan.quick || plan.is_chosen() || QUICK.contains(&(size.0, hooks)));
        let mut rig = None;
        for size in sizes {
            if rig.is_none() {
                rig = Some(Rig::start(workshop, Setting { hooks, ..Setting::default() })?);
            }
            if let Some(rig) = &rig {
                cell(plan, rig, (size, hooks), results)?;
            }
        }
    }
    Ok(())
}

fn cell(plan: &Plan, rig: &Rig<'_>, (size, hooks): (Size, usize), results: &mut Results) -> Fallible<()> {
    let rate = moderate_rate(rig, (size, hooks), results)?;
    let mut total = Duration::from_secs_f64(plan.samples as f64 / rate);
    if plan.quick {
        total = total.min(QUICK_CAP);
    }
    let reps = plan.reps * FINER;
    let pairs = rig.interleaved(reps, &Load::new(Shape::Open(rate), size, total / u32::try_from(reps)?))?;
    results.keep(&format!("latency-{size}-{hooks}"), &pairs)?;
    let expired: (u64, u64) =
        pairs.iter().fold((0, 0), |(naive, ours), pair| (naive + pair.naive.expired, ours + pair.ours.expired));
    if expired != (0, 0) {
        let (naive, ours) = expired;
        results
            .note(format!("latency {size} x {hooks}: reviews given up at their deadline: naive {naive}, ours {ours}"));
    }

    let (naive, ours) = (merged(&pairs, Side::Naive)?, merged(&pairs, Side::Ours)?);
    let at = |quantile| (micros(&naive, quantile), micros(&ours, quantile));
    let (naive_p50, ours_p50) = at(0.5);
    let ratios = pairs.iter().map(|pair| ours_over_naive(pair.naive.p50(), pair.ours.p50()));
    let p50 = (naive_p50, ours_p50, median(ratios.collect()));
    results.row(Row::of_ratio("p50_us_at_rate", (size, hooks), p50, targets::p50(size, hooks)))?;

    // A shared machine stands still for some milliseconds now and then, on either side: the median over repetitions
    // is not moved by it, the p99 of all samples together (the row below) is.
    let each = |side: fn(&Pair) -> f64| median(pairs.iter().map(side).collect());
    let naive_p99 = each(|pair| pair.naive.p99() / 1e3);
    let ours_p99 = each(|pair| pair.ours.p99() / 1e3);
    let ratio = each(|pair| ours_over_naive(pair.naive.p99(), pair.ours.p99()));
    let row = Row::of_ratio("p99_us_at_rate", (size, hooks), (naive_p99, ours_p99, ratio), targets::p99(hooks));
    results.row(if naive.len().min(ours.len()) < ENOUGH { row.indicative() } else { row })?;

    let (naive_all, ours_all) = at(0.99);
    let all = (naive_all, ours_all, ours_over_naive(naive_all, ours_all));
    results.row(Row::of_ratio("p99_us_all_samples", (size, hooks), all, None))
}

/// The spike's rate for the cell, or less where this machine's naive side is closer to its limit.
fn moderate_rate(rig: &Rig<'_>, (size, hooks): (Size, usize), results: &mut Results) -> Fallible<f64> {
    let warm_up = Duration::from_secs(1);
    let load = Load { warm_up, ..Load::new(Shape::Closed(8), size, Duration::from_secs(2)) };
    let limit = rig.run(Side::Naive, &load)?.rate;
    let table = table_rate(size, hooks);
    let rate = if table <= MOST * limit { table } else { (MODERATE * limit).max(1.0).floor() };
    results.note(format!("latency {size} x {hooks}: {rate:.0} reviews/s; the naive side manages {limit:.0}/s"));
    Ok(rate)
}

/// Reviews a second, from the measurements the targets come from.
fn table_rate(size: Size, hooks: usize) -> f64 {
    let column = Size::TABLE.iter().position(|known| *known >= size).unwrap_or(Size::TABLE.len() - 1);
    let row = match hooks {
        1 => [1000.0, 1000.0, 1000.0, 300.0],
        2..=4 => [1000.0, 1000.0, 500.0, 130.0],
        _ => [1000.0, 800.0, 130.0, 25.0],
    };
    row[column]
}

/// All repetitions of one side in one histogram.
fn merged(pairs: &[Pair], side: Side) -> Fallible<Histogram<u64>> {
    let mut all = histogram()?;
    for pair in pairs {
        let report: &Report = if side == Side::Naive { &pair.naive } else { &pair.ours };
        report.add_to(&mut all)?;
    }
    Ok(all)
}

fn micros(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

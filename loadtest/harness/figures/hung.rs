//! One of 16 hooks hung, under `Ignore` with 100 ms: latency of the reviews that do not concern it.
//!
//! Pods concern 15 hooks, config maps the sixteenth as well. 1,000 pods a second are measured while a few config maps
//! a second keep the hung hook's calls outstanding. Both columns are the product: without a hung hook, and with one.

use std::time::Duration;

use serde::Serialize;

use super::{ENOUGH, median, ours_over_naive};
use crate::{
    Fallible,
    generate::{Report, histogram},
    plan::{Ours, Plan},
    results::{Results, Row},
    review::Subject,
    rig::{Hooks, Load, Rig, Setting, Shape, Side, Workshop},
    size::Size,
    targets,
};

const SIZE: Size = Size(2 << 10);
const HOOKS: usize = 16;
const RATE: f64 = 1000.0;

/// Config maps a second; each leaves one call hanging for 100 ms.
const CONCERNED: f64 = 50.0;

/// p99 of pods, with the hung hook / without.
pub(crate) fn measure(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    if workshop.ours == Ours::Naive {
        results.note("hung hook: skipped, the naive reference has no failure policy".to_owned());
        return Ok(());
    }
    let healthy = Rig::start(workshop, Setting { hooks: HOOKS, first: Hooks::Apart, ..Setting::default() })?;
    let hung = Rig::start(workshop, Setting { hooks: HOOKS, first: Hooks::Hangs, ..Setting::default() })?;
    let window = Duration::from_secs_f64(plan.samples as f64 / RATE / plan.reps as f64);
    let mut pairs = Vec::with_capacity(plan.reps);
    for _ in 0..plan.reps {
        let without = pods_beside_config_maps(workshop, &healthy, window)?;
        pairs.push(Pair { without, with: pods_beside_config_maps(workshop, &hung, window)? });
    }
    results.keep("hung", &pairs)?;
    let (without, with) =
        (p99_us(pairs.iter().map(|pair| &pair.without))?, p99_us(pairs.iter().map(|pair| &pair.with))?);
    let values = (without, with, ours_over_naive(without, with));
    let row = Row::of_ratio("hung_hook_p99_us_of_others", (SIZE, HOOKS), values, Some(targets::HUNG));
    results.row(if plan.samples < ENOUGH { row.indicative() } else { row })?;
    let p50 = |of: fn(&Pair) -> &Report| median(pairs.iter().map(|pair| of(pair).p50() / 1e3).collect());
    let (without, with) = (p50(|pair| &pair.without), p50(|pair| &pair.with));
    let values = (without, with, ours_over_naive(without, with));
    results.row(Row::of_ratio("hung_hook_p50_us_of_others", (SIZE, HOOKS), values, None))
}

/// One repetition; both are the product.
#[derive(Serialize)]
struct Pair {
    without: Report,
    with: Report,
}

fn pods_beside_config_maps(workshop: &Workshop, rig: &Rig<'_>, window: Duration) -> Fallible<Report> {
    let config_maps = Load { subject: Subject::ConfigMap, ..Load::new(Shape::Open(CONCERNED), SIZE, window) };
    let beside = config_maps.start(workshop, &rig.ours)?;
    let report = rig.run(Side::Ours, &Load::new(Shape::Open(RATE), SIZE, window))?;
    beside.report()?;
    Ok(report)
}

fn p99_us<'a>(reports: impl Iterator<Item = &'a Report>) -> Fallible<f64> {
    let mut all = histogram()?;
    for report in reports {
        report.add_to(&mut all)?;
    }
    Ok(all.value_at_quantile(0.99) as f64 / 1e3)
}

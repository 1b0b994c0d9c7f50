//! Allocations of one more hook: the counting build, one review at a time, 16 hooks less 4, over 12.

use std::{thread, time::Duration};

use serde::Serialize;

use super::median;
use crate::{
    Fallible,
    generate::{Counts, Report},
    plan::Plan,
    results::{Results, Row},
    rig::{Load, Rig, Setting, Shape, Side, Workshop},
    size::Size,
    targets,
};

const FEW: usize = 4;
const MANY: usize = 16;

/// Time for which an idle sidecar is watched for allocations of its own (it re-reads its source every second).
const IDLE: Duration = Duration::from_secs(3);

/// Bytes and allocations of 4 KiB and more, per extra hook, at every size.
pub(crate) fn measure(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    let few = PerSize::measure(plan, workshop, FEW, results)?;
    let many = PerSize::measure(plan, workshop, MANY, results)?;
    for (few, many) in few.iter().zip(&many) {
        let cell = (few.size, MANY);
        let bytes = |side| extra(few, many, side, |cost| cost.bytes);
        let (naive, ours) = (bytes(Side::Naive), bytes(Side::Ours));
        results.row(Row::of_value("alloc_bytes_per_extra_hook", cell, (naive, ours), targets::BYTES_PER_HOOK))?;
        let large = |side| extra(few, many, side, |cost| cost.large);
        let (naive, ours) = (large(Side::Naive), large(Side::Ours));
        results.row(Row::of_value("allocs_4k_per_extra_hook", cell, (naive, ours), targets::LARGE_PER_HOOK))?;
        let count = |side| extra(few, many, side, |cost| cost.allocations);
        let ratio = count(Side::Ours) / count(Side::Naive);
        let counts = (count(Side::Naive), count(Side::Ours), ratio);
        results.row(Row::of_ratio("allocs_per_extra_hook", cell, counts, None))?;
    }
    Ok(())
}

/// Cost of one review; medians over the repetitions.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    bytes: f64,
    allocations: f64,
    large: f64,
}

/// Costs at one size, a side each.
#[derive(Debug, Serialize)]
struct PerSize {
    size: Size,
    naive: Cost,
    ours: Cost,
}

impl PerSize {
    fn measure(plan: &Plan, workshop: &Workshop, hooks: usize, results: &Results) -> Fallible<Vec<Self>> {
        let rig = Rig::start(workshop, Setting { hooks, counted: true, ..Setting::default() })?;
        let idle = [idle(&rig, Side::Naive)?, idle(&rig, Side::Ours)?];
        let mut costs = Vec::new();
        for size in plan.sizes() {
            let count = if size.0 > 64 << 10 { 150 } else { 1000 };
            let reps = if plan.quick { 3.min(plan.reps) } else { plan.reps };
            let pairs = rig.interleaved(reps, &Load::new(Shape::Sequence(count), size, Duration::ZERO))?;
            let naive = Cost::median(pairs.iter().map(|pair| &pair.naive), &idle[0]);
            let ours = Cost::median(pairs.iter().map(|pair| &pair.ours), &idle[1]);
            costs.push(Self { size, naive, ours });
        }
        results.keep(&format!("allocations-{hooks}"), &costs)?;
        Ok(costs)
    }
}

impl Cost {
    fn median<'a>(reports: impl Iterator<Item = &'a Report>, idle: &Counts) -> Self {
        let counted: Vec<_> = reports.filter_map(|report| Some((report, report.counts?))).collect();
        let per_review = |used: fn(&Counts) -> u64| {
            let costs = counted.iter().map(|(report, counts)| {
                let background = used(idle) as f64 / IDLE.as_secs_f64() * report.seconds;
                (used(counts) as f64 - background) / report.reviews as f64
            });
            median(costs.collect())
        };
        Self {
            bytes: per_review(|counts| counts.bytes),
            allocations: per_review(|counts| counts.allocations),
            large: per_review(|counts| counts.large),
        }
    }
}

fn idle(rig: &Rig<'_>, side: Side) -> Fallible<Counts> {
    let socket = rig.sidecar(side).counts.as_deref().ok_or("the sidecar does not count")?;
    let before = Counts::read(socket)?;
    thread::sleep(IDLE);
    Ok(Counts::read(socket)?.since(before))
}

fn extra(few: &PerSize, many: &PerSize, side: Side, of: fn(&Cost) -> f64) -> f64 {
    let cost = |at: &PerSize| of(if side == Side::Naive { &at.naive } else { &at.ours });
    (cost(many) - cost(few)) / (MANY - FEW) as f64
}

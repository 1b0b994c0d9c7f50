//! Sidecar CPU per review and throughput, closed loop: 8 reviews in flight over 2 connections.

use super::{medians, naive_over_ours, ours_over_naive};
use crate::{
    Fallible,
    plan::Plan,
    results::{Results, Row},
    rig::{Load, Pair, Rig, Setting, Shape, Workshop},
    size::Size,
    targets,
};

const IN_FLIGHT: usize = 8;

/// Plain TCP to the hooks: every size x 1, 4, 16 hooks; throughput at 16.
pub(crate) fn plain(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    for hooks in plan.hooks(&[1, 4, 16]) {
        let rig = Rig::start(workshop, Setting { hooks, ..Setting::default() })?;
        for size in plan.sizes() {
            let pairs = closed_loop(plan, &rig, size)?;
            results.keep(&format!("cpu-{size}-{hooks}"), &pairs)?;
            let cpu = medians(&pairs, cpu_us, naive_over_ours);
            results.row(Row::of_ratio("cpu_per_review_us", (size, hooks), cpu, targets::cpu(size, hooks)))?;
            let rate = medians(&pairs, |report| report.rate, ours_over_naive);
            let target = targets::throughput().filter(|_| hooks == 16);
            results.row(Row::of_ratio("throughput_rps", (size, hooks), rate, target))?;
        }
    }
    Ok(())
}

/// Mutual TLS to the hooks, plain front, 4 hooks.
pub(crate) fn mutual_tls(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    for hooks in plan.hooks(&[4]) {
        let rig = Rig::start(workshop, Setting { hooks, tls: true, ..Setting::default() })?;
        for size in plan.sizes() {
            let pairs = closed_loop(plan, &rig, size)?;
            results.keep(&format!("mtls-{size}-{hooks}"), &pairs)?;
            let cpu = medians(&pairs, cpu_us, naive_over_ours);
            results.row(Row::of_ratio("mtls_cpu_per_review_us", (size, hooks), cpu, targets::mtls(size, hooks)))?;
        }
    }
    Ok(())
}

/// Pairs of runs in a closed loop.
fn closed_loop(plan: &Plan, rig: &Rig, size: Size) -> Fallible<Vec<Pair>> {
    let load = Load::new(Shape::Closed(IN_FLIGHT), size, plan.window());
    Ok(rig.interleaved(plan.reps, &load)?.into_iter().map(Pair::slim).collect())
}

fn cpu_us(report: &crate::generate::Report) -> f64 {
    report.cpu_us_per_review.unwrap_or(f64::NAN)
}

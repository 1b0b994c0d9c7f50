//! Peak memory with 64 reviews of 1 MiB in flight to 16 hooks, in multiples of the objects' own 64 MiB.

use std::time::Duration;

use serde::Serialize;

use super::median;
use crate::{
    Fallible,
    generate::Counts,
    plan::Plan,
    process,
    results::{Results, Row},
    rig::{Load, Rig, Setting, Shape, Side, Workshop},
    size::Size,
    targets::{self, Target},
};

const IN_FLIGHT: usize = 64;
const HOOKS: usize = 16;
const SIZE: Size = Size(1 << 20);

/// Hooks wait this long before they read, so that every review really is in flight at once.
const HOLD: Duration = Duration::from_millis(150);

/// Peak live heap from the counting build, peak RSS from the build as shipped.
pub(crate) fn measure(plan: &Plan, workshop: &Workshop, results: &mut Results) -> Fallible<()> {
    let reps = if plan.quick { 1 } else { plan.reps };
    figure("peak_live_heap_over_objects", (workshop, true), targets::PEAK_HEAP, reps, results)?;
    figure("peak_rss_over_objects", (workshop, false), targets::PEAK_RSS, reps, results)
}

/// Peaks of both sides, in bytes.
#[derive(Debug, Serialize)]
struct Peaks {
    naive: Vec<f64>,
    ours: Vec<f64>,
}

fn figure(
    name: &'static str,
    (workshop, counted): (&Workshop, bool),
    target: Target,
    reps: usize,
    results: &mut Results,
) -> Fallible<()> {
    let mut peaks = Peaks { naive: Vec::new(), ours: Vec::new() };
    for _ in 0..reps {
        // Fresh processes every time: the most resident memory a process ever had never goes down.
        let rig = Rig::start(workshop, Setting { hooks: HOOKS, counted, delay: HOLD, ..Setting::default() })?;
        peaks.naive.push(peak(&rig, Side::Naive)?);
        peaks.ours.push(peak(&rig, Side::Ours)?);
    }
    results.keep(name, &peaks)?;
    let objects = (IN_FLIGHT * SIZE.0) as f64;
    let values = (median(peaks.naive) / objects, median(peaks.ours) / objects);
    results.row(Row::of_value(name, (SIZE, HOOKS), values, target))
}

fn peak(rig: &Rig<'_>, side: Side) -> Fallible<f64> {
    let sidecar = rig.sidecar(side);
    if let Some(socket) = &sidecar.counts {
        Counts::reset(socket)?;
    }
    let deadline = Duration::from_secs(30);
    let shape = Shape::Closed(IN_FLIGHT);
    let load = Load { deadline, warm_up: Duration::ZERO, ..Load::new(shape, SIZE, Duration::from_secs(4)) };
    rig.run(side, &load)?;
    Ok(match &sidecar.counts {
        Some(socket) => Counts::read(socket)?.peak as f64,
        None => process::peak_resident(sidecar.pid())? as f64,
    })
}

//! Holds: resident memory of a sidecar while many new objects are held, above that of the idle process.
//!
//! Instances take all of them and answer after a while, so that each CREATE can be seen to end well. A sidecar of its own
//! for each repetition, so that the most resident memory that it ever had is that of these holds.

use std::{thread, time::Duration};

use serde::Serialize;

use super::{
    Settings,
    attach::WINDOW,
    served::{Acting, Served},
};
use crate::{
    Fallible,
    machine::Pinning,
    process,
    results::{Finding, Findings},
    rig::{Load, Shape, Workshop, metric},
    targets,
};

const NAMES: &[&str] = &["slow.load.example.com"];
/// Streams of one connection of the caller; the sidecar takes 256.
const STREAMS: usize = 200;
/// Objects held that the target is about.
const OBJECTS: usize = 1000;
/// Time to look at what is resident once all are held.
const SETTLE: Duration = Duration::from_secs(1);

/// One repetition, in bytes.
#[derive(Serialize)]
struct Memory {
    /// Resident once instances are attached and nothing is held.
    idle: u64,
    /// Resident with all objects held.
    held: u64,
    /// The most that was ever resident, up to then.
    peak: u64,
    /// Resident a while after the last answer.
    left: u64,
}

/// The most resident memory less that of the idle process; the worst of three repetitions.
pub(super) fn measure(settings: &Settings, workshop: &Workshop, findings: &mut Findings) -> Fallible<()> {
    let reps = if settings.quick { 1 } else { 3 };
    let repetitions = (0..reps).map(|_| once(settings, workshop)).collect::<Fallible<Vec<_>>>()?;
    findings.keep("holds", &repetitions)?;
    let worst = repetitions.iter().max_by_key(|memory| memory.peak.saturating_sub(memory.idle));
    let worst = worst.ok_or("no repetition")?;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut finding = |figure, most: u64, target| {
        let (beside, ours) = (Some(mebibytes(worst.idle)), mebibytes(most));
        let (cell, value) = (format!("{} held {}", settings.holds, settings.size), ours - mebibytes(worst.idle));
        findings.add(Finding { figure, cell, unit: "MiB", beside, ours, value, target, few: false })
    };
    let target = (settings.holds >= OBJECTS).then_some(targets::HOLDS);
    finding("holds_peak_rss_above_idle", worst.peak, target)?;
    finding("holds_rss_above_idle", worst.held, None)?;
    finding("holds_rss_left", worst.left, None)
}

fn once(settings: &Settings, workshop: &Workshop) -> Fallible<Memory> {
    let instances = settings.holds.div_ceil(WINDOW).max(1);
    let acting = Acting { names: NAMES, instances, delay: settings.held, tell: settings.holds };
    let unpinned = Pinning { sidecar: None, load: None };
    let served = Served::start(workshop, settings, unpinned, acting)?;
    let pid = served.sidecar.pid();
    let idle = process::resident(pid)?;
    let shape = Shape::Burst(settings.holds, settings.holds.div_ceil(STREAMS));
    let load = Load { mutate: true, deadline: Duration::from_secs(25), ..Load::new(shape, settings.size, SETTLE) };
    let running = load.start(workshop, &served.sidecar)?;
    let initializers = served.initializers.as_ref().ok_or("no initializers")?;
    initializers.line(&format!("taken {}", settings.holds))?;
    thread::sleep(SETTLE);
    let holds = metric(served.admin, &format!("gatepost_initializer_holds{{initializer=\"{}\"}}", NAMES[0]))?;
    let (held, peak) = (process::resident(pid)?, process::peak_resident(pid)?);
    if holds != settings.holds as f64 {
        return Err(format!("VOID: {holds} of {} objects were held; --held must be longer", settings.holds).into());
    }
    let ended = running.report()?.reviews;
    if ended != settings.holds as u64 {
        return Err(format!("VOID: {ended} of {} CREATEs ended well", settings.holds).into());
    }
    thread::sleep(SETTLE);
    Ok(Memory { idle, held, peak, left: process::resident(pid)? })
}

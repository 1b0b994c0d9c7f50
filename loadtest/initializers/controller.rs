//! Controller: CPU time of the pass over all unfinished objects of an apiserver, which is made every 30 s.
//!
//! The code of the product in this process, on a paused clock: the objects are reported as an apiserver reports them, the
//! controller is called once a second as the stream of that apiserver calls it. Nothing else runs meanwhile, so the CPU
//! time of the process is the pass's. Encoding and sending corrections is not in it.

use std::{sync::Arc, time::Duration};

use gatepost::live::StoredObjects;
use gatepost_api::FailurePolicy;
use gatepost_initializers::{
    HeadRule, Initializers,
    controller::SNAPSHOT_INTERVAL,
    stored_objects::Following,
    unfinished::{StoredEvent, StoredObject},
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::{
    runtime::Builder,
    time::{Instant, advance},
};

use super::Settings;
use crate::{
    Fallible,
    figures::median,
    results::{Finding, Findings},
    targets,
};

/// Corrections of one call, as the stream of an apiserver asks for.
const CORRECTIONS: usize = 500;
/// Objects that the target is about.
const OBJECTS: usize = 10_000;
const HEADS: [&str; 3] = ["a.load.example.com", "b.load.example.com", "c.load.example.com"];

/// CPU times of one repetition, in milliseconds.
#[derive(Serialize)]
struct Passes {
    /// The first snapshot, with which none is compared.
    first: f64,
    /// A snapshot in which every object has the next head.
    moving: f64,
    /// A snapshot in which every head is overdue, and all corrections, which take several calls.
    overdue: f64,
    /// The longest of these calls.
    longest: f64,
}

/// CPU time of a pass, the median of the repetitions.
pub(super) fn measure(settings: &Settings, findings: &mut Findings) -> Fallible<()> {
    let reps = if settings.quick { 3 } else { 21 };
    let mut repetitions = Vec::with_capacity(reps);
    for _ in 0..reps {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build()?;
        repetitions.push(runtime.block_on(once(settings.objects))?);
    }
    findings.keep("controller", &repetitions)?;
    let judged = (settings.objects >= OBJECTS).then_some(targets::CONTROLLER);
    let mut finding = |figure, value: fn(&Passes) -> f64, target| {
        let value = median(repetitions.iter().map(value).collect());
        let cell = format!("{} objects", settings.objects);
        findings.add(Finding { figure, cell, unit: "ms", beside: None, ours: value, value, target, few: false })
    };
    finding("controller_cpu_all_overdue", |passes| passes.overdue, judged)?;
    finding("controller_cpu_all_moving", |passes| passes.moving, judged)?;
    finding("controller_cpu_first", |passes| passes.first, judged)?;
    finding("controller_cpu_longest_call", |passes| passes.longest, None)
}

async fn once(objects: usize) -> Fallible<Passes> {
    let stored = Arc::new(StoredObjects::default());
    let mut following = stored.follow(&"apiserver".into());
    let report = |following: &Following, turn: usize| {
        (0..objects).for_each(|number| _ = following.apply(StoredEvent::Unfinished(object(number, turn))));
    };
    report(&following, 0);
    following.apply(StoredEvent::Synced);
    let first = call(&mut following).await?.0;
    report(&following, 1);
    advance(SNAPSHOT_INTERVAL).await;
    let moving = call(&mut following).await?.0;
    advance(SNAPSHOT_INTERVAL).await;
    let (mut overdue, mut longest, mut corrected) = (0.0, 0.0_f64, 0);
    // The controller has its say in the second in which it compares, too, where the configuration is newer than that.
    for _ in 0..=objects.div_ceil(CORRECTIONS) {
        let (took, corrections) = call(&mut following).await?;
        (overdue, longest, corrected) = (overdue + took, longest.max(took), corrected + corrections);
        advance(Duration::from_secs(1)).await;
    }
    match corrected == objects {
        true => Ok(Passes { first, moving, overdue, longest }),
        false => Err(format!("VOID: {corrected} of {objects} overdue objects were corrected").into()),
    }
}

/// One call, as one a second: its CPU time in milliseconds, and its corrections. The configuration was read just now.
async fn call(following: &mut Following) -> Fallible<(f64, usize)> {
    let rule = |_: &StoredObject| HeadRule { policy: FailurePolicy::Fail, ..HeadRule::default() };
    let read = Some(Instant::now().into_std());
    let before = used();
    let corrections = following.control(read, rule, CORRECTIONS).await;
    let took = used().saturating_sub(before);
    Ok((took.as_secs_f64() * 1e3, corrections.len()))
}

/// Object whose first `turn` initializers have acted.
fn object(number: usize, turn: usize) -> StoredObject {
    StoredObject {
        group: "apps".into(),
        resource: "deployments".into(),
        namespace: format!("team-{}", number % 100).into(),
        name: format!("service-{number}-6f9d7c5b8").into(),
        // Not in the order in which they are made.
        uid: format!("{:08x}-6393-11e8-b7cc-42010a800002", (number as u32).wrapping_mul(2_654_435_761)).into(),
        resource_version: format!("{}", 1_000_000 + number + turn * 100_000).into(),
        list: Initializers::of(HEADS.iter().copied().skip(turn)),
    }
}

/// User and system time of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

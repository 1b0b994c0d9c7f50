//! Create: latency of a CREATE on which three attached initializers act at once, beside the same CREATE without them.
//!
//! Two sidecars, of which one has initializers. They take turns under an open loop; the order alternates.

use std::{thread, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    Settings,
    served::{Acting, Served},
};
use crate::{
    Fallible,
    figures::{ENOUGH, median},
    generate::{Report, histogram},
    results::{Finding, Findings},
    rig::{Load, Shape, Workshop, metric},
    targets,
};

/// The initializers, in order.
const NAMES: &[&str] = &["a.load.example.com", "b.load.example.com", "c.load.example.com"];

/// One repetition.
#[derive(Serialize)]
struct Repetition {
    without: Report,
    with: Report,
}

/// p99 with initializers less p99 without; p50, and CPU of the sidecar, for reading.
pub(super) fn measure(settings: &Settings, workshop: &Workshop, findings: &mut Findings) -> Fallible<()> {
    let acting = Acting { names: NAMES, instances: 1, ..Acting::NONE };
    let without = Served::start(workshop, settings, workshop.pinning, Acting::NONE)?;
    let with = Served::start(workshop, settings, workshop.pinning, acting)?;
    let window = Duration::from_secs_f64(settings.samples() as f64 / settings.rate) / u32::try_from(settings.reps())?;
    let load = Load { mutate: true, ..Load::new(Shape::Open(settings.rate), settings.size, window) };
    let mut repetitions = Vec::with_capacity(settings.reps());
    for number in 0..settings.reps() {
        let one = |served: &Served| load.start(workshop, &served.sidecar)?.report();
        let repetition = if number % 2 == 0 {
            let without = one(&without)?;
            Repetition { without, with: one(&with)? }
        } else {
            let with = one(&with)?;
            Repetition { without: one(&without)?, with }
        };
        repetitions.push(repetition);
        // Lets sockets and timers of the run before settle.
        thread::sleep(Duration::from_millis(50));
    }
    findings.keep("create", &repetitions)?;
    each_has_acted(&with, &repetitions)?;
    summarize(settings, &repetitions, findings)
}

/// An error where an answer came without one of the initializers.
fn each_has_acted(with: &Served, repetitions: &[Repetition]) -> Fallible<()> {
    let created: u64 = repetitions.iter().map(|repetition| repetition.with.reviews).sum();
    for name in NAMES {
        let runs = format!("gatepost_initializer_runs_total{{initializer=\"{name}\",outcome=\"changed\"}}");
        let runs = metric(with.admin, &runs)?;
        if runs < created as f64 {
            return Err(format!("VOID: {name} has acted on {runs} of {created} objects").into());
        }
    }
    let expired: u64 = repetitions.iter().map(|repetition| repetition.with.expired + repetition.without.expired).sum();
    match expired {
        0 => Ok(()),
        _ => Err(format!("VOID: {expired} CREATEs were given up at their deadline").into()),
    }
}

fn summarize(settings: &Settings, repetitions: &[Repetition], findings: &mut Findings) -> Fallible<()> {
    let mut all = [histogram()?, histogram()?];
    for repetition in repetitions {
        repetition.without.add_to(&mut all[0])?;
        repetition.with.add_to(&mut all[1])?;
    }
    let cell = format!("{} initializers {}", NAMES.len(), settings.size);
    let few = all.iter().any(|all| all.len() < ENOUGH);
    let of = |value: &dyn Fn(&Repetition) -> f64| median(repetitions.iter().map(value).collect());
    let mut each = |figure, unit, value: fn(&Report) -> f64, target| {
        let beside = Some(of(&|repetition| value(&repetition.without)));
        let ours = of(&|repetition| value(&repetition.with));
        let value = of(&|repetition| value(&repetition.with) - value(&repetition.without));
        findings.add(Finding { figure, cell: cell.clone(), unit, beside, ours, value, target, few })
    };
    each("create_p99_ms", "ms", |report| report.p99() / 1e6, Some(targets::INITIALIZED))?;
    each("create_p50_ms", "ms", |report| report.p50() / 1e6, None)?;
    each("create_cpu_us", "us", |report| report.cpu_us_per_review.unwrap_or(f64::NAN), None)?;
    let [without, with] = all.each_ref().map(|all: &Histogram<u64>| all.value_at_quantile(0.99) as f64 / 1e6);
    findings.add(Finding {
        figure: "create_p99_ms_all_samples",
        cell,
        unit: "ms",
        beside: Some(without),
        ours: with,
        value: with - without,
        target: None,
        few,
    })
}

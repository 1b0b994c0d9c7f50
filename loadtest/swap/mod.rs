//! `swap`: effect of a swap of the configuration on the requests under way.
//!
//! One `gatepost serve` with many hooks, of which each review concerns one. The generator sends at a fixed rate (open
//! loop); in every second phase one hook gets another time-out and one more resource once a second, so that all is
//! read, compiled and put in force anew. Quiet phases take turns with them, in which as much is written elsewhere, and
//! the same files are read once a second and found unchanged; the order alternates.

mod configuration;
mod served;
mod summary;

use std::{
    iter,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use configuration::{Configuration, Layout};
use serde::Serialize;
use served::Served;

use crate::{
    Fallible,
    generate::Report,
    product::ProductArgs,
    results::Results,
    rig::{Load, Shape, Workshop},
    size::Size,
};

/// `swap`: how much, how fast and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Reviews a second
    #[arg(long, default_value_t = 5000.0)]
    rate: f64,
    /// Hooks configured, ten in an object, ten rules each
    #[arg(long, default_value_t = 1000)]
    hooks: usize,
    /// Number of them that a review concerns
    #[arg(long, default_value_t = 1)]
    matched: usize,
    /// Time between two changes
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1s")]
    every: Duration,
    /// Size of the object
    #[arg(long, default_value = "2K")]
    size: Size,
    /// Repetitions, each with a quiet phase and one of swaps; every figure is a median over them
    #[arg(long, default_value_t = 15)]
    reps: usize,
    /// Length of one phase
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5s")]
    window: Duration,
    /// The whole configuration in one file instead of a file an object
    #[arg(long)]
    one_file: bool,
    /// As --one-file, in YAML, as programs write it: what takes longest to read
    #[arg(long)]
    yaml: bool,
    /// Pin nothing: two workers, and everything shares all cores
    #[arg(long)]
    unpinned: bool,
    /// Change nothing in the phases of swaps either: what then differs from 1 is noise
    #[arg(long)]
    control: bool,
    #[command(flatten)]
    product: ProductArgs,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

impl Settings {
    fn layout(&self) -> Layout {
        match (self.yaml, self.one_file) {
            (true, _) => Layout::Yaml,
            (false, true) => Layout::Json,
            (false, false) => Layout::JsonEach,
        }
    }
}

/// One repetition.
#[derive(Debug, Serialize)]
struct Repetition {
    quiet: Phase,
    swapping: Phase,
}

/// One run of the generator, and how often the configuration was swapped meanwhile.
#[derive(Debug, Serialize)]
struct Phase {
    swaps: u64,
    report: Report,
}

/// Measures and writes a dated folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let began = Instant::now();
    let mut workshop = settings.product.workshop()?;
    if settings.unpinned {
        (workshop.pinning.sidecar, workshop.pinning.load) = (None, None);
    }
    let pinning = if settings.unpinned { "nothing pinned".to_owned() } else { workshop.pinning.describe() };
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let command = format!("loadtest/swap/run {}", arguments.join(" "));
    let results = Results::folder(&settings.results, "swap", command.trim_end(), &pinning)?;

    let served = Served::start(&workshop, settings)?;
    let load = Load::new(Shape::Open(settings.rate), settings.size, settings.window);
    let mut repetitions = Vec::with_capacity(settings.reps);
    for number in 0..settings.reps {
        let phase = |changing: bool| phase(settings, &workshop, &served, &load, changing);
        let repetition = if number % 2 == 0 {
            let quiet = phase(false)?;
            Repetition { quiet, swapping: phase(true)? }
        } else {
            let swapping = phase(true)?;
            Repetition { quiet: phase(false)?, swapping }
        };
        println!("{}", summary::line(number, &repetition));
        repetitions.push(repetition);
        results.keep("swap", &repetitions)?;
    }
    summary::write(settings, &results, &repetitions, began.elapsed())
}

/// One run of the generator; one hook is changed every so often where `changing`.
fn phase(settings: &Settings, workshop: &Workshop, served: &Served, load: &Load, changing: bool) -> Fallible<Phase> {
    let before = served.generation()?;
    let ends = load.warm_up + load.window;
    let times = iter::successors(Some(load.warm_up), |last| Some(*last + settings.every));
    // Made beforehand, so that as little as possible happens on the generator's core while it measures.
    let times = times.take_while(|at| *at < ends);
    let changes = times.map(|at| Ok((at, served.configuration.next()?))).collect::<Fallible<Vec<_>>>()?;
    let running = load.start(workshop, &served.sidecar)?;
    let began = Instant::now();
    for (at, change) in &changes {
        thread::sleep((began + *at).saturating_duration_since(Instant::now()));
        match changing && !settings.control {
            true => served.configuration.make(change)?,
            false => served.configuration.make_elsewhere(change)?,
        }
    }
    let report = running.report()?;
    // The last change is in force a second later; it must not fall into the next phase.
    thread::sleep(Duration::from_millis(if changing { 2000 } else { 200 }));
    let swaps = served.generation()? - before;
    if changing && !settings.control && swaps == 0 {
        return Err("the configuration was changed and never swapped".into());
    }
    Ok(Phase { swaps, report })
}

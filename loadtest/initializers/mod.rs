//! `initializers`: cost of initializers to a CREATE, memory of objects that are held, and the controller's pass.
//!
//! Each figure has a file: `create`, `holds`, `controller`. `attach` is the part of the initializers, a process of its own.

mod attach;
mod controller;
mod create;
mod holds;
mod served;

use std::{path::PathBuf, time::Duration};

pub(crate) use attach::{AttachSettings, run as attach};
use clap::ValueEnum;

use crate::{Fallible, product::ProductArgs, results::Findings, size::Size};

/// `initializers`: how much of each figure is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Half a minute: few samples, each once or some times; shows that it works, nothing to quote
    #[arg(long)]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES")]
    only: Vec<Measured>,
    /// CREATEs a second
    #[arg(long, default_value_t = 300.0)]
    rate: f64,
    /// CREATEs a side
    #[arg(long, value_name = "NUMBER")]
    samples: Option<u64>,
    /// Repetitions of CREATEs on both sides; the figure is a median over them
    #[arg(long, value_name = "NUMBER")]
    reps: Option<usize>,
    /// Size of the object
    #[arg(long, default_value = "2K")]
    size: Size,
    /// Objects held at once
    #[arg(long, default_value_t = 1000)]
    holds: usize,
    /// Time for which each is held
    #[arg(long, value_parser = humantime::parse_duration, default_value = "8s", value_name = "DURATION")]
    held: Duration,
    /// Unfinished objects that the controller goes through
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Pin nothing in CREATEs: two workers, and everything shares all cores
    #[arg(long)]
    unpinned: bool,
    #[command(flatten)]
    product: ProductArgs,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measured {
    /// p99 of a CREATE with three initializers, beside the same without
    Create,
    /// Resident memory with objects held
    Holds,
    /// CPU time of the controller's pass
    Controller,
}

impl Settings {
    fn samples(&self) -> u64 {
        self.samples.unwrap_or(if self.quick { 600 } else { 10_500 })
    }

    fn reps(&self) -> usize {
        self.reps.unwrap_or(if self.quick { 3 } else { 15 }).max(1)
    }
}

/// Measures and writes a dated folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let mut workshop = settings.product.workshop()?;
    if settings.unpinned {
        (workshop.pinning.sidecar, workshop.pinning.load) = (None, None);
    }
    let pinning = match settings.unpinned {
        true => "nothing pinned".to_owned(),
        false => format!("CREATEs: {}; holds: not pinned", workshop.pinning.describe()),
    };
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let command = format!("loadtest/initializers/run {}", arguments.join(" "));
    let label = if settings.quick { "initializers-quick" } else { "initializers" };
    let mut findings = Findings::begin(&settings.results, label, command.trim_end(), &pinning)?;
    let is_wanted = |figure| settings.only.is_empty() || settings.only.contains(&figure);
    if is_wanted(Measured::Controller) {
        controller::measure(settings, &mut findings)?;
    }
    if is_wanted(Measured::Holds) {
        holds::measure(settings, &workshop, &mut findings)?;
    }
    if is_wanted(Measured::Create) {
        create::measure(settings, &workshop, &mut findings)?;
    }
    findings.finish(&[format!("objects of {}; {} CREATEs a second", settings.size, settings.rate)])
}

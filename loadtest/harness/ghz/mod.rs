//! The load test with ghz: a caller that is not ours (Go, grpc-go, 16 KiB frames) against the product as shipped.
//!
//! Closed loop first; then, in the same cell, a fixed rate of 30 % of what the closed loop reached. One more cell has
//! a hung hook that every review concerns. The folder holds ghz's own JSON, a summary and a plot.

mod cell;
mod data;
mod plot;
mod summary;

use std::path::PathBuf;

use cell::Cell;

use crate::{
    Fallible,
    plan::Ours,
    results::Results,
    review::Subject,
    rig::{Hooks, Rig, Setting, Workshop},
    size::Size,
};

/// `ghz`: the load test's options.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// A minute or two: fewer reviews a cell
    #[arg(long)]
    quick: bool,
    /// The ghz program
    #[arg(long, default_value = "ghz", value_name = "PATH")]
    ghz: PathBuf,
    /// Program in the sidecar's place; `naive` shows the same test's figures for the reference
    #[arg(long, value_enum, default_value = "gatepost")]
    sidecar: Ours,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

const SIZES: [Size; 3] = [Size(2 << 10), Size(50 << 10), Size(256 << 10)];
const HOOKS: [usize; 3] = [1, 4, 16];

/// Of the closed loop's throughput, the fixed rate.
const MODERATE: f64 = 0.3;

/// Reviews a second while a hook hangs for 100 ms each time.
const BESIDE_HUNG: f64 = 100.0;

/// Runs every cell and writes the folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let workshop = Workshop::beside_this_program(settings.sidecar)?;
    let (label, command) = match settings.quick {
        true => ("ghz-quick", "loadtest/run.sh --quick"),
        false => ("ghz", "loadtest/run.sh"),
    };
    let results = Results::folder(&settings.results, label, command, &workshop.pinning.describe())?;
    let mut cells = Vec::new();
    for hooks in HOOKS {
        let rig = Rig::start(&workshop, Setting { hooks, ..Setting::default() })?;
        for size in SIZES {
            let test = Test { settings, workshop: &workshop, rig: &rig, results: &results, size };
            let closed = test.run(format!("{size}-{hooks}-closed"), Subject::Pod, hooks, None)?;
            let rate = (closed.rate * MODERATE).max(1.0).floor();
            cells.push(closed);
            cells.push(test.run(format!("{size}-{hooks}-fixed"), Subject::Pod, hooks, Some(rate))?);
        }
    }
    if settings.sidecar == Ours::Gatepost {
        let rig = Rig::start(&workshop, Setting { hooks: 16, first: Hooks::Hangs, ..Setting::default() })?;
        let test = Test { settings, workshop: &workshop, rig: &rig, results: &results, size: SIZES[0] };
        let hung = test.run("2K-16-one-hung".to_owned(), Subject::ConfigMap, 16, Some(BESIDE_HUNG))?;
        cells.push(hung.hung());
    }
    results.write("summary.csv", &summary::csv(&cells))?;
    results.write("summary.md", &summary::markdown(&cells))?;
    results.write("latency.svg", &plot::svg(&cells))?;
    results.append("README.md", &summary::readme(&cells))?;
    println!("\n{}", summary::markdown(&cells));
    println!("{}", results.path().display());
    Ok(())
}

/// Settings that the cells of one rig and size share.
struct Test<'a> {
    settings: &'a Settings,
    workshop: &'a Workshop,
    rig: &'a Rig<'a>,
    results: &'a Results,
    size: Size,
}

impl Test<'_> {
    fn run(&self, name: String, subject: Subject, hooks: usize, rate: Option<f64>) -> Fallible<Cell> {
        let data = self.rig.path(&format!("{}-{}.json", subject.as_str(), self.size));
        std::fs::write(&data, data::json(subject, self.size))?;
        let output = self.results.raw(&format!("{name}.json"));
        let command = cell::Command {
            ghz: &self.settings.ghz,
            core: self.workshop.pinning.load,
            target: self.rig.ours.address,
            data: &data,
            output: &output,
            reviews: reviews(self.size, rate, self.settings.quick),
            rate,
        };
        let cell = Cell::measure(name, (self.size, hooks), &command)?;
        println!("{}", summary::line(&cell));
        Ok(cell)
    }
}

/// Reviews in a cell: enough for its p99, few enough that ghz's own JSON, which lists every one, can be kept.
fn reviews(size: Size, rate: Option<f64>, quick: bool) -> u32 {
    let full = match (size.0 > 64 << 10, rate.is_some()) {
        (false, false) => 5000,
        (false, true) => 3000,
        (true, _) => 2000,
    };
    if quick { full / 5 } else { full }
}

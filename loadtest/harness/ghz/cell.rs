//! Cell: one run of ghz, as asked for and as it came out.

use std::{fs, net::SocketAddr, path::Path};

use serde::Deserialize;

use crate::{Fallible, process::pinned, size::Size};

/// One run of ghz.
pub(super) struct Command<'a> {
    pub(super) ghz: &'a Path,
    pub(super) core: Option<usize>,
    pub(super) target: SocketAddr,
    pub(super) data: &'a Path,
    pub(super) output: &'a Path,
    pub(super) reviews: u32,
    pub(super) rate: Option<f64>,
}

impl Command<'_> {
    fn run(&self) -> Fallible<()> {
        let mut command = pinned(self.core, self.ghz);
        command.args(["--insecure", "--proto", "proto/gatepost/v1/admission.proto", "--import-paths", "proto"]);
        command.args(["--call", "gatepost.v1.Admission/Review", "--disable-template-functions"]);
        command.args(["--disable-template-data", "--connections", "2", "--timeout", "10s", "--format", "json"]);
        command.arg("--data-file").arg(self.data).arg("--output").arg(self.output);
        command.arg("--total").arg((self.reviews + self.warm_up()).to_string());
        command.arg("--skipFirst").arg(self.warm_up().to_string());
        if self.core.is_some() {
            command.args(["--cpus", "1"]);
        }
        match self.rate {
            Some(rate) => command.args(["--concurrency", "64", "--async", "--rps", &format!("{rate:.0}")]),
            None => command.args(["--concurrency", "8"]),
        };
        command.arg(self.target.to_string());
        let output = command.output().map_err(|error| format!("ghz does not start: {error}"))?;
        if !output.status.success() {
            return Err(format!("ghz failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(())
    }

    /// Reviews that ghz sends first and leaves out of its tally.
    fn warm_up(&self) -> u32 {
        self.reviews / 5
    }
}

/// Result of a run. Latencies in nanoseconds, ascending.
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) size: Size,
    pub(super) hooks: usize,
    /// Reviews a second asked for; none in a closed loop
    pub(super) fixed: Option<f64>,
    /// Reviews a second reached
    pub(super) rate: f64,
    pub(super) is_hung: bool,
    latencies: Vec<u64>,
}

/// The parts of ghz's JSON that are read.
#[derive(Deserialize)]
struct Output {
    /// Nanoseconds
    total: u64,
    #[serde(rename = "statusCodeDistribution")]
    statuses: serde_json::Map<String, serde_json::Value>,
    details: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    latency: u64,
}

impl Cell {
    /// Runs ghz and reads what it wrote; any status but OK is an error.
    pub(super) fn measure(name: String, (size, hooks): (Size, usize), command: &Command<'_>) -> Fallible<Self> {
        command.run()?;
        let output: Output = serde_json::from_value(without_the_object(command.output)?)?;
        if output.statuses.keys().any(|status| status != "OK") {
            return Err(format!("{name}: not every review was answered: {:?}", output.statuses).into());
        }
        // ghz divides what it counted by a time that includes the warm-up.
        let rate = f64::from(command.reviews + command.warm_up()) / (output.total as f64 / 1e9);
        let mut latencies: Vec<u64> = output.details.iter().map(|detail| detail.latency).collect();
        latencies.sort_unstable();
        Ok(Self { name, size, hooks, fixed: command.rate, rate, is_hung: false, latencies })
    }

    /// The same cell, known to have had a hung hook.
    pub(super) fn hung(mut self) -> Self {
        self.is_hung = true;
        self
    }

    /// Reviews that were counted.
    pub(super) fn reviews(&self) -> usize {
        self.latencies.len()
    }

    /// Latency in milliseconds at a quantile of 0..=1.
    pub(super) fn at(&self, quantile: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (quantile * last as f64).round() as usize;
        self.latencies.get(index).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
    }
}

/// ghz echoes the object it was given; the file is kept without it.
fn without_the_object(path: &Path) -> Fallible<serde_json::Value> {
    let mut output: serde_json::Value = serde_json::from_slice(&fs::read(path)?)?;
    if let Some(options) = output.get_mut("options").and_then(|options| options.as_object_mut()) {
        options.remove("data");
    }
    fs::write(path, output.to_string())?;
    Ok(output)
}

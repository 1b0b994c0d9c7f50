//! Plan: measurements to make, their number and length.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;

use crate::size::Size;

/// The orchestrator's options.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// A few minutes: shorter windows, latency only in some cells, p99 mostly indicative
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES")]
    only: Vec<Figure>,
    /// Only these object sizes, such as 2K,1M
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    sizes: Vec<Size>,
    /// Only these numbers of hooks, such as 4,16
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    hooks: Vec<usize>,
    /// Repetitions; every figure is a median over them
    #[arg(long, default_value_t = 5)]
    pub(crate) reps: usize,
    /// Length of one closed-loop window
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    window: Option<Duration>,
    /// Latency samples per side and cell
    #[arg(long, default_value_t = 10_300)]
    pub(crate) samples: u64,
    /// Program on our side; `naive` checks the harness against itself
    #[arg(long, value_enum, default_value = "gatepost")]
    pub(crate) ours: Ours,
    /// The product's binary [default: the release build beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) gatepost: Option<PathBuf>,
    /// Another build of the product, on naive's side: what a change costs or saves
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
    /// One more argument for `gatepost serve`; repeat for more
    #[arg(long = "ours-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) ours_arguments: Vec<String>,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    pub(crate) results: PathBuf,
}

/// The groups of figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// Sidecar CPU per review and closed-loop throughput
    Cpu,
    /// CPU with mutual TLS to the hooks
    Mtls,
    /// p50 and p99 at a fixed rate
    Latency,
    /// Bytes and allocations per extra hook
    Allocations,
    /// Peak live heap and peak RSS with 64 large reviews in flight
    Memory,
    /// p99 of the others while one hook hangs
    Hung,
}

/// Program on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ours {
    /// `gatepost serve`, as shipped
    Gatepost,
    /// The naive reference again
    Naive,
}

impl Plan {
    /// True when `figure` is to be measured.
    pub(crate) fn includes(&self, figure: Figure) -> bool {
        self.only.is_empty() || self.only.contains(&figure)
    }

    /// The sizes to measure.
    pub(crate) fn sizes(&self) -> Vec<Size> {
        if self.sizes.is_empty() { Size::TABLE.into() } else { self.sizes.clone() }
    }

    /// Of these numbers of hooks, the ones to measure.
    pub(crate) fn hooks(&self, table: &[usize]) -> Vec<usize> {
        if self.hooks.is_empty() { table.into() } else { self.hooks.clone() }
    }

    /// True when sizes or hooks were chosen by hand: then no cell is left out to save time.
    pub(crate) fn is_chosen(&self) -> bool {
        !(self.sizes.is_empty() && self.hooks.is_empty())
    }

    /// Length of one closed-loop window.
    pub(crate) fn window(&self) -> Duration {
        self.window.unwrap_or(Duration::from_millis(if self.quick { 1000 } else { 1500 }))
    }
}

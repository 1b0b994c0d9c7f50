//! `compare`: measures Gatepost beside the naive reference, and plays every part of the measurement itself.
//!
//! Without a subcommand it is the orchestrator: it starts itself again as hooks, as load generator and as the naive
//! sidecar, pins them, interleaves the two sides and writes a dated folder. `loadtest/README.md` says how to read it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command line program speaks on standard error")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "../apiserver/mod.rs"]
mod apiserver;
mod certificates;
mod figures;
mod generate;
mod ghz;
mod hooks;
#[path = "../initializers/mod.rs"]
mod initializers;
mod machine;
mod measure;
#[path = "../memory/mod.rs"]
mod memory;
#[path = "../naive/mod.rs"]
mod naive;
#[path = "../peers/mod.rs"]
mod peers;
mod plan;
mod process;
mod product;
#[path = "../read-proxy/mod.rs"]
mod read_proxy;
mod results;
mod review;
mod rig;
mod size;
mod svg;
#[path = "../swap/mod.rs"]
mod swap;
mod targets;

/// Result whose error ends the program; the text is the whole story.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measure Gatepost beside the naive reference
#[derive(Debug, Parser)]
#[command(name = "compare", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    plan: plan::Plan,
}

/// The parts of the measurement, each its own process.
#[derive(Debug, Subcommand)]
enum Part {
    /// Measure beside a real kube-apiserver; what loadtest/apiserver/run calls
    Apiserver(apiserver::Settings),
    /// Claim names of initializers and answer every task
    Attach(initializers::AttachSettings),
    /// Serve hooks that drain what they are sent and allow it
    Hooks(hooks::Settings),
    /// Send reviews and print what was measured as JSON
    Generate(generate::Settings),
    /// Drive the product with ghz; what loadtest/run.sh calls
    Ghz(ghz::Settings),
    /// Measure initializers; what loadtest/initializers/run calls
    Initializers(initializers::Settings),
    /// Measure the most memory that the product takes; what loadtest/memory/run calls
    Memory(memory::Settings),
    /// Measure ten policies in Gatepost, Kyverno and Gatekeeper; what loadtest/peers/run calls
    Peers(peers::Settings),
    /// Draw the plot of a folder of loadtest/apiserver/run once more, from its summary.csv
    Plot {
        /// The dated folder
        folder: std::path::PathBuf,
    },
    /// Serve the naive reference sidecar
    Naive(naive::Settings),
    /// Measure the read proxy beside a real kube-apiserver; what loadtest/read-proxy/run calls
    ReadProxy(read_proxy::Settings),
    /// Measure what a swap of the configuration does to latency; what loadtest/swap/run calls
    Swap(swap::Settings),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.part {
        Some(Part::Apiserver(settings)) => apiserver::run(settings),
        Some(Part::Attach(settings)) => initializers::attach(settings),
        Some(Part::Hooks(settings)) => hooks::run(settings),
        Some(Part::Generate(settings)) => generate::run(settings),
        Some(Part::Ghz(settings)) => ghz::run(settings),
        Some(Part::Initializers(settings)) => initializers::run(settings),
        Some(Part::Memory(settings)) => memory::run(settings),
        Some(Part::Peers(settings)) => peers::run(settings),
        Some(Part::Plot { folder }) => apiserver::plot::redraw(folder),
        Some(Part::Naive(settings)) => naive::run(settings),
        Some(Part::ReadProxy(settings)) => read_proxy::run(settings),
        Some(Part::Swap(settings)) => swap::run(settings),
        None => measure::run(&arguments.plan),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

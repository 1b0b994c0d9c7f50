//! `counted`: the product and the naive reference under an allocator that counts.
//!
//! `counted naive ...` is the naive reference; any other command line is the product's own. The counts are read over
//! the unix socket that `GATEPOST_COUNTS_SOCKET` names: a line `read` or `reset` is answered with a line of JSON.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command line program speaks on standard error")]

mod counter;
#[path = "../naive/mod.rs"]
mod naive;
mod product;
mod socket;

use std::{env, process::ExitCode};

use clap::Parser;
use mimalloc::MiMalloc;
use tracking_allocator::{AllocationRegistry, Allocator};

/// The shipped allocator, watched. Eight bytes before every block are the watcher's, and are not counted.
#[global_allocator]
static ALLOCATOR: Allocator<MiMalloc> = Allocator::from_allocator(MiMalloc);

/// The naive reference's own command line.
#[derive(Debug, Parser)]
struct Naive {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Serve the naive reference sidecar
    Naive(naive::Settings),
}

fn main() -> ExitCode {
    if AllocationRegistry::set_global_tracker(counter::Counter).is_err() {
        eprintln!("counted: somebody else already counts");
        return ExitCode::FAILURE;
    }
    if let Some(path) = env::var_os("GATEPOST_COUNTS_SOCKET")
        && let Err(error) = socket::serve(path.as_ref())
    {
        eprintln!("counted: no counts on {path:?}: {error}");
        return ExitCode::FAILURE;
    }
    AllocationRegistry::enable_tracking();
    if env::args().nth(1).is_none_or(|first| first != "naive") {
        return product::main();
    }
    let Part::Naive(settings) = Naive::parse().part;
    match naive::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counted naive: {error}");
            ExitCode::FAILURE
        }
    }
}

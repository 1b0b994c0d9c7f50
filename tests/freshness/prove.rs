//! `freshness`: proves the bound. Three sidecars read one etcd, which changes over and over while reviews run; then the
//! sidecars' audit logs are held against the writer's own.
//!
//! `tests/freshness/run.sh` builds and runs it; `docs/life-of-a-configuration.md` says what is proved.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command line program speaks on standard error")]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

mod asking;
mod bound;
#[path = "../support/etcd.rs"]
mod etcd;
#[path = "../../loadtest/harness/process.rs"]
#[allow(dead_code, reason = "the load test measures its children, too")]
mod process;
mod records;
#[path = "../support/reviews.rs"]
#[allow(dead_code, unreachable_pub, reason = "test support")]
mod reviews;
mod sidecars;
mod story;
mod writing;

/// Result whose error ends the program; the text is the whole story.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Prove that no verdict is reached by an outdated configuration
#[derive(Debug, Parser)]
#[command(name = "freshness")]
struct Plan {
    /// The sidecar's program
    #[arg(long, value_name = "PATH", default_value = "target/debug/gatepost")]
    gatepost: PathBuf,
    /// Sidecars that read the same configuration
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    sidecars: usize,
    /// Further hooks in the configuration, about other requests
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    hooks: usize,
    /// Changes of the configuration
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    changes: usize,
    /// Number of them a second
    #[arg(long, value_name = "NUMBER", default_value_t = 4.0)]
    per_second: f64,
    /// Reviews a second that each sidecar is asked
    #[arg(long, value_name = "NUMBER", default_value_t = 100.0)]
    reviews: f64,
    /// Nodes of etcd
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    nodes: usize,
    /// Kill the node that leads after a third of the changes (wants three nodes)
    #[arg(long)]
    kill_leader: bool,
    /// Stop every node for so long after two thirds of the changes
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    stop_etcd: Option<Duration>,
    /// Stop one sidecar for so long after half of the changes, which go on meanwhile
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    stop_sidecar: Option<Duration>,
    /// Leave the logs in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    let Some(program) = etcd::find() else {
        println!(
            "################ NOT RUN: freshness: etcd is not here; install it (Debian: etcd-server), or name it with \
             ETCD=/path/to/etcd"
        );
        return ExitCode::from(77);
    };
    match story::run(&plan, &program) {
        Ok(findings) => {
            print!("{findings}");
            if findings.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("freshness: {error}");
            ExitCode::from(2)
        }
    }
}

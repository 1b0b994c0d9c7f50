//! The configuration is read from etcd: tried with real clusters.
//!
//! The program is `$ETCD`, `etcd` in the PATH, or the one that `tests/e2e/kube/get.sh` builds. Without one nothing of
//! this can be run, and that is said aloud: it has no test harness, so that what it prints is always seen. Words behind
//! `--` choose cases by a part of their name, as `cargo test --test etcd_source -- leader`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where its own setup is wrong"
)]

#[path = "etcd_source/access.rs"]
mod access;
#[path = "etcd_source/break_glass.rs"]
mod break_glass;
#[path = "support/etcd.rs"]
mod etcd;
#[path = "etcd_source/failures.rs"]
mod failures;
#[path = "etcd_source/lease.rs"]
mod lease;
#[path = "etcd_source/proxy.rs"]
mod proxy;
#[path = "etcd_source/reading.rs"]
mod reading;
#[path = "etcd_source/setting.rs"]
mod setting;
mod support;
#[path = "support/tls.rs"]
mod tls;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    time::Instant,
};

/// A behaviour and what tries it, given the program.
type Case = (&'static str, fn(&Path));

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("etcd_source: test");
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let cases: Vec<Case> = [reading::CASES, break_glass::CASES, access::CASES, lease::CASES, failures::CASES].concat();
    let Some(program) = etcd::find() else {
        println!(
            "################ NOT RUN: etcd_source: {} behaviours need etcd, which is not here; install it (Debian: \
             etcd-server), or name it with ETCD=/path/to/etcd",
            cases.len()
        );
        return ExitCode::SUCCESS;
    };
    println!("etcd: {}", program.display());
    let chosen = |(name, _): &&Case| words.is_empty() || words.iter().any(|word| name.contains(&***word));
    let mut failed = 0;
    for (name, case) in cases.iter().filter(chosen) {
        let began = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(|| case(&program))).is_ok();
        failed += usize::from(!passed);
        let word = if passed { "ok" } else { "FAILED" };
        println!("{name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

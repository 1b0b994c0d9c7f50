//! Cases: behaviours that want a real etcd. They have no test harness, so that what is printed is always seen.
#![allow(unreachable_pub, reason = "test support")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use crate::etcd;

/// A behaviour and what tries it, given the program.
pub type Case = (&'static str, fn(&Path));

/// Tries those that the words behind `--` choose by a part of their name, and says aloud where there is no etcd for it.
pub fn run(cases: &[Case]) -> ExitCode {
    let test = env!("CARGO_CRATE_NAME");
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{test}: test");
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let Some(program) = etcd::find() else {
        println!(
            "################ NOT RUN: {test}: {} behaviours need etcd, which is not here; install it (Debian: \
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

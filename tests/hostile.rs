//! Hostile hooks and callers, made of bytes, against a real `gatepost serve`; `tests/hostile/README.md` lists them.
//!
//! They are played one after the other: each is measured.
//!
//! ```sh
//! cargo test --test hostile                   # all of them
//! cargo test --test hostile -- goaway idle    # those with these words in their names
//! ```
#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code"
)]

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/attacks/mod.rs"]
mod attacks;
#[path = "hostile/bystander.rs"]
mod bystander;
#[path = "hostile/bytes/mod.rs"]
mod bytes;
#[path = "hostile/greedy.rs"]
mod greedy;
#[path = "hostile/hook.rs"]
mod hook;
#[path = "hostile/judge.rs"]
mod judge;
#[path = "hostile/notes.rs"]
mod notes;
#[path = "hostile/process.rs"]
mod process;
#[path = "hostile/stage.rs"]
mod stage;

use std::{process::ExitCode, time::Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let attacks: Vec<_> = attacks::all().into_iter().filter(|attack| wanted(attack.name)).collect();
    if std::env::args().any(|word| word == "--list") {
        attacks.iter().for_each(|attack| println!("{}: test", attack.name));
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    many_descriptors();
    let control = judge::Control::start();
    let mut failed = Vec::new();
    for attack in &attacks {
        let outcome = judge::judge(attack, &control);
        let word = if outcome.faults.is_empty() { "held" } else { "FAILED" };
        println!("{word} {} ({}): {}", attack.name, attack.item, outcome.figures);
        for fault in &outcome.faults {
            println!("    {fault}");
        }
        if !outcome.faults.is_empty() {
            outcome.log.iter().rev().for_each(|line| println!("      log: {line}"));
            failed.push(attack.name);
        }
    }
    println!(
        "{} of {} attacks held, {:.0} s",
        attacks.len() - failed.len(),
        attacks.len(),
        began.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("not held: {}", failed.join(" "));
        ExitCode::FAILURE
    }
}

/// Both ends of more than a thousand connections are ours.
fn many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

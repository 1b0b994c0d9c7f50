//! Gatepost decides as kube-apiserver does: every case of the conformance vectors.
//!
//! The folder of vectors is `GATEPOST_VECTORS`, else `../shared/vectors` beside this repository, else `tests/vectors/`,
//! which is a copy of it with folders of our own in it, which are run as well. Prints `file: passed/total` for each
//! file, below it the cases left out and the reasons, and fails where a case differs, or where a file, a case or a
//! field of one is not understood. All that is left out is in one list, `tests/conformance/left_out.rs`.
//!
//! It has no test harness, so that what it prints is always seen. Words behind `--` choose files by a part of their
//! name, as `cargo test --test conformance -- rules`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where its own setup is wrong"
)]

mod support;
#[path = "conformance/mod.rs"]
mod tables;

use std::process::ExitCode;

use tables::{arguments::Arguments, folder::Folder};

fn main() -> ExitCode {
    let arguments = Arguments::of(std::env::args().skip(1));
    if arguments.list {
        println!("conformance: test");
        return ExitCode::SUCCESS;
    }
    let folder = Folder::choose();
    println!("vectors: {}", folder.path.display());
    let (own, mut failures) = (folder.own(), folder.differences_from_copy());
    let mut left_out = tables::left_out::Tally::default();
    let folders = || std::iter::once(&folder).chain(&own);
    for folder in folders() {
        for file in folder.files(&mut failures) {
            if arguments.chooses(&file) {
                tables::run::file(folder, &file, &mut left_out, &mut failures);
            }
        }
    }
    if folder.is_known && arguments.words.is_empty() {
        failures.extend(left_out.stale());
        failures.extend(tables::format::misunderstood());
        folders().for_each(|folder| failures.extend(tables::strict::lenient(folder)));
    }
    for failure in &failures {
        eprintln!("FAILED {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

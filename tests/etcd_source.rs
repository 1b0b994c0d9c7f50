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
#[path = "support/cases.rs"]
mod cases;
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
#[path = "etcd_source/users.rs"]
mod users;

use std::process::ExitCode;

fn main() -> ExitCode {
    cases::run(&[reading::CASES, break_glass::CASES, access::CASES, lease::CASES, failures::CASES].concat())
}

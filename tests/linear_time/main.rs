//! Time linear in bytes. A binary of its own, since processor time is measured.
#![allow(clippy::expect_used, reason = "test code")]

#[path = "../../benches/common/cpu.rs"]
mod cpu;

mod parsers_take_linear_time;
mod patches_take_linear_time;

//! Time linear in bytes. A binary of its own, since processor time is measured.
#![allow(clippy::expect_used, reason = "test code")]

#[path = "../../benches/common/cpu.rs"]
mod cpu;

mod keys_of_one_hash_take_no_longer;
mod parsers_take_linear_time;
mod patches_take_linear_time;

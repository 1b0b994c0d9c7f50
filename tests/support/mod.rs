//! Shared parts of the behaviour tests: scripted hooks on port 0, reviews, and a gate over hooks of one's choice.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: each test file uses its own part"
)]

pub mod certificates;
pub mod gate;
pub mod http_hook;
pub mod mutating;
pub mod reviews;
pub mod scripted_hook;
pub mod sidecar;
pub mod stall;

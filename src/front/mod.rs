//! Sockets in: gRPC for callers, HTTP for operators.
//!
//! The gRPC front is a raw h2 server. Of tonic's it keeps the cold services (health, reflection) and the codes; the
//! `Admission` service takes DATA frames as they arrive, because tonic's decoder joins them into one new buffer and its
//! encoder cannot send anything but one (`docs/reference/perf-spike.md` §3).

pub mod admin;
mod answer;
mod call;
mod cold;
mod configz;
mod connection;
mod head;
pub mod inflight;
pub mod limits;
pub mod listen;
mod message;
pub mod readiness;
mod refusal;
pub mod worker;

pub use connection::Front;
pub use limits::Limits;
pub use listen::{Bound, Drained};
pub use worker::Worker;

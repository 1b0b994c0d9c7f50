//! Sockets in: gRPC and reviews over plain HTTP for callers, HTTP for operators.
//!
//! The front is a raw h2 server, and hyper's for HTTP/1.1. Of tonic's server it keeps the cold services (health,
//! reflection) and the codes; the `Admission` service takes DATA frames as they arrive, because tonic's decoder joins them
//! into one new buffer and its encoder cannot send anything but one (`docs/reference/perf-spike.md` §3).

pub mod admin;
mod answer;
mod body;
mod call;
mod caught;
mod cold;
mod configz;
mod connection;
mod duration;
mod handshake;
mod head;
mod http1;
mod http2;
pub mod inflight;
pub mod limits;
mod linger;
pub mod listen;
mod message;
mod parse;
mod pieces;
mod posted;
pub mod readiness;
mod refusal;
mod reply;
mod sniff;
mod stall_limit;
mod webhook;
pub mod worker;

pub use connection::Front;
pub use limits::Limits;
pub use listen::{Bound, Drained};
pub use worker::Worker;

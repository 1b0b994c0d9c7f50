//! Sockets in: gRPC and reviews over plain HTTP for callers, HTTP for operators.
//!
//! The front is a raw h2 server, and hyper's for HTTP/1.1. Of tonic's server it keeps the cold services (health,
//! reflection) and the codes; the `Admission` service takes DATA frames as they arrive, because tonic's decoder joins
//! them into one new buffer and its encoder cannot send anything but one (`docs/reference/perf-spike.md` §3).

pub mod accept;
pub mod admin;
mod answer;
mod catch_panic;
mod connection;
mod encode;
mod grpc;
mod hops;
mod http;
pub mod inflight;
pub mod limits;
mod outgoing;
mod parse;
mod pieces;
mod progress;
mod refusal;
mod route;
#[cfg(test)]
mod testing;

pub use self::{
    accept::{bound::Bound, listen::Drained, shared_port::SharedPort, worker::Worker},
    connection::Front,
    limits::FrontLimits,
};

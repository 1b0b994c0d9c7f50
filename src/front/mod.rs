//! Servers: gRPC and reviews over plain HTTP for callers, HTTP pages for operators.
//!
//! A review passes these modules in order: [`accept`] accepts a connection and assigns it to a worker, `connection`
//! detects TLS and the version of HTTP, `route` finds the destination of the call, and `admission` handles one review:
//! its `head`, its `body`, its `answer`. `limits` bounds callers, `inflight` counts reviews, and `refusal` lists the
//! reasons why a call ends without a verdict. `grpc` serves the other calls, [`admin`] the pages.
//!
//! The front uses h2 directly, and hyper's server for HTTP/1.1. From tonic's server it uses only health, reflection and
//! the status codes. The `Admission` service reads DATA frames as they arrive, because tonic's decoder joins them into
//! one new buffer and its encoder sends only one buffer (`docs/reference/perf-spike.md` §3).

pub mod accept;
pub mod admin;
mod admission;
mod answer;
mod body;
mod connection;
mod drain;
mod grpc;
mod head;
pub mod inflight;
pub mod limits;
mod outgoing;
mod refusal;
mod route;
mod state;
#[cfg(test)]
mod testing;

pub use self::{
    accept::{
        DrainSummary, Worker,
        listener::{Listener, SharedPort},
    },
    limits::FrontLimits,
    state::Front,
};

//! Sockets in: gRPC and reviews over plain HTTP for callers, HTTP for operators.
//!
//! In the order of a review: [`accept`] takes a connection and gives it to a worker, `connection` finds TLS and the
//! version of HTTP, `route` the call. `admission` is one review from its `head` and `body` to its `answer`. Around it
//! stand the `limits`, what is `inflight`, and every reason for a `refusal`. `grpc` has the other calls, [`admin`] the
//! pages.
//!
//! The front is a raw h2 server, and hyper's for HTTP/1.1. Of tonic's server it keeps the cold services (health,
//! reflection) and the codes; the `Admission` service takes DATA frames as they arrive, because tonic's decoder joins
//! them into one new buffer and its encoder cannot send anything but one (`docs/reference/perf-spike.md` §3).

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
        listener::{Bound, SharedPort},
    },
    limits::FrontLimits,
    state::Front,
};

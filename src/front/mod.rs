//! Sockets in: gRPC and reviews over plain HTTP for callers, HTTP for operators.
//!
//! The front is a raw h2 server, and hyper's for HTTP/1.1. Of tonic's server it keeps the cold services (health,
//! reflection) and the codes; the `Admission` service takes DATA frames as they arrive, because tonic's decoder joins them
//! into one new buffer and its encoder cannot send anything but one (`docs/reference/perf-spike.md` §3).

pub mod admin;
mod answer;
mod body;
mod bound;
mod call;
mod caught;
mod clients;
mod cold;
mod configz;
mod connection;
mod duration;
mod flood;
mod grace;
mod handshake;
mod head;
mod hops;
mod http1;
mod http2;
mod identity;
mod inbound;
pub mod inflight;
mod keepalive;
pub mod limits;
mod linger;
pub mod listen;
mod message;
mod outgoing;
mod parse;
mod partial;
mod pieces;
mod posted;
mod progress;
mod quota;
pub mod readiness;
mod refusal;
mod reply;
mod session;
mod share;
pub mod shared_port;
mod sniff;
mod stall_limit;
#[cfg(test)]
mod testing;
mod unsent;
mod webhook;
pub mod worker;

pub use bound::Bound;
pub use connection::Front;
pub use limits::Limits;
pub use listen::Drained;
pub use shared_port::SharedPort;
pub use worker::Worker;

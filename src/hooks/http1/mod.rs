//! HTTP/1.1 to hooks that speak nothing newer: one call at a time on a connection, connections kept and used again.
//!
//! The protocol itself is hyper's. Here is what it is wrapped in:
//!
//! | file | owns |
//! | --- | --- |
//! | `body` | a review on its way out: the shared pieces, one after the other |
//! | `limited_socket` | a socket that counts what the hook says |
//! | `reader` | the answer to one POST, within bounds |
//! | `in_memory` | the same from bytes in memory, for fuzzing |
//! | `connection` | one connection: a POST out, its reply in |
//! | `exchange` | one call from idle connection, or dial, to its result |
//! | `pool` | the connections of one client |
//! | `queue` | calls that wait for a connection |
//! | `connect_breaker` | connections that carried no answer, and the pause they cost |
//! | `idle_arbiter` | which of the clients' idle connections give way to a call that waits |

mod body;
mod connect_breaker;
mod connection;
mod exchange;
mod idle_arbiter;
mod in_memory;
mod limited_socket;
mod pool;
mod queue;
mod reader;

pub(super) use idle_arbiter::IdleArbiter;
pub use in_memory::read_http1;
pub(super) use pool::Pool;

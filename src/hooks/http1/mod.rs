//! HTTP/1.1 to hooks that speak nothing newer: one call at a time on a connection, connections kept and used again.
//!
//! The protocol itself is hyper's. Here is what it is wrapped in:
//!
//! | file | owns |
//! | --- | --- |
//! | `body` | a review on its way out: the shared pieces, one after the other |
//! | `wire` | a socket that counts what the hook says |
//! | `reader` | the answer to one POST, within bounds |
//! | `in_memory` | the same from bytes in memory, for fuzzing |
//! | `link` | one connection: a POST out, its reply in |
//! | `carry` | one call from idle connection, or dial, to its result |
//! | `pool` | the connections of one lane |
//! | `queue` | calls that wait for a connection |
//! | `barren` | connections that carried no answer, and the pause they cost |
//! | `turns` | which of the lanes' idle connections give way to a call that waits |

mod barren;
mod body;
mod carry;
mod in_memory;
mod link;
mod pool;
mod queue;
mod reader;
mod turns;
mod wire;

pub use in_memory::read_http1;
pub(super) use pool::Pool;
pub(super) use turns::Turns;

//! HTTP/2 to hooks: the protocol of [`crate::http2`] over a socket, with calls as its exchanges.
//!
//! | file | owns |
//! | --- | --- |
//! | `driver` | a connection and its socket: commands in, bytes out and in, the time |
//! | `exchange` | a call and its answer while it arrives |
//! | `alarm` | one timer for all deadlines |

mod alarm;
mod driver;
mod exchange;
#[cfg(test)]
pub(super) mod scripted;
#[cfg(test)]
mod worst_cases;

pub(super) use driver::{Http2Connection, Limits};
pub(super) use exchange::CallExchange;

/// Cuts a message into the frames one call sends, as a worker's client does, and says how many bytes that makes. The
/// bytes go nowhere: this is what `benches/fanout.rs` measures.
#[doc(hidden)]
pub fn frames_of(call: super::Call) -> usize {
    crate::http2::frames_of(CallExchange::new(call, 0, &super::answer_room::AnswerRoom::unlimited()))
}

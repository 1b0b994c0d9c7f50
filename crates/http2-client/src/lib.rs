//! HTTP/2 client for unary calls, without I/O: it turns requests into bytes, and bytes into responses. RFC 9113.
//!
//! Its purpose is to send the same large bodies to many servers at little cost. hyperium's h2 writes one DATA frame
//! (16 KiB) per system call, and keeps every stream behind a lock that a single-threaded client does not need. This
//! crate gathers all queued frames of a connection into one vectored write without copying the payload, which saves a
//! quarter to a half of the sidecar's CPU (`decisions/` of this crate). It has only the features that unary calls and
//! POSTs need: no push, no priorities, no dynamic table on the receiving side.
//!
//! The owner of the socket drives a [`ClientConnection`]: it reads into [`ClientConnection::read_buffer`], writes the
//! slices from [`ClientConnection::offer`], and calls [`ClientConnection::expire`] at the next deadline. After a
//! [`ProtocolFault`] it sends GOAWAY ([`ClientConnection::send_goaway`]) and drops the connection.
//!
//! | file | owns |
//! | --- | --- |
//! | `exchange` | the traits of requests and their responses, for users of a connection |
//! | `frame` | frames: headers, kinds, which of them a server may send; splitting received bytes into frames |
//! | `head` | validation of a response's header block, independent of what its fields mean |
//! | `outgoing` | bytes for the socket: small owned headers and shared payload, sent with one vectored write |
//! | `exchanges` | all unsettled exchanges, their streams, windows and deadlines |
//! | `limits` | limits on a server's frames without a response, and on the time without window for requests |
//! | `connection` | the connection: turns requests into frames; `receive` processes the server's frames |
//! | `hpack` | header compression |

mod connection;
mod exchange;
mod exchanges;
pub mod frame;
mod head;
pub mod hpack;
mod limits;
mod outgoing;
#[cfg(test)]
mod testing;

pub use connection::{ClientConnection, Config, UnprocessedExchange};
pub use exchange::{Exchange, ExchangeFailure, FieldError, HeaderFields, RequestHead};
pub use frame::{GoAway, ProtocolFault};

/// Splits a request's body into frames and returns their total length. For the measurement in `benches/fanout.rs`.
#[doc(hidden)]
pub fn frames_of<E: Exchange>(exchange: E) -> usize {
    let mut outgoing = outgoing::Outgoing::new();
    let mut stream = exchanges::Stream::new(exchange, frame::MAX_WINDOW);
    while stream.unsent > 0 {
        let len = stream.unsent.min(frame::DEFAULT_MAX_FRAME);
        stream.send(1, len, &mut outgoing);
    }
    outgoing.queued
}

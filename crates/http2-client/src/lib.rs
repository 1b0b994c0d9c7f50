//! The client's side of HTTP/2 for unary calls: bytes in, bytes out, and the end of each exchange. RFC 9113. No sockets.
//!
//! It is made for one thing: to send the same large bodies to many servers, cheaply. hyperium's h2
//! writes one DATA frame (16 KiB) per system call and keeps every stream behind a lock that a single-threaded client
//! does not need. Gathering all queued frames of a connection into one vectored write, without copying the payload,
//! takes a quarter to a half off the sidecar's CPU (`decisions/` of this crate). It has only the features that a client of
//! unary calls and POSTs needs: no push, no priorities, no dynamic table on the receiving side.
//!
//! The owner of the socket drives a [`ClientConnection`]: it reads into [`ClientConnection::read_buffer`], writes what
//! [`ClientConnection::offer`] passes to it, and keeps the time. After a [`ProtocolFault`] it sends GOAWAY
//! ([`ClientConnection::send_goaway`]) and drops the connection.
//!
//! | file | owns |
//! | --- | --- |
//! | `exchange` | the traits by which a connection knows requests and responses |
//! | `frame` | frames: heads, kinds, which of them a server may send; bytes from the socket, cut into frames |
//! | `head` | a response's header block: the rules of HTTP/2, whatever the fields mean |
//! | `outgoing` | bytes for the socket: small owned heads around shared payload, one vectored write |
//! | `exchanges` | all exchanges that are not settled, their streams, windows and deadlines |
//! | `limits` | how many frames without a response a server may send, and for how long it may give no room |
//! | `connection` | the conversation: requests in, frames out; `receive` processes the server's frames |
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

/// Cuts a request's body into frames, and returns how many bytes that makes. The bytes go nowhere:
/// `benches/fanout.rs` measures this.
#[doc(hidden)]
pub fn frames_of<E: Exchange>(exchange: E) -> usize {
    let mut outgoing = outgoing::Outgoing::new();
    let mut stream = exchanges::Stream::new(exchange, frame::MAX_WINDOW);
    while stream.unsent > 0 {
        let len = stream.unsent.min(frame::DEFAULT_MAX_FRAME);
        stream.send(1, len, &mut outgoing);
    }
    outgoing.queued()
}

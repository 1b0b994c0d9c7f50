//! HTTP/2, a client's side of it: bytes in, bytes out, and what becomes of each exchange. RFC 9113. No sockets.
//!
//! Made for one thing: sending the same large bodies to many servers, cheaply. hyperium's h2, which serves our front,
//! writes one DATA frame (16 KiB) per system call and keeps every stream behind a lock that a single-threaded client
//! does not need. Gathering all queued frames of a connection into one vectored write, without copying the payload,
//! takes a quarter to a half off the sidecar's CPU (`docs/decisions.md`). It has only the features that a client of
//! unary calls and POSTs needs: no push, no priorities, no dynamic table on the receiving side.
//!
//! The owner of the socket drives a [`ClientConnection`]: puts what was read into [`ClientConnection::room`], offers
//! what is queued to the socket, and keeps the time. A fault ends it: [`ClientConnection::lose`].
//!
//! | file | owns |
//! | --- | --- |
//! | `exchange` | what a connection needs to know of a request, its response, and its end |
//! | `frame` | the frame head and the frame kinds (RFC 9113 §4, §6) |
//! | `head` | a response's header block: the rules of HTTP/2, whatever the fields mean |
//! | `outgoing` | bytes waiting for the socket: small owned heads around shared payload, one vectored write |
//! | `incoming` | bytes from the socket, cut into frames |
//! | `rules`, `floods` | which frames a server may send at all, and how many that answer nothing |
//! | `fault`, `goaway` | why a connection is beyond use; what a GOAWAY says |
//! | `stream` | one exchange under way |
//! | `waiting`, `exchanges` | exchanges without a stream; all that are not settled |
//! | `deadlines` | when the next of them runs out of time |
//! | `starvation` | for how long the server has given no room for bodies |
//! | `connection` | the conversation: requests in, frames out, responses to their exchanges |

mod connection;
mod deadlines;
mod exchange;
mod exchanges;
mod fault;
mod floods;
pub mod frame;
mod goaway;
mod head;
pub mod hpack;
mod incoming;
mod outgoing;
mod rules;
mod starvation;
mod stream;
#[cfg(test)]
mod testing;
mod waiting;

pub use connection::{ClientConnection, Config, Unprocessed};
pub use exchange::{Exchange, ExchangeFailure, FieldError, HeaderFields, RequestHead};
pub use fault::ProtocolFault;
pub use goaway::GoAway;

/// Cuts a request's body into the frames it is sent in, and says how many bytes that makes. The bytes go nowhere: this
/// is what `benches/fanout.rs` measures.
#[doc(hidden)]
pub fn frames_of<E: Exchange>(exchange: E) -> usize {
    let mut outgoing = outgoing::Outgoing::new();
    let mut stream = stream::Stream::new(exchange, frame::MAX_WINDOW);
    while stream.unsent > 0 {
        let len = stream.unsent.min(frame::DEFAULT_MAX_FRAME);
        stream.send(1, len, &mut outgoing);
    }
    outgoing.queued()
}

//! A small HTTP/2 client, made for one thing: sending the same large bytes to many hooks, cheaply.
//!
//! Why our own and not hyperium's h2, which serves our front: h2 writes one DATA frame (16 KiB) per system call and
//! keeps every stream behind a lock that our single-threaded lanes do not need. Gathering all queued frames of a
//! connection into one vectored write, without copying the payload, takes a quarter to a half off the sidecar's CPU
//! (`docs/decisions.md`). What is here is only what a client of unary gRPC calls and POSTs needs: no push, no
//! priorities, no dynamic table on the receiving side.
//!
//! | file | owns |
//! | --- | --- |
//! | `frame` | the frame head and the frame kinds (RFC 9113 §4, §6) |
//! | `huffman`, `header_read` | reading header blocks (RFC 7541) |
//! | `header_write` | writing ours |
//! | `outgoing` | bytes waiting for the socket: small owned heads around shared payload, one vectored write |
//! | `incoming` | bytes from the socket, cut into frames |
//! | `rules`, `floods` | which frames a hook may send at all, and how many that answer nothing |
//! | `fault`, `goodbye` | why a connection is beyond use; what a GOAWAY says |
//! | `stream` | one call under way |
//! | `waiting`, `calls` | calls without a stream; all that are not settled |
//! | `deadlines` | when the next of them runs out of time |
//! | `grpc_reply`, `http_reply` | what it came to |
//! | `connection` | the conversation: commands in, frames out, answers to their inboxes |

mod calls;
mod connection;
mod deadlines;
mod fault;
mod floods;
mod frame;
mod goodbye;
mod grpc_reply;
mod header_read;
mod header_write;
mod http_reply;
mod huffman;
mod incoming;
mod outgoing;
mod rules;
#[cfg(test)]
pub(super) mod scripted;
mod stream;
mod waiting;
#[cfg(test)]
mod worst_cases;

pub(super) use connection::{Connection, Limits};

/// Cuts a message into the frames one call sends, as a lane does, and says how many bytes that makes. The bytes go
/// nowhere: this is what `benches/fanout.rs` measures.
#[doc(hidden)]
pub fn frames_of(call: super::Call) -> usize {
    let mut outgoing = outgoing::Outgoing::new();
    let mut stream = stream::Stream::new(call, frame::MAX_WINDOW, &super::answer_room::AnswerRoom::unlimited());
    while stream.unsent > 0 {
        let len = stream.unsent.min(frame::DEFAULT_MAX_FRAME);
        stream.send(1, len, &mut outgoing);
    }
    outgoing.queued()
}

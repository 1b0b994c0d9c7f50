//! Limits: how much callers may ask of us at once.

use std::time::Duration;

/// Largest HTTP/2 frame we accept: a big object then arrives in few pieces.
pub(super) const FRAME: u32 = 1 << 20;
/// Flow-control window of one call.
pub(super) const STREAM_WINDOW: u32 = 2 << 20;
/// Flow-control window of one connection.
pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;
/// Largest header list of one call. Namespace labels travel in it.
pub(super) const HEADER_LIST: u32 = 16 << 10;
/// Refused calls whose late frames are still recognised (and ignored) for a second after the refusal.
pub(super) const REFUSED_REMEMBERED: usize = 1024;
/// Late frames of refused calls that were forgotten, over a connection's life; beyond, the connection is closed.
pub(super) const REFUSED_FORGOTTEN: usize = 65_536;
/// By when a new connection must have shaken hands: TLS, and again the first bytes of its HTTP.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// By when the head of an HTTP/1.1 request must be there, counted from the end of the answer before: hyper has one timer
/// for both. Longer than the 90 s for which client-go keeps an idle connection, so that it is the caller who closes
/// one, and never we while the next request is on its way. A caller that drips a head holds what an idle one holds: one
/// of the `connections`.
pub(super) const HEAD_OR_IDLE: Duration = Duration::from_secs(120);
/// The most that is read of an HTTP/1.1 connection at once, and so the largest piece a body comes in.
pub(super) const READ_BUFFER: usize = 1 << 20;

/// How much callers may ask of us at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest review in bytes.
    ///
    /// The default is for a review with two objects of 3 MiB. Clients may send an apiserver no more than 3 MiB, in
    /// protobuf or CBOR too, and that grows when it is written as JSON: base64 alone by a third, field names and escapes
    /// by more. Taken as doubled, `object` and `oldObject` make 12 MiB; the 4 MiB left are for `userInfo`, `options` and
    /// objects that grow more than that.
    pub message_bytes: usize,
    /// The longest a call may take, and what it gets when it names no `grpc-timeout`.
    pub timeout: Duration,
    /// Calls at once on one connection.
    pub streams: u32,
    /// Connections at once.
    pub connections: usize,
    /// How long calls under way may take to end at a shutdown.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            timeout: Duration::from_secs(30),
            streams: 256,
            connections: 1024,
            drain: Duration::from_secs(30),
        }
    }
}

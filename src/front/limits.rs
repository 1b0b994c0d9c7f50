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
/// By when a new connection must have sent its HTTP/2 preface.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// How much callers may ask of us at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest message in bytes.
    pub message_bytes: usize,
    /// Sum of the declared sizes of all messages being read or decided.
    pub inflight_bytes: usize,
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
            message_bytes: 8 << 20,
            inflight_bytes: 512 << 20,
            timeout: Duration::from_secs(30),
            streams: 256,
            connections: 1024,
            drain: Duration::from_secs(30),
        }
    }
}

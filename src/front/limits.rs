//! Limits: limits on callers.

use std::time::Duration;

/// Largest header list of one call. Namespace labels travel in it.
pub(super) const HEADER_LIST: u32 = 16 << 10;
/// Refused calls whose late frames are still recognised (and ignored) for a second after the refusal.
pub(super) const REFUSED_REMEMBERED: usize = 1024;
/// Late frames of refused calls that were forgotten, over a connection's life; beyond, the connection is closed.
pub(super) const REFUSED_FORGOTTEN: usize = 65_536;
/// Timeout of a new connection's handshakes: TLS, and again the first bytes of its HTTP.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Timeout of an HTTP/1.1 request's head, counted from the end of the answer before: hyper has one timer for both.
/// Longer than the 90 s for which client-go keeps an idle connection, so that it is the caller who closes one, and
/// never we while the next request is on its way. A caller that drips a head holds what an idle one holds: one of the
/// `connections`.
pub(super) const HEAD_OR_IDLE: Duration = Duration::from_secs(120);
/// Limits on the buffers of one connection, in proportion to the memory budget. They stand beside the budget: at most a
/// quarter of it on all connections that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffers {
    /// Largest HTTP/2 frame: a big object then arrives in few pieces. A frame's bytes so far are in the budget
    /// ([`Partial`](super::connection::partial::Partial)).
    pub(super) frame: u32,
    /// Flow-control window of one call.
    pub(super) stream_window: u32,
    /// Flow-control window of one connection.
    pub(super) connection_window: u32,
    /// The most that is read of an HTTP/1.1 connection at once, and so the largest piece a body comes in.
    pub(super) read: usize,
    /// Plaintext that a TLS connection takes at once: a whole verdict.
    pub(super) tls: usize,
}

impl Buffers {
    /// Beside a budget of that size: of the default 512 MiB frames of 1 MiB, windows of 2 and 8 MiB.
    pub(super) fn of(budget: usize) -> Self {
        let share = |part: usize, least: usize, most: usize| (budget / part).clamp(least, most);
        let connection_window = share(64, 256 << 10, 8 << 20) as u32;
        Self {
            frame: share(512, 16 << 10, 1 << 20) as u32,
            stream_window: connection_window / 4,
            connection_window,
            read: share(4096, 16 << 10, 128 << 10),
            tls: share(4096, 16 << 10, 64 << 10),
        }
    }
}

/// Limits on callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontLimits {
    /// Largest review in bytes.
    ///
    /// The default is for a review with two objects of 3 MiB. Clients may send an apiserver no more than 3 MiB, in
    /// protobuf or CBOR too, and that grows when it is written as JSON: base64 alone by a third, field names and
    /// escapes by more. Taken as doubled, `object` and `oldObject` make 12 MiB; the 4 MiB left are for `userInfo`,
    /// `options` and objects that grow more than that.
    pub message_bytes: usize,
    /// The longest a call may take, and what it gets when it names no `grpc-timeout`.
    pub timeout: Duration,
    /// Calls at once on one connection.
    pub streams: u32,
    /// Connections at once.
    pub connections: usize,
    /// Time for calls under way to end at a shutdown.
    pub drain: Duration,
}

impl Default for FrontLimits {
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

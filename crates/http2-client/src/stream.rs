//! Stream: one exchange under way.

use super::{exchange::Exchange, frame, outgoing::Outgoing};

/// Bytes that the server may send on one stream before we give more window.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;

/// One exchange under way on one connection.
#[derive(Debug)]
pub(super) struct Stream<E> {
    pub(super) exchange: E,
    /// The piece of the body being sent, and how far into it; how much is left of all.
    chunk: usize,
    offset: usize,
    pub(super) unsent: usize,
    /// Bytes that the peer will take on this stream.
    pub(super) window: i64,
    /// It stands in the connection's ready queue.
    pub(super) ready: bool,
    /// End of its queued bytes.
    pub(super) queued_to: u64,
    /// Bytes received whose window was not yet given back, and how many more the server may send.
    pub(super) unreturned: u32,
    pub(super) granted: u32,
    /// The response's head has come (not only interim ones): the next header block is trailers.
    pub(super) has_head: bool,
}

impl<E: Exchange> Stream<E> {
    pub(super) fn new(exchange: E, window: i64) -> Self {
        let unsent = exchange.body().len();
        Self {
            exchange,
            chunk: 0,
            offset: 0,
            unsent,
            window,
            ready: false,
            queued_to: 0,
            unreturned: 0,
            granted: STREAM_WINDOW,
            has_head: false,
        }
    }

    /// Queues one DATA frame of `len` bytes of the body.
    pub(super) fn send(&mut self, id: u32, len: usize, out: &mut Outgoing) {
        self.unsent -= len;
        let flags = if self.unsent == 0 { frame::flag::END_STREAM } else { 0 };
        out.data(frame::FrameHead { len, kind: frame::kind::DATA, flags, stream: id });
        let mut left = len;
        while left > 0 {
            let Some(chunk) = self.exchange.body().chunks().get(self.chunk) else { return };
            let n = left.min(chunk.len() - self.offset);
            if n > 0 {
                out.shared(chunk.slice(self.offset..self.offset + n));
            }
            left -= n;
            self.offset += n;
            if self.offset == chunk.len() {
                self.chunk += 1;
                self.offset = 0;
            }
        }
        self.queued_to = out.end();
    }
}

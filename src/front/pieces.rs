//! BodyPieces: a body collected as it arrives without copying it.
//!
//! Each payload is kept as the buffer it was read into. A retained payload keeps its whole read buffer alive, of which
//! others may have had the rest: in h2 and hyper 8 KiB, or as much as the frame needs. So payloads below half of that
//! are joined instead: a caller that sends many small frames among others must not pin many buffers.

use std::mem;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::{model::Rope, telemetry::Metrics};

/// The read buffers of h2 (through tokio-util's framing) and hyper, unless a frame needs more.
const READ_BUFFER: usize = 8 << 10;
/// Payloads smaller than this are joined: what is kept pins at most twice its length.
const SMALL: usize = READ_BUFFER / 2;

/// A body in the making.
#[derive(Debug, Default)]
pub(super) struct BodyPieces {
    /// The payloads so far, but for `joined`.
    chunks: SmallVec<[Bytes; 4]>,
    /// Small payloads that follow `chunks`.
    joined: BytesMut,
    /// Bytes of the buffers that `chunks` keep alive.
    pinned: usize,
}

impl BodyPieces {
    /// True before the first byte.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.joined.is_empty()
    }

    /// Bytes of memory it holds: the whole read buffers, and room that is not yet filled.
    pub(super) fn held(&self) -> usize {
        self.pinned + self.joined.capacity()
    }

    /// The first piece that will not grow any more.
    pub(super) fn first(&self) -> Option<&Bytes> {
        self.chunks.first()
    }

    /// Takes the next payload. The last of a body is kept at any size, since every body ends in a remainder.
    pub(super) fn push(&mut self, payload: Bytes, last: bool, metrics: &Metrics) {
        if payload.is_empty() {
            return;
        }
        if payload.len() >= SMALL || (last && self.joined.is_empty()) {
            self.keep(payload);
        } else {
            metrics.copied(payload.len());
            self.joined.extend_from_slice(&payload);
        }
    }

    /// Takes the next payload as it is.
    pub(super) fn keep(&mut self, payload: Bytes) {
        self.flush();
        self.pinned += payload.len().max(READ_BUFFER);
        self.chunks.push(payload);
    }

    /// Moves bytes of `payload` into the first piece until that holds `head` of them; no other piece may be there yet.
    pub(super) fn complete_head(&mut self, payload: &mut Bytes, head: usize) {
        let missing = (head - self.joined.len()).min(payload.len());
        self.joined.extend_from_slice(&payload.split_to(missing));
        if self.joined.len() == head {
            self.flush();
        }
    }

    /// The pieces as one rope.
    pub(super) fn into_rope(mut self) -> Rope {
        self.flush();
        match self.chunks.len() {
            1 => Rope::new([mem::take(&mut self.chunks[0])]),
            _ => Rope::new(self.chunks.into_vec()),
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            // Its buffer stays ours as long as there is room in it.
            self.pinned += self.joined.len();
            self.chunks.push(self.joined.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As h2 reads: 8 KiB at a time, of which these bytes are a body's and the rest is somebody else's.
    fn among_others(len: usize) -> Bytes {
        Bytes::from(vec![0; READ_BUFFER]).slice(..len)
    }

    #[test]
    fn a_body_holds_at_most_twice_its_bytes_however_it_is_cut() {
        let metrics = Metrics::new(1);
        for len in [1, 100, 1024, SMALL - 1, SMALL, SMALL + 1, READ_BUFFER] {
            let mut pieces = BodyPieces::default();
            (0..256).for_each(|_| pieces.push(among_others(len), false, &metrics));
            let held = pieces.held();
            assert!((len * 256..=len * 512 + READ_BUFFER).contains(&held), "{held} for 256 times {len}");
            let rope = pieces.into_rope();
            let pins = rope.chunks().iter().filter(|chunk| chunk.len() == len).count() * READ_BUFFER;
            assert!(rope.len() == len * 256 && pins <= 2 * rope.len() + READ_BUFFER, "{pins} for 256 times {len}");
        }
    }
}

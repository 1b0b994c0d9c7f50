//! Pieces: a body collected as it arrives without copying it.
//!
//! Each payload is kept as the buffer it was read into. A retained payload keeps its whole read buffer alive, so payloads
//! below 1 KiB are joined instead: a caller that sends many tiny frames must not pin many large buffers.

use std::mem;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::{model::Rope, telemetry::Metrics};

/// Payloads smaller than this are joined.
const TINY: usize = 1024;

/// A body in the making.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The payloads so far, but for `joined`.
    chunks: SmallVec<[Bytes; 4]>,
    /// Tiny payloads that follow `chunks`.
    joined: BytesMut,
}

impl Pieces {
    /// True before the first byte.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.joined.is_empty()
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
        if payload.len() >= TINY || (last && self.joined.is_empty()) {
            self.keep(payload);
        } else {
            metrics.copied(payload.len());
            self.joined.extend_from_slice(&payload);
        }
    }

    /// Takes the next payload as it is.
    pub(super) fn keep(&mut self, payload: Bytes) {
        self.flush();
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
            self.chunks.push(self.joined.split().freeze());
        }
    }
}

//! Incoming: bytes from the peer, cut into frames. Answers are small, so one fixed buffer is enough for ever.

use std::ops::Range;

use super::frame::{DEFAULT_MAX_FRAME, FrameHead, HEAD};

/// Holds one largest frame and the beginning of the next.
const ROOM: usize = 2 * DEFAULT_MAX_FRAME;

/// The peer sent a frame larger than we allow (FRAME_SIZE_ERROR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Bytes read and not yet taken.
#[derive(Debug)]
pub(super) struct Incoming {
    buffer: Box<[u8]>,
    taken: usize,
    filled: usize,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; ROOM].into(), taken: 0, filled: 0 }
    }

    /// Room for what is read next: for a whole frame at least.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.buffer.len() - self.filled < HEAD + DEFAULT_MAX_FRAME {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes note of bytes that were put into the room.
    pub(super) fn filled(&mut self, len: usize) {
        self.filled = (self.filled + len).min(self.buffer.len());
    }

    /// The next whole frame: its head, and where its payload lies (see [`Incoming::payload`]).
    pub(super) fn next_frame(&mut self) -> Result<Option<(FrameHead, Range<usize>)>, TooLong> {
        let waiting = &self.buffer[self.taken..self.filled];
        let Some(head) = waiting.first_chunk::<HEAD>().map(FrameHead::read) else { return Ok(None) };
        if head.len > DEFAULT_MAX_FRAME {
            return Err(TooLong);
        }
        if waiting.len() < HEAD + head.len {
            return Ok(None);
        }
        let start = self.taken + HEAD;
        self.taken = start + head.len;
        Ok(Some((head, start..self.taken)))
    }

    /// The payload of the frame that was returned last.
    pub(super) fn payload(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }
}

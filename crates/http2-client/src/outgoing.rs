//! Outgoing: bytes for the peer, small owned heads around shared payload, sent with one vectored write.
//!
//! The queue is made of frames, and those of an exchange that is over are taken back (`outgoing/taking_back.rs`), but
//! for the rest of a frame whose beginning is already sent.

mod taking_back;

use std::{collections::VecDeque, io::IoSlice};

use bytes::Bytes;

use super::frame::{FrameHead, HEAD};

/// Most pieces of one system call (Linux takes at most 1,024).
const PIECES: usize = 256;
/// Length of the shorter list, made where there are no more pieces.
const FEW: usize = 16;
/// The store of heads is moved up when this much of it has been sent.
const SENT_HEADS: usize = 4096;

#[derive(Debug)]
enum Piece {
    /// Number of bytes of `heads`.
    Heads(usize),
    /// Part of a body, shared with whoever else is sent it.
    Shared(Bytes),
}

/// Stream and length of a queued frame, in order.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Its stream; 0 for the connection's own frames, which are never taken back.
    stream: u32,
    /// Bytes of it that are still queued.
    len: usize,
    what: What,
    /// Some of it is sent.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The connection's own.
    Control,
    /// A header block, which may be taken back where nothing later refers to it.
    Block { revocable: bool },
    /// A DATA frame.
    Data,
}

/// Queued frames of one connection. Payload is never copied; heads stand one behind the other in one buffer.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    frames: VecDeque<Frame>,
    /// Heads not yet wholly sent; the first `sent` bytes are.
    heads: Vec<u8>,
    sent: usize,
    queued: usize,
    /// Bytes ever queued, and how many of them are surely gone.
    end: u64,
    gone: u64,
}

impl Outgoing {
    /// Room for the heads of ordinary traffic from the beginning, so that no request pays for it.
    pub(super) fn new() -> Self {
        Self {
            pieces: VecDeque::with_capacity(64),
            frames: VecDeque::with_capacity(64),
            heads: Vec::with_capacity(2 * SENT_HEADS),
            ..Self::default()
        }
    }

    /// Bytes waiting.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// The place behind what was queued last, for [`Outgoing::holds`].
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// May something that ends at this place still be queued? False means that it is not.
    pub(super) fn holds(&self, place: u64) -> bool {
        place > self.gone
    }

    /// Queues whole frames of the connection's own, which `write` appends.
    pub(super) fn control(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let ((), len) = self.heads(write);
        match self.frames.back_mut() {
            Some(Frame { what: What::Control, len: before, .. }) => *before += len,
            _ => self.frames.push_back(Frame { stream: 0, len, what: What::Control, begun: false }),
        }
    }

    /// Queues the header block of a stream, frame heads and all, which `write` appends. It says whether the block may
    /// be taken back.
    pub(super) fn block(&mut self, stream: u32, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let (revocable, len) = self.heads(write);
        self.frames.push_back(Frame { stream, len, what: What::Block { revocable }, begun: false });
    }

    /// Queues a DATA frame's head. Its payload follows piece by piece, by [`Outgoing::shared`].
    pub(super) fn data(&mut self, head: FrameHead) {
        self.heads(|heads| heads.extend_from_slice(&head.write()));
        self.frames.push_back(Frame { stream: head.stream, len: HEAD + head.len, what: What::Data, begun: false });
    }

    /// Queues payload of the DATA frame that was queued last.
    pub(super) fn shared(&mut self, payload: Bytes) {
        self.queued += payload.len();
        self.end += payload.len() as u64;
        self.pieces.push_back(Piece::Shared(payload));
    }

    /// Queues what `write` appends, and says how long it is.
    fn heads<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (T, usize) {
        let before = self.heads.len();
        let result = write(&mut self.heads);
        let added = self.heads.len() - before;
        self.queued += added;
        self.end += added as u64;
        match self.pieces.back_mut() {
            Some(Piece::Heads(len)) => *len += added,
            _ => self.pieces.push_back(Piece::Heads(added)),
        }
        (result, added)
    }

    /// Offers what is queued, as much as goes into one system call, to `write`, which says how much of it was taken
    /// where that is known. `None` where nothing is queued.
    pub(super) fn offer<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> (T, usize)) -> Option<T> {
        let (result, written) = match self.pieces.len() {
            0 => return None,
            // Small requests need few; filling a long list for them would cost more than all else here.
            1..=FEW => self.slices::<FEW, _>(write),
            _ => self.slices::<PIECES, _>(write),
        };
        if written > 0 {
            self.advance(written);
        }
        Some(result)
    }

    /// Hands the first `N` pieces to `write`.
    fn slices<const N: usize, R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); N];
        let mut heads = &self.heads[self.sent..];
        let count = self.pieces.len().min(N);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Heads(len) => {
                    let (now, later) = heads.split_at(*len);
                    heads = later;
                    now
                }
                Piece::Shared(payload) => payload,
            });
        }
        write(&slices[..count])
    }

    /// Forgets the first `n` bytes.
    fn advance(&mut self, mut n: usize) {
        self.queued -= n;
        self.gone += n as u64;
        self.advance_frames(n);
        while n > 0 {
            match self.pieces.front_mut() {
                Some(Piece::Heads(len)) if n < *len => {
                    *len -= n;
                    self.sent += n;
                    return self.tidy();
                }
                Some(Piece::Heads(len)) => {
                    n -= *len;
                    self.sent += *len;
                }
                Some(Piece::Shared(payload)) if n < payload.len() => {
                    bytes::Buf::advance(payload, n);
                    return self.tidy();
                }
                Some(Piece::Shared(payload)) => n -= payload.len(),
                None => return,
            }
            self.pieces.pop_front();
        }
        self.tidy();
    }

    fn advance_frames(&mut self, mut n: usize) {
        while let Some(frame) = self.frames.front_mut() {
            if n < frame.len {
                frame.begun |= n > 0;
                frame.len -= n;
                return;
            }
            n -= frame.len;
            self.frames.pop_front();
        }
    }

    fn tidy(&mut self) {
        if self.pieces.is_empty() {
            self.heads.clear();
            self.sent = 0;
            self.gone = self.end;
        } else if self.sent >= SENT_HEADS {
            self.heads.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes at most so many bytes of what is queued, and appends them to `got`.
    fn take(outgoing: &mut Outgoing, most: usize, got: &mut Vec<u8>) {
        outgoing.offer(|slices| {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let n = most.clamp(1, all.len());
            got.extend_from_slice(&all[..n]);
            ((), n)
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_byte_arrives_once_and_in_order(
            pieces in prop::collection::vec((any::<bool>(), 1..700_usize), 1..300),
            takes in prop::collection::vec(1..2000_usize, 0..200),
        ) {
            let (mut outgoing, mut want) = (Outgoing::new(), Vec::new());
            let (mut takes, mut got) = (takes, Vec::new());
            for (i, (shared, len)) in pieces.into_iter().enumerate() {
                let part: Vec<u8> = (0..len).map(|n| (n + i * 31) as u8).collect();
                want.extend_from_slice(&part);
                if shared {
                    outgoing.shared(part.into());
                } else {
                    outgoing.control(|out| out.extend_from_slice(&part));
                }
                if i % 5 == 0 {
                    take(&mut outgoing, takes.pop().unwrap_or(usize::MAX), &mut got);
                }
            }
            while outgoing.queued() > 0 {
                take(&mut outgoing, takes.pop().unwrap_or(usize::MAX), &mut got);
            }
            prop_assert!(got == want);
            prop_assert!(outgoing.heads.is_empty());
        }
    }
}

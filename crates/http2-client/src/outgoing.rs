//! Queue of bytes for the peer: small owned headers and shared payload, sent with one vectored write.
//!
//! The queue consists of frames. The frames of an ended exchange are withdrawn, so that they use no memory while the
//! peer does not read, and the peer does not process them later. The rest of a partly sent frame must follow; it is
//! copied, so that it does not keep a whole body alive.

use std::{collections::VecDeque, io::IoSlice};

use bytes::Bytes;
use smallvec::SmallVec;

use super::frame::{FrameHead, HEAD};

/// Maximum number of slices of one system call (Linux accepts at most 1,024).
const MAX_SLICES: usize = 256;
/// Length of the list of slices if there are at most this many pieces.
const SHORT_SLICES: usize = 16;
/// Number of sent bytes of `heads` from which they are removed.
const COMPACT_HEADS_AFTER: usize = 4096;

#[derive(Debug)]
enum Piece {
    /// The next bytes of `heads`, by their number.
    Heads(usize),
    /// Part of a body, shared with other connections.
    Shared(Bytes),
}

/// A queued frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Stream of the frame; 0 for frames of the connection, which are never withdrawn.
    stream: u32,
    /// Number of its bytes that are still queued.
    len: usize,
    content: FrameContent,
    /// True if a part of the frame was sent.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameContent {
    /// Frames of the connection.
    Control,
    /// A header block; revocable if no later block relies on it.
    Block { revocable: bool },
    /// A DATA frame.
    Data,
}

/// Queued frames of one connection. Payload is not copied; headers are appended to one buffer.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    frames: VecDeque<Frame>,
    /// Headers and control frames, and the number of their bytes that were sent.
    heads: Vec<u8>,
    sent: usize,
    /// Number of queued bytes.
    pub(super) queued: usize,
    /// Number of bytes ever queued: the end of the bytes queued so far, for [`Outgoing::holds`].
    pub(super) end: u64,
    /// Number of bytes that are certainly sent or withdrawn.
    gone: u64,
}

impl Outgoing {
    /// Creates an empty queue with capacity for ordinary traffic, so that requests need not allocate.
    pub(super) fn new() -> Self {
        Self {
            pieces: VecDeque::with_capacity(64),
            frames: VecDeque::with_capacity(64),
            heads: Vec::with_capacity(2 * COMPACT_HEADS_AFTER),
            ..Self::default()
        }
    }

    /// Returns false if everything queued before `end` is certainly sent or withdrawn.
    pub(super) fn holds(&self, end: u64) -> bool {
        end > self.gone
    }

    /// Queues whole frames of the connection, which `write` appends.
    pub(super) fn control(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let ((), len) = self.heads(write);
        match self.frames.back_mut() {
            Some(Frame { content: FrameContent::Control, len: before, .. }) => *before += len,
            _ => self.frames.push_back(Frame { stream: 0, len, content: FrameContent::Control, begun: false }),
        }
    }

    /// Queues the header block of a stream, including frame headers, which `write` appends. `write` returns true if the
    /// block can be withdrawn.
    pub(super) fn block(&mut self, stream: u32, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let (revocable, len) = self.heads(write);
        self.frames.push_back(Frame { stream, len, content: FrameContent::Block { revocable }, begun: false });
    }

    /// Queues the header of a DATA frame. Its payload follows with calls of [`Outgoing::shared`].
    pub(super) fn data(&mut self, head: FrameHead) {
        self.heads(|heads| heads.extend_from_slice(&head.write()));
        self.frames.push_back(Frame {
            stream: head.stream,
            len: HEAD + head.len,
            content: FrameContent::Data,
            begun: false,
        });
    }

    /// Queues payload of the DATA frame that was queued last.
    pub(super) fn shared(&mut self, payload: Bytes) {
        self.queued += payload.len();
        self.end += payload.len() as u64;
        self.pieces.push_back(Piece::Shared(payload));
    }

    /// Queues the bytes that `write` appends, and returns its result and their number.
    fn heads<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (T, usize) {
        let before = self.heads.len();
        let result = write(&mut self.heads);
        let added = self.heads.len() - before;
        self.queued += added;
        self.end += added as u64;
        self.add_heads(added);
        (result, added)
    }

    /// Adds the last `added` bytes of `heads` to the queue.
    fn add_heads(&mut self, added: usize) {
        match self.pieces.back_mut() {
            Some(Piece::Heads(len)) => *len += added,
            _ => self.pieces.push_back(Piece::Heads(added)),
        }
    }

    /// Passes queued bytes, as many as fit one system call, to `write`, which returns its result and the number of
    /// bytes written. `None` if nothing is queued.
    pub(super) fn offer<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> (T, usize)) -> Option<T> {
        let (result, written) = match self.pieces.len() {
            0 => return None,
            // Small requests have few pieces, and initializing a long list for them would dominate the cost.
            1..=SHORT_SLICES => self.slices::<SHORT_SLICES, _>(write),
            _ => self.slices::<MAX_SLICES, _>(write),
        };
        if written > 0 {
            self.advance(written);
        }
        Some(result)
    }

    /// Passes the first `N` pieces to `write`.
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

    /// Removes the first `n` bytes.
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
        } else if self.sent >= COMPACT_HEADS_AFTER {
            self.heads.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Withdraws the frames of streams for which `over` returns true, in time linear in the length of the queue.
    pub(super) fn withdraw(&mut self, over: impl Fn(u32) -> bool) -> Withdrawal {
        let mut taken = Withdrawal::default();
        let heads = self.heads.split_off(self.sent);
        self.heads.clear();
        self.sent = 0;
        let mut heads = &heads[..];
        let mut pieces = std::mem::take(&mut self.pieces);
        self.queued = 0;
        for mut frame in std::mem::take(&mut self.frames) {
            let over = frame.stream != 0 && over(frame.stream);
            let action = match frame.content {
                _ if !over => FrameAction::Move,
                FrameContent::Data if frame.begun => FrameAction::Copy,
                FrameContent::Data | FrameContent::Block { revocable: true } if !frame.begun => FrameAction::Drop,
                _ => FrameAction::Move,
            };
            if action == FrameAction::Drop {
                match frame.content {
                    FrameContent::Data => taken.data += frame.len - HEAD,
                    _ => taken.unheard.push(frame.stream),
                }
            }
            let len = frame.len;
            self.move_frame(len, &mut pieces, &mut heads, action, &mut taken.copied);
            if action != FrameAction::Drop {
                self.queued += len;
                if action == FrameAction::Copy {
                    // The frame belongs to no exchange any more.
                    frame = Frame { stream: 0, content: FrameContent::Control, ..frame };
                }
                self.frames.push_back(frame);
            }
        }
        self.tidy();
        taken
    }

    /// Moves or copies the next `len` bytes of the old queue to the new one, or drops them.
    fn move_frame(
        &mut self,
        mut len: usize,
        pieces: &mut VecDeque<Piece>,
        heads: &mut &[u8],
        action: FrameAction,
        copied: &mut usize,
    ) {
        while len > 0 {
            match pieces.front_mut() {
                Some(Piece::Heads(left)) => {
                    let n = len.min(*left);
                    let (now, later) = heads.split_at(n);
                    *heads = later;
                    len -= n;
                    *left -= n;
                    if *left == 0 {
                        pieces.pop_front();
                    }
                    if action != FrameAction::Drop {
                        self.own(now);
                    }
                }
                Some(Piece::Shared(_)) => {
                    let Some(Piece::Shared(payload)) = pieces.pop_front() else { return };
                    len -= payload.len().min(len);
                    match action {
                        FrameAction::Move => self.pieces.push_back(Piece::Shared(payload)),
                        FrameAction::Copy => {
                            *copied += payload.len();
                            self.own(&payload);
                        }
                        FrameAction::Drop => {}
                    }
                }
                None => return,
            }
        }
    }

    fn own(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.add_heads(bytes.len());
    }
}

/// Result of [`Outgoing::withdraw`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Withdrawal {
    /// Streams that the peer does not know, because their header block was withdrawn.
    pub(super) unheard: SmallVec<[u32; 4]>,
    /// Number of DATA bytes to return to the connection's window.
    pub(super) data: usize,
    /// Number of bytes that were copied and stay queued.
    pub(super) copied: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameAction {
    Move,
    Copy,
    Drop,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::kind;

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
            while outgoing.queued > 0 {
                take(&mut outgoing, takes.pop().unwrap_or(usize::MAX), &mut got);
            }
            prop_assert!(got == want);
            prop_assert!(outgoing.heads.is_empty());
        }
    }

    /// A queue of which so many bytes were sent: the connection's own frame, and for streams 1 and 3 a block and DATA.
    fn queue(sent: usize, revocable: bool) -> Outgoing {
        let mut out = Outgoing::new();
        out.control(|heads| heads.extend_from_slice(b"ctl"));
        for (stream, block, payload) in [(1, b"H1", b"aaaa"), (3, b"H3", b"bbbb")] {
            out.block(stream, |heads| {
                heads.extend_from_slice(block);
                revocable
            });
            out.data(FrameHead { len: payload.len(), kind: kind::DATA, flags: 0, stream });
            out.shared(Bytes::from_static(&payload[..1]));
            out.shared(Bytes::from_static(&payload[1..]));
        }
        out.advance(sent);
        out
    }

    /// Bytes still to be sent, as text; a DATA frame's head is `.` for each of its bytes.
    fn left(out: &Outgoing) -> String {
        let mut heads = &out.heads[out.sent..];
        let mut text = Vec::new();
        for piece in &out.pieces {
            match piece {
                Piece::Heads(len) => {
                    let (now, later) = heads.split_at(*len);
                    heads = later;
                    text.extend(now.iter().map(|byte| if byte.is_ascii_alphanumeric() { *byte } else { b'.' }));
                }
                Piece::Shared(payload) => text.extend_from_slice(payload),
            }
        }
        assert_eq!(text.len(), out.queued);
        assert_eq!(out.frames.iter().map(|frame| frame.len).sum::<usize>(), out.queued);
        assert!(heads.is_empty());
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn unsent_frames_are_withdrawn() {
        let mut out = queue(0, true);
        let taken = out.withdraw(|id| id == 1);
        assert_eq!((&taken.unheard[..], taken.data, taken.copied), (&[1][..], 4, 0));
        assert_eq!(left(&out), "ctlH3.........bbbb");
        assert_eq!(out.withdraw(|_| true).unheard[..], [3]);
        assert_eq!(left(&out), "ctl");
    }

    #[test]
    fn a_header_block_that_later_ones_rely_on_is_not_withdrawn() {
        let mut out = queue(0, false);
        let taken = out.withdraw(|id| id == 1);
        assert_eq!((&taken.unheard[..], taken.data), (&[][..], 4));
        assert_eq!(left(&out), "ctlH1H3.........bbbb");
    }

    #[test]
    fn a_begun_frame_is_finished_from_a_copy() {
        for (sent, rest) in [(4, "1"), (5 + 2, ".......aaaa"), (5 + 9 + 2, "aa")] {
            let mut out = queue(sent, true);
            let taken = out.withdraw(|id| id == 1);
            assert!(taken.unheard.is_empty(), "{sent}");
            assert_eq!(left(&out), format!("{rest}H3.........bbbb"), "{sent}");
            let shared = out.pieces.iter().filter(|piece| matches!(piece, Piece::Shared(_))).count();
            assert_eq!(shared, 2, "only what the other call sends is shared: {sent}");
        }
    }

    #[test]
    fn sent_bytes_are_no_longer_held() {
        let mut out = queue(0, true);
        let end = out.end;
        assert!(out.holds(end));
        out.withdraw(|_| true);
        assert!(out.holds(end), "something is queued: rather once too often");
        out.advance(3);
        assert!(!out.holds(end));
    }
}

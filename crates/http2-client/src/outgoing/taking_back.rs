//! Taking back: removal of queued frames whose exchanges are over.
//!
//! A peer that does not read must not hold in memory what nobody waits for any more, and one that reads again should
//! not be asked what is past. Frames not yet begun go. Of one that is begun the rest has to follow: it is copied, so
//! that it does not keep a whole body alive.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{Frame, HEAD, Outgoing, Piece, What};

/// Frames that have left the queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct TakenBack {
    /// Streams of which the peer has heard nothing, and never will.
    pub(in super::super) unheard: SmallVec<[u32; 4]>,
    /// Bytes of DATA for which there is room in the connection's window again.
    pub(in super::super) data: usize,
    /// Bytes that were copied, and stay queued.
    pub(in super::super) copied: usize,
}

impl Outgoing {
    /// Takes back the frames of the streams that are `over`. Costs as much as there is queued.
    pub(in super::super) fn take_back(&mut self, over: impl Fn(u32) -> bool) -> TakenBack {
        let mut taken = TakenBack::default();
        let heads = self.heads.split_off(self.sent);
        self.heads.clear();
        self.sent = 0;
        let mut heads = &heads[..];
        let mut pieces = std::mem::take(&mut self.pieces);
        self.queued = 0;
        for mut frame in std::mem::take(&mut self.frames) {
            let over = frame.stream != 0 && over(frame.stream);
            let fate = match frame.what {
                _ if !over => Fate::Stays,
                What::Data if frame.begun => Fate::Copied,
                What::Data | What::Block { revocable: true } if !frame.begun => Fate::Goes,
                _ => Fate::Stays,
            };
            if fate == Fate::Goes {
                match frame.what {
                    What::Data => taken.data += frame.len - HEAD,
                    _ => taken.unheard.push(frame.stream),
                }
            }
            let len = frame.len;
            self.move_frame(len, &mut pieces, &mut heads, fate, &mut taken.copied);
            if fate != Fate::Goes {
                self.queued += len;
                if fate == Fate::Copied {
                    // Nothing of it is anybody's any more.
                    frame = Frame { stream: 0, what: What::Control, ..frame };
                }
                self.frames.push_back(frame);
            }
        }
        self.tidy();
        taken
    }

    /// Moves the next `len` bytes of the old queue to the new one, copies them there, or leaves them out.
    fn move_frame(
        &mut self,
        mut len: usize,
        pieces: &mut VecDeque<Piece>,
        heads: &mut &[u8],
        fate: Fate,
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
                    if fate != Fate::Goes {
                        self.own(now);
                    }
                }
                Some(Piece::Shared(_)) => {
                    let Some(Piece::Shared(payload)) = pieces.pop_front() else { return };
                    len -= payload.len().min(len);
                    match fate {
                        Fate::Stays => self.pieces.push_back(Piece::Shared(payload)),
                        Fate::Copied => {
                            *copied += payload.len();
                            self.own(&payload);
                        }
                        Fate::Goes => {}
                    }
                }
                None => return,
            }
        }
    }

    fn own(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(Piece::Heads(len)) => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Heads(bytes.len())),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Copied,
    Goes,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{
        super::super::frame::{FrameHead, kind},
        *,
    };

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
        assert_eq!(text.len(), out.queued());
        assert_eq!(out.frames.iter().map(|frame| frame.len).sum::<usize>(), out.queued());
        assert!(heads.is_empty());
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_call_of_which_nothing_is_sent_leaves_no_trace() {
        let mut out = queue(0, true);
        let taken = out.take_back(|id| id == 1);
        assert_eq!((&taken.unheard[..], taken.data, taken.copied), (&[1][..], 4, 0));
        assert_eq!(left(&out), "ctlH3.........bbbb");
        assert_eq!(out.take_back(|_| true).unheard[..], [3]);
        assert_eq!(left(&out), "ctl");
    }

    #[test]
    fn a_block_that_later_ones_refer_to_stays() {
        let mut out = queue(0, false);
        let taken = out.take_back(|id| id == 1);
        assert_eq!((&taken.unheard[..], taken.data), (&[][..], 4));
        assert_eq!(left(&out), "ctlH1H3.........bbbb");
    }

    #[test]
    fn what_is_begun_is_ended_and_keeps_nothing_alive() {
        for (sent, rest) in [(4, "1"), (5 + 2, ".......aaaa"), (5 + 9 + 2, "aa")] {
            let mut out = queue(sent, true);
            let taken = out.take_back(|id| id == 1);
            assert!(taken.unheard.is_empty(), "{sent}");
            assert_eq!(left(&out), format!("{rest}H3.........bbbb"), "{sent}");
            let shared = out.pieces.iter().filter(|piece| matches!(piece, Piece::Shared(_))).count();
            assert_eq!(shared, 2, "only what the other call sends is shared: {sent}");
        }
    }

    #[test]
    fn what_is_sent_is_known_to_be_gone() {
        let mut out = queue(0, true);
        let end = out.end();
        assert!(out.holds(end));
        out.take_back(|_| true);
        assert!(out.holds(end), "something is queued: rather once too often");
        out.advance(3);
        assert!(!out.holds(end));
    }
}

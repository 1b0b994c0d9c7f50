//! A byte string in shared pieces.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;

/// A byte string kept as the shared pieces in which it arrived, such as the buffers of reads from a socket.
///
/// Cloning costs one reference count, or two if there are many pieces. Only [`Rope::copy_of`] copies bytes. Finding an
/// offset takes time logarithmic in the number of pieces, which the sender controls.
#[derive(Clone, Debug)]
pub struct Rope {
    chunks: Arc<[Bytes]>,
    /// The offset of each piece, if there are many.
    starts: Option<Arc<[usize]>>,
    len: usize,
}

/// Maximum number of pieces in which an offset is found by a linear search.
const MAX_LINEAR_PIECES: usize = 16;

impl Rope {
    /// Creates a rope of these pieces, in order.
    pub fn new(chunks: impl Into<Arc<[Bytes]>>) -> Self {
        let chunks = chunks.into();
        let mut len = 0;
        let starts = chunks.iter().map(|chunk| {
            let start = len;
            len += chunk.len();
            start
        });
        let starts = if chunks.len() > MAX_LINEAR_PIECES {
            Some(starts.collect())
        } else {
            starts.for_each(drop);
            None
        };
        Self { chunks, starts, len }
    }

    /// Returns the length of all pieces in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the other rope has the same bytes. Pieces that both ropes share are not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        if self.len != other.len {
            return false;
        }
        let (mut ours, mut theirs) = (self.chunks.iter(), other.chunks.iter());
        let (mut one, mut two): (&[u8], &[u8]) = (&[], &[]);
        loop {
            if one.is_empty() {
                let Some(next) = ours.next() else { return true };
                one = next;
            }
            if two.is_empty() {
                let Some(next) = theirs.next() else { return true };
                two = next;
            }
            let len = one.len().min(two.len());
            let (a, b);
            (a, one) = one.split_at(len);
            (b, two) = two.split_at(len);
            if !std::ptr::eq(a, b) && a != b {
                return false;
            }
        }
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pieces.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// Returns the index of the piece with the byte at `at`, and the piece's offset. Behind the last byte, returns the
    /// index of any piece after which there are no bytes, or the number of pieces.
    pub fn piece_at(&self, at: usize) -> (usize, usize) {
        if let Some(starts) = &self.starts {
            // Of several pieces with the same offset, only the last is not empty.
            let index = starts.partition_point(|start| *start <= at).saturating_sub(1);
            return (index, starts[index]);
        }
        let mut start = 0;
        for (index, chunk) in self.chunks.iter().enumerate() {
            if at < start + chunk.len() {
                return (index, start);
            }
            start += chunk.len();
        }
        (self.chunks.len(), start)
    }

    /// Returns the pieces with bytes of `range` (clamped to the rope), in order, each with its part of the range.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&Bytes, Range<usize>)> {
        let (first, mut start) = self.piece_at(range.start);
        let pieces = self.chunks[first..].iter().map(move |chunk| {
            let began = start;
            start += chunk.len();
            (chunk, began)
        });
        pieces.take_while(move |(_, start)| *start < range.end).filter_map(move |(chunk, start)| {
            let from = range.start.clamp(start, start + chunk.len()) - start;
            let to = range.end.clamp(start, start + chunk.len()) - start;
            (from < to).then_some((chunk, from..to))
        })
    }

    /// Returns the parts of the pieces in `range` (clamped to the rope), in order.
    pub fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.parts(range).map(|(chunk, part)| &chunk[part])
    }

    /// Returns the bytes in `range` as one slice; `None` if they lie in several pieces.
    pub fn contiguous(&self, range: Range<usize>) -> Option<&[u8]> {
        let mut slices = self.slices(range.clone());
        match (slices.next(), slices.next()) {
            (None, _) if range.is_empty() => Some(&[]),
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Returns the bytes in `range` as a shared buffer: a slice if they lie in one piece, otherwise a copy. Meant for
    /// short fields.
    pub fn copy_of(&self, range: Range<usize>) -> Bytes {
        let mut parts = self.parts(range.clone());
        match (parts.next(), parts.next()) {
            (None, _) => return Bytes::new(),
            (Some((chunk, part)), None) => return chunk.slice(part),
            (Some(_), Some(_)) => {}
        }
        let mut whole = Vec::with_capacity(range.end.min(self.len) - range.start);
        self.slices(range).for_each(|slice| whole.extend_from_slice(slice));
        whole.into()
    }

    /// Returns all bytes as a shared buffer, as [`Rope::copy_of`] does.
    pub fn to_bytes(&self) -> Bytes {
        self.copy_of(0..self.len)
    }

    /// Like [`Rope::slices`]; each part shares its piece's buffer.
    pub fn shared(&self, range: Range<usize>) -> impl Iterator<Item = Bytes> {
        self.parts(range).map(|(chunk, part)| chunk.slice(part))
    }

    /// Returns a reader of the bytes in `range` (clamped to the rope), which does not join the pieces.
    pub fn reader(&self, range: Range<usize>) -> impl io::Read {
        RopeReader { slices: self.slices(range), rest: &[] }
    }
}

/// An [`io::Read`] over part of a [`Rope`].
struct RopeReader<'a, S> {
    slices: S,
    /// The bytes of the current slice that were not read yet.
    rest: &'a [u8],
}

impl<'a, S: Iterator<Item = &'a [u8]>> io::Read for RopeReader<'a, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.slices.next().unwrap_or_default();
        }
        self.rest.read(buf)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn rope(parts: &[&'static str]) -> Rope {
        Rope::new(parts.iter().map(|p| Bytes::from_static(p.as_bytes())).collect::<Vec<_>>())
    }

    #[test]
    fn ranges_have_the_same_bytes_for_any_pieces() {
        let many = ["", "", "h", "e", "", "l", "lo", "", "", " ", "w", "o", "", "r", "l", "d", "", ""];
        assert!(many.len() > MAX_LINEAR_PIECES);
        for parts in [&["hello world"][..], &["hel", "lo wor", "ld"], &["", "h", "ello world", ""], &many] {
            let rope = rope(parts);
            for start in 0..=rope.len() {
                for end in start..=rope.len() {
                    let want = &b"hello world"[start..end];
                    let joined: Vec<u8> = rope.slices(start..end).flatten().copied().collect();
                    assert_eq!(joined, want);
                    let shared: Vec<u8> = rope.shared(start..end).flatten().collect();
                    assert_eq!(shared, want);
                    assert_eq!(&rope.copy_of(start..end)[..], want);
                    let mut read = Vec::new();
                    rope.reader(start..end).read_to_end(&mut read).expect("reads");
                    assert_eq!(read, want);
                    if let Some(&first) = want.first() {
                        let (piece, begins) = rope.piece_at(start);
                        assert_eq!(rope.chunks()[piece][start - begins], first);
                    }
                    if let Some(slice) = rope.contiguous(start..end) {
                        assert_eq!(slice, want);
                    }
                }
            }
        }
    }

    #[test]
    fn range_within_one_piece_is_shared_not_copied() {
        let rope = rope(&["abc", "defgh"]);
        assert_eq!(rope.copy_of(4..7).as_ptr(), rope.chunks()[1][1..].as_ptr());
    }
}

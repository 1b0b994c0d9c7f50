//! Rope: one message as the pieces it arrived in.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;

/// A byte string kept as the shared pieces it arrived in; cloning it costs one reference count, or two where there are
/// many pieces.
///
/// An inbound review is a rope of the buffers that the socket was read into, and the very same rope is what every
/// hook is sent. Nothing here copies a byte except [`Rope::copy_of`]. A place is found in a time that grows with the
/// logarithm of the number of pieces, which is the sender's choice.
#[derive(Clone, Debug)]
pub struct Rope {
    chunks: Arc<[Bytes]>,
    /// Offset of each piece; none where there are few.
    starts: Option<Arc<[usize]>>,
    len: usize,
}

/// Among so few pieces, a place is found by looking at each.
const FEW: usize = 16;

impl Rope {
    /// A rope of these pieces, in order.
    pub fn new(chunks: impl Into<Arc<[Bytes]>>) -> Self {
        let chunks = chunks.into();
        let mut len = 0;
        let starts = chunks.iter().map(|chunk| {
            let start = len;
            len += chunk.len();
            start
        });
        let starts = if chunks.len() > FEW {
            Some(starts.collect())
        } else {
            starts.for_each(drop);
            None
        };
        Self { chunks, starts, len }
    }

    /// Length in bytes of all pieces together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has the other one the same bytes? Shared pieces are not compared.
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

    /// True when there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The piece that holds the byte at `at`, by its index, and where that piece begins. Behind the last byte: any
    /// piece from which on there is none.
    pub fn piece_at(&self, at: usize) -> (usize, usize) {
        if let Some(starts) = &self.starts {
            // Of several that begin there, all but the last are empty.
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

    /// The pieces that hold bytes of `range` (clamped to the rope), in order, each with the part of it that lies there.
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

    /// The parts of the pieces that lie in `range` (clamped to the rope), in order.
    pub fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.parts(range).map(|(chunk, part)| &chunk[part])
    }

    /// The bytes in `range` as one slice, where they lie in one piece.
    pub fn contiguous(&self, range: Range<usize>) -> Option<&[u8]> {
        let mut slices = self.slices(range.clone());
        match (slices.next(), slices.next()) {
            (None, _) if range.is_empty() => Some(&[]),
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// The bytes in `range` as a shared buffer: a slice where they lie in one piece, a copy where they do not.
    /// Meant for short fields; the object is never asked for this way on the hot path.
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

    /// The parts of the pieces that lie in `range` (clamped to the rope), in order, each sharing its piece's buffer.
    pub fn shared(&self, range: Range<usize>) -> impl Iterator<Item = Bytes> {
        self.parts(range).map(|(chunk, part)| chunk.slice(part))
    }

    /// Reads the bytes in `range` in order, without joining the pieces.
    pub fn reader(&self, range: Range<usize>) -> RopeReader<'_> {
        let (chunk, chunk_start) = self.piece_at(range.start);
        RopeReader { rope: self, chunk, chunk_start, at: range.start, end: range.end.min(self.len) }
    }
}

/// An [`io::Read`] over part of a [`Rope`].
#[derive(Debug)]
pub struct RopeReader<'a> {
    rope: &'a Rope,
    chunk: usize,
    chunk_start: usize,
    at: usize,
    end: usize,
}

impl io::Read for RopeReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at < self.end {
            let Some(chunk) = self.rope.chunks.get(self.chunk) else { return Ok(0) };
            let chunk_end = self.chunk_start + chunk.len();
            if self.at >= chunk_end {
                self.chunk += 1;
                self.chunk_start = chunk_end;
                continue;
            }
            let from = self.at - self.chunk_start;
            let n = buf.len().min(chunk.len() - from).min(self.end - self.at);
            buf[..n].copy_from_slice(&chunk[from..from + n]);
            self.at += n;
            return Ok(n);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn rope(parts: &[&'static str]) -> Rope {
        Rope::new(parts.iter().map(|p| Bytes::from_static(p.as_bytes())).collect::<Vec<_>>())
    }

    #[test]
    fn a_range_is_the_same_bytes_however_the_pieces_lie() {
        let many = ["", "", "h", "e", "", "l", "lo", "", "", " ", "w", "o", "", "r", "l", "d", "", ""];
        assert!(many.len() > FEW);
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
    fn a_piece_in_one_buffer_is_shared_not_copied() {
        let rope = rope(&["abc", "defgh"]);
        assert_eq!(rope.copy_of(4..7).as_ptr(), rope.chunks()[1][1..].as_ptr());
    }
}

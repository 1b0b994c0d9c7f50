//! Rope: one message as the pieces it arrived in.

use std::{io, ops::Range, sync::Arc};

use bytes::Bytes;

/// A byte string kept as the shared pieces it arrived in; cloning it costs one reference count.
///
/// An inbound review is a rope of the buffers that the socket was read into, and the very same rope is what every
/// hook is sent. Nothing here copies a byte except [`Rope::copy_of`].
#[derive(Clone, Debug)]
pub struct Rope {
    chunks: Arc<[Bytes]>,
    len: usize,
}

impl Rope {
    /// A rope of these pieces, in order.
    pub fn new(chunks: impl Into<Arc<[Bytes]>>) -> Self {
        let chunks = chunks.into();
        let len = chunks.iter().map(Bytes::len).sum();
        Self { chunks, len }
    }

    /// Length in bytes of all pieces together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The parts of the pieces that lie in `range` (clamped to the rope), in order.
    pub fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.chunks.iter().filter_map(move |chunk| {
            let from = range.start.clamp(start, start + chunk.len()) - start;
            let to = range.end.clamp(start, start + chunk.len()) - start;
            start += chunk.len();
            (from < to).then(|| &chunk[from..to])
        })
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
        let mut start = 0;
        for chunk in self.chunks.iter() {
            if range.start >= start && range.end <= start + chunk.len() {
                return chunk.slice(range.start - start..range.end - start);
            }
            start += chunk.len();
        }
        let mut whole = Vec::with_capacity(range.len());
        self.slices(range).for_each(|slice| whole.extend_from_slice(slice));
        whole.into()
    }

    /// The parts of the pieces that lie in `range` (clamped to the rope), in order, each sharing its piece's buffer.
    pub fn shared(&self, range: Range<usize>) -> impl Iterator<Item = Bytes> {
        let mut start = 0;
        self.chunks.iter().filter_map(move |chunk| {
            let from = range.start.clamp(start, start + chunk.len()) - start;
            let to = range.end.clamp(start, start + chunk.len()) - start;
            start += chunk.len();
            (from < to).then(|| chunk.slice(from..to))
        })
    }

    /// Reads the bytes in `range` in order, without joining the pieces.
    pub fn reader(&self, range: Range<usize>) -> RopeReader<'_> {
        RopeReader { rope: self, chunk: 0, chunk_start: 0, at: range.start, end: range.end.min(self.len) }
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
        for parts in [&["hello world"][..], &["hel", "lo wor", "ld"], &["", "h", "ello world", ""]] {
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

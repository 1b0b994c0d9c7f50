//! Outline: where the containers of a text end.
//!
//! An object's is noted while the object is checked, so that an operation goes past what it does not touch without looking
//! at it. It takes no more than an eighth of the object's size: what there is no room for is passed over byte by byte,
//! unless operations open it again and again, see [`super::text`].

use std::sync::Arc;

use gatepost_json::Nesting;

/// The ends of all containers of a text that are not small.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    /// Beginning and end of each, in the order of beginnings. In pieces, so that none of them is large.
    containers: Arc<[Vec<(u32, u32)>]>,
    len: usize,
    /// None was left out.
    pub(super) is_whole: bool,
}

/// Containers below so many bytes are passed over as fast as they are looked up.
const SMALL: u32 = 128;

/// Containers in a piece.
const PIECE: usize = 500;

/// Bytes of a text for each container that there is room for.
const BYTES_EACH: usize = 64;

impl Outline {
    /// Bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        self.len * size_of::<(u32, u32)>()
    }

    /// End of the container that begins at `start`, if it is noted.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = usize::midpoint(from, to);
            let (begin, end) = self.containers[middle / PIECE][middle % PIECE];
            match begin.cmp(&start) {
                std::cmp::Ordering::Equal => return Some(end),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }
}

/// An outline in the making.
pub(super) struct Draft {
    /// Offset in the text at which scanning begins.
    base: u32,
    pieces: Vec<Vec<(u32, u32)>>,
    len: usize,
    room: usize,
    /// Containers that are open: where each begins, and its number, where it has one.
    open: Vec<(u32, Option<u32>)>,
    /// Number of open containers that have a number: the outermost ones.
    numbered: usize,
    is_whole: bool,
}

impl Draft {
    /// Of a text of so many bytes, a part of which is scanned that begins at `base`.
    pub(super) fn bounded(len: usize, base: u32) -> Self {
        Self { base, room: len / BYTES_EACH, ..Self::within(0) }
    }

    /// Of a whole text, in so many bytes of memory.
    pub(super) fn within(bytes: usize) -> Self {
        let room = bytes / size_of::<(u32, u32)>();
        Self { base: 0, pieces: Vec::new(), len: 0, room, open: Vec::new(), numbered: 0, is_whole: true }
    }

    pub(super) fn finish(self) -> Outline {
        Outline { containers: self.pieces.into(), len: self.len, is_whole: self.is_whole }
    }

    /// Notes a container that has closed and is not small. Its ancestors are not small either, and begin before it, so
    /// they get their numbers first.
    #[cold]
    fn note(&mut self, begin: u32, end: u32) {
        if self.open.len() - self.numbered >= self.room - self.len {
            self.is_whole = false;
            return;
        }
        for at in self.numbered..self.open.len() {
            let (begin, _) = self.open[at];
            self.open[at].1 = Some(self.len as u32);
            self.push((begin, 0));
        }
        self.numbered = self.open.len();
        self.push((begin, end));
    }

    fn push(&mut self, container: (u32, u32)) {
        if self.len.is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE.min(self.room)));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(container);
            self.len += 1;
        }
    }
}

impl Nesting for Draft {
    #[inline]
    fn opens(&mut self, at: usize) {
        self.open.push((self.base + at as u32, None));
    }

    #[inline]
    fn closes(&mut self, end: usize) {
        let Some((begin, number)) = self.open.pop() else { return };
        let end = self.base + end as u32;
        match number {
            Some(number) => {
                self.numbered = self.open.len();
                let number = number as usize;
                let place = self.pieces.get_mut(number / PIECE).and_then(|piece| piece.get_mut(number % PIECE));
                if let Some((_, closed)) = place {
                    *closed = end;
                }
            }
            None if end - begin >= SMALL => self.note(begin, end),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_json as json;

    fn drawn(text: &str, mut draft: Draft) -> Outline {
        json::brackets(text, 0, &mut draft).unwrap();
        draft.finish()
    }

    #[test]
    fn every_container_that_is_not_small_is_noted() {
        let filler = "[\"]\\\"}{\"]".repeat(14).replace("][", "],[");
        let text = format!(r#"{{"a":[{filler}],"b":{{"[":[[[{filler}]]]}},"c":[],"d":"{{"}}"#);
        let outline = drawn(&text, Draft::within(usize::MAX));
        let mut noted = 0;
        for (start, byte) in text.bytes().enumerate() {
            let Some(end) = outline.end_of(start as u32) else { continue };
            assert!(matches!(byte, b'{' | b'['));
            assert_eq!(json::skip(&text, start), Ok(end as usize));
            assert!(end - start as u32 >= SMALL);
            noted += 1;
        }
        assert_eq!(noted, 6);
    }

    #[test]
    fn many_are_found_and_none_takes_room_that_there_is_not() {
        let item = format!("[\"{}\",[],[1]]", "x".repeat(200));
        let text = format!("[{}]", vec![&*item; 1700].join(","));
        let starts = |number: usize| 1 + (number * (item.len() + 1)) as u32;
        let outline = drawn(&text, Draft::bounded(text.len(), 0));
        assert!(outline.is_whole && outline.size() <= text.len() / 8);
        for number in 0..1700 {
            assert_eq!(outline.end_of(starts(number)), Some(starts(number) + item.len() as u32), "{number}");
        }
        assert_eq!(outline.end_of(0), Some(text.len() as u32));
        let deep = format!("{}{}{}", "[".repeat(5000), item, "]".repeat(5000));
        let outline = drawn(&deep, Draft::bounded(deep.len(), 0));
        assert!(!outline.is_whole && outline.size() <= deep.len() / 8 && outline.size() > 0);
        assert_eq!(outline.end_of(1), Some(deep.len() as u32 - 1));
    }

    #[test]
    fn places_count_from_the_base() {
        let text = format!("[\"{}\"]", "x".repeat(200));
        assert_eq!(drawn(&text, Draft { base: 7, ..Draft::within(usize::MAX) }).end_of(7), Some(7 + text.len() as u32));
    }
}

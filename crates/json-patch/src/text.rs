//! Text: bytes that values of a document are slices of, and how often they were passed over.

use std::sync::Arc;

use bytestring::ByteString;
use gatepost_json::{self as json, Cursor, NestingObserver, Rope};

use crate::operation::OperationFault;

/// A slice of one of a tree's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) text: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    pub(super) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Scans over a text after which the ends of its containers are noted.
const PATIENCE: usize = 8;

/// A text that values lie in. It has been checked to be JSON.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: ByteString,
    /// The same bytes as they arrived, where that was in several pieces.
    pub(super) pieces: Option<Rope>,
    outline: Option<Outline>,
    /// Bytes of it that are held besides what arrived.
    own: usize,
    /// Bytes that were passed over to open its containers.
    pub(super) scanned: usize,
    /// As many as may be before the ends of its containers are noted.
    patience: usize,
}

impl Text {
    /// A text that arrived, if in several pieces then joined.
    pub(super) fn arrived(text: ByteString, pieces: Option<Rope>) -> Self {
        let (own, patience) = (pieces.as_ref().map_or(0, Rope::len), PATIENCE * text.len());
        Self { text, pieces, outline: None, own, scanned: 0, patience }
    }

    /// A text that was written here.
    pub(super) fn written(text: ByteString) -> Self {
        Self { own: text.len(), ..Self::arrived(text, None) }
    }

    /// End of the container that begins at `start`, where it is known.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        self.outline.as_ref()?.end_of(start)
    }

    /// Bytes of memory that are held besides what arrived: the outline, and what was joined or written.
    pub(super) fn held(&self) -> usize {
        self.outline.as_ref().map_or(0, Outline::size) + self.own
    }

    /// Counts bytes that were passed over to open a container.
    pub(super) fn scan(&mut self, bytes: usize) {
        self.scanned = self.scanned.saturating_add(bytes);
    }

    /// Takes an outline that was drawn while the text was checked.
    pub(super) fn keep(&mut self, draft: Draft) {
        self.outline = Some(draft.finish());
    }

    /// Notes where its containers end, without checking it once more. Where it turns out not to be JSON, nothing is noted.
    pub(super) fn outline(&mut self, mut draft: Draft) {
        let start = Cursor::new(&self.text).at();
        self.outline = json::brackets(&self.text, start, &mut draft).is_ok().then(|| draft.finish());
    }

    /// Notes where all its containers end, once opening them has passed over it often. A patch that opens one inside the
    /// other again and again would have the innermost passed over as often as it is deep. Counted for each text by itself:
    /// what is done to a small one says nothing about a large one. Says how many bytes of memory that takes, of at most
    /// `room`.
    pub(super) fn outline_if_worthwhile(&mut self, room: usize) -> Result<usize, OperationFault> {
        let is_whole = |text: &Self| text.outline.as_ref().is_some_and(|outline| outline.is_whole);
        if self.scanned <= self.patience || is_whole(self) {
            return Ok(0);
        }
        self.patience = self.scanned + PATIENCE * self.text.len();
        self.outline(Draft::within(room));
        match &self.outline {
            Some(outline) if !outline.is_whole => Err(OperationFault::NoRoom),
            outline => Ok(outline.as_ref().map_or(0, Outline::size)),
        }
    }
}

// Outline: where the containers of a text end.
//
// An object's is noted while the object is checked, so that an operation goes past what it does not touch without looking
// at it. It takes no more than an eighth of the object's size: what there is no room for is passed over byte by byte,
// unless operations open it again and again, see [`super::text`].

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

impl NestingObserver for Draft {
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

    #[test]
    fn ends_are_noted_once_that_pays_and_within_the_memory_that_there_is() {
        let deep = format!("{}\"{}\"{}", "[".repeat(500), "x".repeat(200), "]".repeat(500));
        let mut text = Text::arrived(deep.into(), None);
        let len = text.text.len();
        text.scan(PATIENCE * len);
        assert_eq!(text.outline_if_worthwhile(usize::MAX), Ok(0), "not yet");
        text.scan(1);
        assert_eq!(text.clone().outline_if_worthwhile(1000), Err(OperationFault::NoRoom));
        let taken = text.outline_if_worthwhile(usize::MAX).unwrap();
        assert!(taken >= 500 * 8 && text.held() == taken, "{taken}");
        assert_eq!(text.end_of(499), Some(len as u32 - 499));
        text.scan(100 * len);
        assert_eq!(text.outline_if_worthwhile(usize::MAX), Ok(0), "once");
    }

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

//! The texts of a document, whose slices are its values, and outlines with the ends of their containers.
//!
//! The outline of an object is recorded while the object is checked, so that an operation skips untouched containers
//! without reading them. It takes at most an eighth of the object's size. Containers that do not fit into the outline
//! are scanned; if operations open containers many times, a complete outline is recorded.

use std::sync::Arc;

use bytestring::ByteString;
use gatepost_json::{self as json, Cursor, NestingObserver, Rope};

use crate::operation::OperationFault;

/// A slice of one of the texts of a tree.
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

/// Number of scans of a whole text after which the ends of all its containers are recorded.
const SCANS_BEFORE_OUTLINE: usize = 8;

/// A text of valid JSON.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: ByteString,
    /// The text as a rope of its original pieces, if it was joined from several.
    pub(super) pieces: Option<Rope>,
    outline: Option<Outline>,
    /// Number of bytes that this crate joined or wrote.
    own: usize,
    /// Number of bytes scanned to open containers.
    pub(super) scanned: usize,
    /// Number of scanned bytes after which the ends of all containers are recorded.
    scan_limit: usize,
}

impl Text {
    /// Creates a text from outside; `pieces` if it was joined from several.
    pub(super) fn arrived(text: ByteString, pieces: Option<Rope>) -> Self {
        let (own, scan_limit) = (pieces.as_ref().map_or(0, Rope::len), SCANS_BEFORE_OUTLINE * text.len());
        Self { text, pieces, outline: None, own, scanned: 0, scan_limit }
    }

    /// Creates a text that this crate wrote.
    pub(super) fn written(text: ByteString) -> Self {
        Self { own: text.len(), ..Self::arrived(text, None) }
    }

    /// Returns the end of the container at `start`, if it is recorded.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        self.outline.as_ref()?.end_of(start)
    }

    /// Returns the memory in bytes that this crate allocated: the outline, and joined or written text.
    pub(super) fn held(&self) -> usize {
        self.outline.as_ref().map_or(0, Outline::size) + self.own
    }

    /// Counts bytes scanned to open a container.
    pub(super) fn scan(&mut self, bytes: usize) {
        self.scanned = self.scanned.saturating_add(bytes);
    }

    /// Sets the outline recorded by the check of the text.
    pub(super) fn set_outline(&mut self, draft: OutlineRecorder) {
        self.outline = Some(draft.finish());
    }

    /// Records the ends of containers without checking the text again. Records nothing if the text is not JSON.
    pub(super) fn outline(&mut self, mut draft: OutlineRecorder) {
        let start = Cursor::new(&self.text).at();
        self.outline = json::brackets(&self.text, start, &mut draft).is_ok().then(|| draft.finish());
    }

    /// Records the ends of all containers once opening them has scanned the text often. Otherwise, a patch that opens
    /// nested containers one by one would scan the innermost as often as it is deep. Returns the memory taken in bytes,
    /// at most `room`.
    pub(super) fn outline_if_worthwhile(&mut self, room: usize) -> Result<usize, OperationFault> {
        let is_whole = |text: &Self| text.outline.as_ref().is_some_and(|outline| outline.is_whole);
        if self.scanned <= self.scan_limit || is_whole(self) {
            return Ok(0);
        }
        self.scan_limit = self.scanned + SCANS_BEFORE_OUTLINE * self.text.len();
        self.outline(OutlineRecorder::within(room));
        match &self.outline {
            Some(outline) if !outline.is_whole => Err(OperationFault::NoRoom),
            outline => Ok(outline.as_ref().map_or(0, Outline::size)),
        }
    }
}

/// Ends of all containers of a text that are not small.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    /// Beginning and end of each container, ordered by beginning, in pieces so that no allocation is large.
    containers: Arc<[Vec<(u32, u32)>]>,
    len: usize,
    /// True if no container was left out for lack of room.
    pub(super) is_whole: bool,
}

/// Minimum length of a recorded container in bytes. Smaller ones are scanned as fast as they are looked up.
const MIN_CONTAINER_LEN: u32 = 128;

/// Maximum number of containers in a piece of an outline.
const CONTAINERS_PER_PIECE: usize = 500;

/// Bytes of a text per container that its outline has room for.
const BYTES_PER_CONTAINER: usize = 64;

impl Outline {
    /// Returns the memory of the outline in bytes.
    pub(super) fn size(&self) -> usize {
        self.len * size_of::<(u32, u32)>()
    }

    /// Returns the end of the container at `start`, if it is recorded.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        let begins_after = |piece: &Vec<(u32, u32)>| piece.first().is_some_and(|(begin, _)| *begin > start);
        let piece = self.containers.partition_point(|piece| !begins_after(piece)).checked_sub(1)?;
        let piece = &self.containers[piece];
        piece.binary_search_by_key(&start, |(begin, _)| *begin).ok().map(|at| piece[at].1)
    }
}

/// Records an outline during a scan.
pub(super) struct OutlineRecorder {
    /// Offset in the text at which the scan begins.
    base: u32,
    pieces: Vec<Vec<(u32, u32)>>,
    len: usize,
    room: usize,
    /// Open containers: the beginning of each, and its number if it is recorded.
    open: Vec<(u32, Option<u32>)>,
    /// Number of open containers that have a number. They are the outermost ones.
    numbered: usize,
    is_whole: bool,
}

impl OutlineRecorder {
    /// Creates a recorder for a text of `len` bytes that is scanned from `base` on.
    pub(super) fn bounded(len: usize, base: u32) -> Self {
        Self { base, room: len / BYTES_PER_CONTAINER, ..Self::within(0) }
    }

    /// Creates a recorder for a whole text. Its outline takes at most `bytes` of memory.
    pub(super) fn within(bytes: usize) -> Self {
        let room = bytes / size_of::<(u32, u32)>();
        Self { base: 0, pieces: Vec::new(), len: 0, room, open: Vec::new(), numbered: 0, is_whole: true }
    }

    pub(super) fn finish(self) -> Outline {
        Outline { containers: self.pieces.into(), len: self.len, is_whole: self.is_whole }
    }

    /// Records a closed container that is not small. Its ancestors are not small either and begin earlier, so they get
    /// their numbers first.
    #[cold]
    fn record(&mut self, begin: u32, end: u32) {
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
        if self.len.is_multiple_of(CONTAINERS_PER_PIECE) {
            self.pieces.push(Vec::with_capacity(CONTAINERS_PER_PIECE.min(self.room)));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(container);
            self.len += 1;
        }
    }
}

impl NestingObserver for OutlineRecorder {
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
                self.pieces[number / CONTAINERS_PER_PIECE][number % CONTAINERS_PER_PIECE].1 = end;
            }
            None if end - begin >= MIN_CONTAINER_LEN => self.record(begin, end),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn outline_is_recorded_once_after_many_scans_within_memory() {
        let deep = format!("{}\"{}\"{}", "[".repeat(500), "x".repeat(200), "]".repeat(500));
        let mut text = Text::arrived(deep.into(), None);
        let len = text.text.len();
        text.scan(SCANS_BEFORE_OUTLINE * len);
        assert_eq!(text.outline_if_worthwhile(usize::MAX), Ok(0), "not yet");
        text.scan(1);
        assert_eq!(text.clone().outline_if_worthwhile(1000), Err(OperationFault::NoRoom));
        let taken = text.outline_if_worthwhile(usize::MAX).unwrap();
        assert!(taken >= 500 * 8 && text.held() == taken, "{taken}");
        assert_eq!(text.end_of(499), Some(len as u32 - 499));
        text.scan(100 * len);
        assert_eq!(text.outline_if_worthwhile(usize::MAX), Ok(0), "once");
    }

    fn drawn(text: &str, mut draft: OutlineRecorder) -> Outline {
        json::brackets(text, 0, &mut draft).unwrap();
        draft.finish()
    }

    #[test]
    fn outline_has_every_container_that_is_not_small() {
        let filler = "[\"]\\\"}{\"]".repeat(14).replace("][", "],[");
        let text = format!(r#"{{"a":[{filler}],"b":{{"[":[[[{filler}]]]}},"c":[],"d":"{{"}}"#);
        let outline = drawn(&text, OutlineRecorder::within(usize::MAX));
        let mut noted = 0;
        for (start, byte) in text.bytes().enumerate() {
            let Some(end) = outline.end_of(start as u32) else { continue };
            assert!(matches!(byte, b'{' | b'['));
            assert_eq!(json::skip(&text, start), Ok(end as usize));
            assert!(end - start as u32 >= MIN_CONTAINER_LEN);
            noted += 1;
        }
        assert_eq!(noted, 6);
    }

    #[test]
    fn outline_finds_many_containers_within_its_room() {
        let item = format!("[\"{}\",[],[1]]", "x".repeat(200));
        let text = format!("[{}]", vec![&*item; 1700].join(","));
        let starts = |number: usize| 1 + (number * (item.len() + 1)) as u32;
        let outline = drawn(&text, OutlineRecorder::bounded(text.len(), 0));
        assert!(outline.is_whole && outline.size() <= text.len() / 8);
        for number in 0..1700 {
            assert_eq!(outline.end_of(starts(number)), Some(starts(number) + item.len() as u32), "{number}");
        }
        assert_eq!(outline.end_of(0), Some(text.len() as u32));
        let deep = format!("{}{}{}", "[".repeat(5000), item, "]".repeat(5000));
        let outline = drawn(&deep, OutlineRecorder::bounded(deep.len(), 0));
        assert!(!outline.is_whole && outline.size() <= deep.len() / 8 && outline.size() > 0);
        assert_eq!(outline.end_of(1), Some(deep.len() as u32 - 1));
    }

    #[test]
    fn outline_offsets_count_from_the_base() {
        let text = format!("[\"{}\"]", "x".repeat(200));
        assert_eq!(
            drawn(&text, OutlineRecorder { base: 7, ..OutlineRecorder::within(usize::MAX) }).end_of(7),
            Some(7 + text.len() as u32)
        );
    }
}

//! Text: bytes that values of a document are slices of, and how often they were passed over.

use bytestring::ByteString;

use super::{
    OperationFault,
    outline::{Draft, Outline},
};
use gatepost_json::{self as json, Cursor, Rope};

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
    scanned: usize,
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

    #[cfg(test)]
    pub(super) fn scanned(&self) -> usize {
        self.scanned
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
}

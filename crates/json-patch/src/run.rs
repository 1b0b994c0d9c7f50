//! Walk: the children of a run, one by one.

use super::{
    node::{Child, Piece, Run, Was},
    text::{Span, Text},
    tree::Tree,
};
use gatepost_json::{self as json, Cursor, JsonReadError};

/// One child, as its container's text has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    ordinal: u32,
    /// Offset of its key, or of its value where it has none.
    pub(super) start: u32,
    key_end: u32,
    pub(super) value: u32,
    pub(super) end: u32,
}

/// A walk over a run.
pub(super) struct Walk<'a> {
    cursor: Cursor<'a>,
    text: &'a Text,
    within: &'a str,
    run: Run,
    keyed: bool,
    seen: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn of(text: &'a Text, run: Run, keyed: bool) -> Self {
        let within = &text.text[run.start as usize..run.end as usize];
        Self { cursor: Cursor::inside(within), text, within, run, keyed, seen: 0 }
    }

    /// The next child, with its key. The last one's value is not looked into: its end is known.
    pub(super) fn next(&mut self) -> Result<Option<(Spot, Option<json::JsonText<'a>>)>, JsonReadError> {
        if self.seen == self.run.count {
            return Ok(None);
        }
        let (start, key) = if self.keyed {
            let Some((place, key)) = self.cursor.placed_key()? else { return Ok(None) };
            (Some(place), Some(key))
        } else {
            self.cursor.item()?;
            (None, None)
        };
        let value = self.cursor.at();
        let ordinal = self.run.ordinal + self.seen;
        self.seen += 1;
        if self.seen == self.run.count {
            self.cursor.pass_to(self.within.len());
        } else if let Some(end) = self.text.end_of(self.run.start + value as u32) {
            self.cursor.pass_to((end - self.run.start) as usize);
        } else {
            self.cursor.skip()?;
        }
        let place = start.unwrap_or(value..value);
        let at = |offset: usize| self.run.start + offset as u32;
        let spot = Spot {
            ordinal,
            start: at(place.start),
            key_end: at(place.end),
            value: at(value),
            end: at(self.cursor.behind()),
        };
        Ok(Some((spot, key)))
    }

    /// Part of the run behind the children seen.
    fn rest(&self) -> Option<Run> {
        let count = self.run.count - self.seen;
        let behind = self.within[self.cursor.behind()..].trim_start_matches([' ', '\t', '\n', '\r', ',']);
        let start = self.run.end - behind.len() as u32;
        (count > 0).then_some(Run { start, count, ordinal: self.run.ordinal + self.seen, ..self.run })
    }

    /// The pieces that a run becomes when the child just seen shall stand alone: those before it, it, and the rest.
    pub(super) fn split(&self, tree: &Tree, text: u32, before: Vec<Piece>, spot: Spot) -> (Vec<Piece>, usize) {
        let mut parts = before;
        let own = parts.len();
        parts.push(Piece::Child(spot.alone(tree, text)));
        parts.extend(self.rest().map(Piece::Run));
        (parts, own)
    }
}

impl Spot {
    /// The child, standing alone.
    pub(super) fn alone(self, tree: &Tree, text: u32) -> Child {
        let span = |start, end| Span { text, start, end };
        Child {
            key: span(self.start, self.key_end),
            value: Some(tree.value(span(self.value, self.end))),
            was: Some(Was { ordinal: self.ordinal, start: self.value, end: self.end }),
        }
    }

    /// Number of children of its container before it.
    pub(super) fn ordinal(self) -> u32 {
        self.ordinal
    }
}

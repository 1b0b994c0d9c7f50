//! Finds children of an opened container. A found child is a separate piece from then on.
//!
//! An item of an array is found by counting over parts, then over pieces, then over the items of one run. Every scanned
//! run is split into smaller ones, so that no part is scanned often. A member of an object is found by scanning the
//! runs, until that has cost several times as much as a full index; then every member is separated and found by its
//! hash.

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use gatepost_json::{Cursor, JsonReadError, JsonText};

use crate::{
    node::{Array, Child, Children, INDEX_ENTRY_BYTES, Index, NodeId, Object, OriginalChild, Piece, Run, Value},
    operation::OperationFault,
    text::{Span, Text},
    tree::Tree,
};

/// Place of one child in the text of its container.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildPlace {
    ordinal: u32,
    /// Offset of its key, or of its value in an array.
    pub(super) start: u32,
    key_end: u32,
    pub(super) value: u32,
    pub(super) end: u32,
}

/// Cursor over the children of a run.
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

    /// Returns the next child with its key. Does not scan the last value, because its end is known.
    pub(super) fn next(&mut self) -> Result<Option<(ChildPlace, Option<JsonText<'a>>)>, JsonReadError> {
        if self.seen == self.run.count {
            return Ok(None);
        }
        let (start, key) = if self.keyed {
            let Some((place, key)) = self.cursor.key_with_range()? else { return Ok(None) };
            (Some(place), Some(key))
        } else {
            self.cursor.item()?;
            (None, None)
        };
        let value = self.cursor.at();
        let ordinal = self.run.ordinal + self.seen;
        self.seen += 1;
        if self.seen == self.run.count {
            self.cursor.jump_to(self.within.len());
        } else if let Some(end) = self.text.end_of(self.run.start + value as u32) {
            self.cursor.jump_to((end - self.run.start) as usize);
        } else {
            self.cursor.skip()?;
        }
        let place = start.unwrap_or(value..value);
        let at = |offset: usize| self.run.start + offset as u32;
        let spot = ChildPlace {
            ordinal,
            start: at(place.start),
            key_end: at(place.end),
            value: at(value),
            end: at(self.cursor.value_end()),
        };
        Ok(Some((spot, key)))
    }

    /// Returns the part of the run after the children that were returned.
    fn rest(&self) -> Option<Run> {
        let count = self.run.count - self.seen;
        let behind = self.within[self.cursor.value_end()..].trim_start_matches([' ', '\t', '\n', '\r', ',']);
        let start = self.run.end - behind.len() as u32;
        (count > 0).then_some(Run { start, count, ordinal: self.run.ordinal + self.seen, ..self.run })
    }

    /// Splits the run at the child that was returned last. Returns the pieces `before`, the child and the rest, and the
    /// child's index in them.
    pub(super) fn split(&self, tree: &Tree, text: u32, before: Vec<Piece>, spot: ChildPlace) -> (Vec<Piece>, usize) {
        let mut parts = before;
        let own = parts.len();
        parts.push(Piece::Child(spot.alone(tree, text)));
        parts.extend(self.rest().map(Piece::Run));
        (parts, own)
    }
}

impl ChildPlace {
    /// Returns the child as a separate one.
    pub(super) fn alone(self, tree: &Tree, text: u32) -> Child {
        let span = |start, end| Span { text, start, end };
        Child {
            key: span(self.start, self.key_end),
            value: Some(tree.value(span(self.value, self.end))),
            was: Some(OriginalChild { ordinal: self.ordinal, start: self.value, end: self.end }),
        }
    }
}

/// Number of runs that a scanned run is split into.
const SCANNED_RUN_SPLITS: u32 = 4;
/// Minimum length of the runs that a scanned run is split into, in bytes.
const MIN_SPLIT_BYTES: u32 = 64;

impl Tree {
    /// Returns the item at `index`, which must exist.
    pub(super) fn item_mut(&mut self, id: NodeId, index: usize) -> Result<&mut Child, OperationFault> {
        let (part, piece, before) = self.array(id).find(index);
        if let Piece::Run(run) = self.array(id).parts[part].pieces[piece] {
            let pieces = self.split_run(self.node(id).span.text, run, before)?;
            self.memory.add(pieces.len() * size_of::<Piece>());
            self.array_mut(id).splice(part, piece..piece + 1, pieces);
        }
        let (part, piece, _) = self.array(id).find(index);
        match &mut self.array_mut(id).parts[part].pieces[piece] {
            Piece::Child(child) => Ok(child),
            Piece::Run(_) => unreachable!("the item was just made to stand alone"),
        }
    }

    /// Inserts an item at `index`, which is at most the number of items.
    pub(super) fn insert_item(&mut self, id: NodeId, index: usize, value: Value) -> Result<(), OperationFault> {
        if index < self.array(id).len && self.array(id).find(index).2 > 0 {
            self.item_mut(id, index)?;
        }
        let (part, piece, _) = self.array(id).find(index);
        let key = self.node(id).span;
        let child = Child { key, value: Some(value), was: None };
        self.array_mut(id).splice(part, piece..piece, vec![Piece::Child(child)]);
        Ok(())
    }

    /// Removes the item at `index`, which must exist.
    pub(super) fn remove_item(&mut self, id: NodeId, index: usize) -> Result<(), OperationFault> {
        self.item_mut(id, index)?;
        let (part, piece, _) = self.array(id).find(index);
        self.array_mut(id).splice(part, piece..piece + 1, Vec::new());
        Ok(())
    }

    /// Separates all items.
    pub(super) fn separate_items(&mut self, id: NodeId) -> Result<(), OperationFault> {
        let text = self.node(id).span.text;
        let is_run = |piece: &Piece| matches!(piece, Piece::Run(_));
        if !self.node(id).all_pieces().any(is_run) {
            return Ok(());
        }
        let items = self.array(id).len;
        self.memory.take(2 * items * size_of::<Piece>())?;
        let mut alone = Vec::with_capacity(items);
        for part in std::mem::take(&mut self.array_mut(id).parts) {
            for piece in part.pieces {
                let Piece::Run(run) = piece else {
                    alone.push(piece);
                    continue;
                };
                let mut walk = Walk::of(&self.texts[text as usize], run, false);
                while let Some((spot, _)) = walk.next()? {
                    alone.push(Piece::Child(spot.alone(self, text)));
                }
            }
        }
        self.array_mut(id).parts = Array::parts(&alone);
        Ok(())
    }

    /// Splits a run so that the item after the first `before` items is separate. These become several runs, so that the
    /// next scan is shorter.
    fn split_run(&self, text: u32, run: Run, before: usize) -> Result<Vec<Piece>, JsonReadError> {
        let step = ((run.end - run.start) / SCANNED_RUN_SPLITS).max(MIN_SPLIT_BYTES);
        let mut walk = Walk::of(&self.texts[text as usize], run, false);
        let mut pieces = Vec::new();
        let mut open: Option<Run> = None;
        while let Some((spot, _)) = walk.next()? {
            if (spot.ordinal - run.ordinal) as usize == before {
                pieces.extend(open.map(Piece::Run));
                return Ok(walk.split(self, text, pieces, spot).0);
            }
            let before_it = Run { start: spot.start, end: spot.end, count: 0, ordinal: spot.ordinal };
            let so_far = open.get_or_insert(before_it);
            so_far.count += 1;
            so_far.end = spot.end;
            if so_far.end - so_far.start >= step {
                pieces.extend(open.take().map(Piece::Run));
            }
        }
        unreachable!("the run has that many items")
    }

    pub(super) fn array(&self, id: NodeId) -> &Array {
        match &self.node(id).children {
            Children::Array(array) => array,
            Children::Object(_) => unreachable!("only arrays are asked for items"),
        }
    }

    fn array_mut(&mut self, id: NodeId) -> &mut Array {
        match &mut self.node_mut(id).children {
            Children::Array(array) => array,
            Children::Object(_) => unreachable!("only arrays are asked for items"),
        }
    }
}

/// Effort, relative to the size of the object, after which its members are indexed.
const EFFORT_BEFORE_INDEX: usize = 8;
/// Size added to that of every object, in bytes, because a small object is not worth an index.
const MIN_INDEXED_LEN: usize = 1024;
/// Cost of examining a piece, in scanned bytes.
const LOOK_COST: usize = 16;

impl Tree {
    /// Returns the index of the piece of the member `key`. The member may have been removed.
    pub(super) fn member(&mut self, id: NodeId, key: &str) -> Result<Option<usize>, OperationFault> {
        if self.object(id).index.is_none() {
            let max_effort = EFFORT_BEFORE_INDEX * (self.node(id).span.len() + MIN_INDEXED_LEN);
            if self.object(id).effort > max_effort {
                self.index_members(id)?;
            }
        }
        if let Some(index) = &self.object(id).index {
            return Ok(self.look_up(id, index, key).ok().map(|piece| piece as usize));
        }
        let object = self.object(id);
        let found = object.pieces.iter().position(|piece| match piece {
            Piece::Child(child) => self.key_is(child.key, key),
            Piece::Run(_) => false,
        });
        let looked = LOOK_COST * found.map_or(object.pieces.len(), |at| at + 1);
        self.object_mut(id).effort += looked;
        match found {
            Some(found) => Ok(Some(found)),
            // A member that was found before would be separate.
            None => self.take_from_runs(id, key),
        }
    }

    /// Searches `key` in all runs. The last of several members with that key counts, and the others are removed.
    fn take_from_runs(&mut self, id: NodeId, key: &str) -> Result<Option<usize>, OperationFault> {
        let mut found = None;
        let mut at = 0;
        while at < self.object(id).pieces.len() {
            let Piece::Run(run) = self.object(id).pieces[at] else {
                at += 1;
                continue;
            };
            let (parts, scanned) = self.find_in_run(self.node(id).span.text, run, key)?;
            let object = self.object_mut(id);
            object.effort += LOOK_COST + scanned;
            let Some((parts, own)) = parts else {
                at += 1;
                continue;
            };
            self.memory.add(parts.len() * size_of::<Piece>());
            let object = self.object_mut(id);
            object.pieces.splice(at..=at, parts);
            let mut now = at + own;
            if let Some(earlier) = found {
                object.pieces.remove(earlier);
                now -= 1;
            }
            found = Some(now);
            // The rest of the run may contain the key again.
            at = now + 1;
        }
        Ok(found)
    }

    /// Splits a run at the first member with that key. Returns the pieces and the member's index in them, and the
    /// number of bytes scanned.
    #[expect(clippy::type_complexity, reason = "taken apart by the only caller")]
    fn find_in_run(
        &self,
        text: u32,
        run: Run,
        key: &str,
    ) -> Result<(Option<(Vec<Piece>, usize)>, usize), JsonReadError> {
        let mut walk = Walk::of(&self.texts[text as usize], run, true);
        let mut before: Option<Run> = None;
        let mut scanned = 0;
        while let Some((spot, written)) = walk.next()? {
            scanned = (spot.value - run.start) as usize;
            if written.is_some_and(|written| written.plain() == key) {
                let before = before.map(Piece::Run).into_iter().collect();
                return Ok((Some(walk.split(self, text, before, spot)), scanned));
            }
            before = Some(Run { end: spot.end, count: spot.ordinal - run.ordinal + 1, ..run });
        }
        Ok((None, scanned))
    }

    /// Separates and indexes all members. The last of several members with one key counts.
    pub(super) fn index_members(&mut self, id: NodeId) -> Result<(), OperationFault> {
        if self.object(id).index.is_some() {
            return Ok(());
        }
        let members = |piece: &Piece| match piece {
            Piece::Run(run) => run.count as usize,
            Piece::Child(_) => 1,
        };
        let members: usize = self.object(id).pieces.iter().map(members).sum();
        // A growing vector has capacity for twice its length.
        self.memory.take(members * (2 * size_of::<Piece>() + INDEX_ENTRY_BYTES))?;
        let text = self.node(id).span.text;
        let mut index = Index { hashes: Arc::default(), pieces: HashMap::default() };
        let before = std::mem::take(&mut self.object_mut(id).pieces);
        let mut after: Vec<Piece> = Vec::new();
        for piece in before {
            let run = match piece {
                Piece::Run(run) => run,
                Piece::Child(child) => {
                    after.push(piece);
                    // A separate member is in no run.
                    let _ = self.add_to_index(&mut index, &after, child.key, after.len() - 1);
                    continue;
                }
            };
            let mut walk = Walk::of(&self.texts[text as usize], run, true);
            while let Some((spot, _)) = walk.next()? {
                let child = spot.alone(self, text);
                after.push(Piece::Child(child));
                if let Some(earlier) = self.add_to_index(&mut index, &after, child.key, after.len() - 1) {
                    after[earlier as usize] = Piece::Child(Child { value: None, was: None, ..child });
                }
            }
        }
        let object = self.object_mut(id);
        object.pieces = after;
        object.index = Some(index);
        Ok(())
    }

    /// Adds piece `at` to an index. Returns the earlier piece with the same key.
    fn add_to_index(&self, index: &mut Index, pieces: &[Piece], key: Span, at: usize) -> Option<u32> {
        let plain = self.key(key);
        let mut hash = index.hashes.hash_one(&*plain);
        loop {
            match index.pieces.insert(hash, at as u32) {
                None => return None,
                Some(earlier) => match pieces[earlier as usize] {
                    Piece::Child(child) if self.key_is(child.key, &plain) => return Some(earlier),
                    // Another key with the same hash.
                    _ => {
                        index.pieces.insert(hash, earlier);
                        hash = hash.wrapping_add(1);
                    }
                },
            }
        }
    }

    /// Looks a key up in an index. Returns its piece, or the free number at which to insert it.
    fn look_up(&self, id: NodeId, index: &Index, key: &str) -> Result<u32, u64> {
        let mut hash = index.hashes.hash_one(key);
        while let Some(piece) = index.pieces.get(&hash) {
            if self.object(id).child(*piece as usize).is_some_and(|child| self.key_is(child.key, key)) {
                return Ok(*piece);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }

    /// Adds a member that does not exist.
    pub(super) fn push_member(&mut self, id: NodeId, child: Child) {
        let free = match &self.object(id).index {
            Some(index) => self.look_up(id, index, &self.key(child.key)).err(),
            None => None,
        };
        let object = self.object_mut(id);
        let at = object.pieces.len() as u32;
        if let (Some(index), Some(hash)) = (&mut object.index, free) {
            index.pieces.insert(hash, at);
        }
        object.pieces.push(Piece::Child(child));
    }

    /// Returns a key unescaped.
    pub(super) fn key(&self, key: Span) -> std::borrow::Cow<'_, str> {
        let written = self.str(key);
        match JsonText::read(written, 0) {
            Ok((text, _)) => text.plain(),
            Err(_) => written.into(),
        }
    }

    fn key_is(&self, key: Span, wanted: &str) -> bool {
        let written = self.str(key);
        let raw = &written[1..written.len() - 1];
        if raw.contains('\\') { self.key(key) == wanted } else { raw == wanted }
    }

    fn object(&self, id: NodeId) -> &Object {
        match &self.node(id).children {
            Children::Object(object) => object,
            Children::Array(_) => unreachable!("only objects are asked for members"),
        }
    }

    fn object_mut(&mut self, id: NodeId) -> &mut Object {
        match &mut self.node_mut(id).children {
            Children::Object(object) => object,
            Children::Array(_) => unreachable!("only objects are asked for members"),
        }
    }
}

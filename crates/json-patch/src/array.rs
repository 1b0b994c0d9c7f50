//! Array: the items of an opened array.
//!
//! The pieces lie in parts of bounded length, so that inserting at the front moves few of them, and an item is found by
//! passing over parts, then over pieces, then over what is left of one run. Every run that was scanned falls into
//! smaller ones, so that nothing is scanned often.

use super::{
    OperationFault,
    node::{Child, Children, Piece, Run},
    run::Walk,
    tree::{NodeId, Tree, Value},
};
use gatepost_json::JsonReadError;

#[derive(Clone, Debug)]
pub(super) struct Array {
    /// None of them empty, but for the only one.
    parts: Vec<Part>,
    len: usize,
    /// Number of items when it was opened.
    was: u32,
}

#[derive(Clone, Debug, Default)]
struct Part {
    /// Items of all pieces.
    len: usize,
    pieces: Vec<Piece>,
}

/// Pieces of a part.
const PART: usize = 64;
/// A scanned run falls into so many.
const SPLIT: u32 = 4;
/// A run of no more bytes stays whole.
const SMALL: u32 = 64;

fn items(piece: &Piece) -> usize {
    match piece {
        Piece::Run(run) => run.count as usize,
        Piece::Child(_) => 1,
    }
}

impl Array {
    pub(super) fn new(pieces: Vec<Piece>, count: u32) -> Self {
        let len = count as usize;
        Self { parts: vec![Part { len, pieces }], len, was: count }
    }

    /// The same items, in another place.
    pub(super) fn copied(&self) -> Self {
        self.clone()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of items when it was opened.
    pub(super) fn was(&self) -> u32 {
        self.was
    }

    pub(super) fn part(&self, part: usize) -> Option<&[Piece]> {
        self.parts.get(part).map(|part| &*part.pieces)
    }

    pub(super) fn part_mut(&mut self, part: usize) -> Option<&mut [Piece]> {
        self.parts.get_mut(part).map(|part| &mut *part.pieces)
    }

    /// The pieces in parts that are half full.
    fn parts(pieces: &[Piece]) -> Vec<Part> {
        if pieces.is_empty() {
            return vec![Part::default()];
        }
        let part = |pieces: &[Piece]| Part { len: pieces.iter().map(items).sum(), pieces: pieces.to_vec() };
        pieces.chunks(PART / 2).map(part).collect()
    }

    /// The part and the piece that hold item `index`, and how many items of that piece stand before it. Behind the last
    /// item: behind the last piece.
    fn find(&self, index: usize) -> (usize, usize, usize) {
        let (mut part, mut left) = (0, index);
        while left >= self.parts[part].len && part + 1 < self.parts.len() {
            left -= self.parts[part].len;
            part += 1;
        }
        let pieces = &self.parts[part].pieces;
        let mut piece = 0;
        while piece < pieces.len() && left >= items(&pieces[piece]) {
            left -= items(&pieces[piece]);
            piece += 1;
        }
        (part, piece, left)
    }

    /// Puts pieces of so many items more or less in the place of some.
    fn splice(&mut self, part: usize, at: std::ops::Range<usize>, new: Vec<Piece>) {
        let changed = &mut self.parts[part];
        let (gone, come) = (changed.pieces[at.clone()].iter().map(items), new.iter().map(items));
        let (gone, come): (usize, usize) = (gone.sum(), come.sum());
        changed.len = changed.len - gone + come;
        self.len = self.len - gone + come;
        changed.pieces.splice(at, new);
        if changed.pieces.is_empty() && self.parts.len() > 1 {
            self.parts.remove(part);
        } else if self.parts[part].pieces.len() > PART {
            let changed = &mut self.parts[part];
            let pieces = changed.pieces.split_off(PART / 2);
            let len = pieces.iter().map(items).sum();
            changed.len -= len;
            self.parts.insert(part + 1, Part { len, pieces });
        }
    }
}

impl Tree {
    /// The item at `index`, which must be there. It stands alone then.
    pub(super) fn item_mut(&mut self, id: NodeId, index: usize) -> Result<&mut Child, OperationFault> {
        let (part, piece, before) = self.array(id).find(index);
        if let Piece::Run(run) = self.array(id).parts[part].pieces[piece] {
            let pieces = self.split_run(self.node(id).span.text, run, before)?;
            self.weight.add(pieces.len() * size_of::<Piece>());
            self.array_mut(id).splice(part, piece..piece + 1, pieces);
        }
        let (part, piece, _) = self.array(id).find(index);
        match &mut self.array_mut(id).parts[part].pieces[piece] {
            Piece::Child(child) => Ok(child),
            Piece::Run(_) => unreachable!("the item was just made to stand alone"),
        }
    }

    /// Inserts before item `index`, or behind the last one.
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

    /// Removes the item at `index`, which must be there.
    pub(super) fn remove_item(&mut self, id: NodeId, index: usize) -> Result<(), OperationFault> {
        self.item_mut(id, index)?;
        let (part, piece, _) = self.array(id).find(index);
        self.array_mut(id).splice(part, piece..piece + 1, Vec::new());
        Ok(())
    }

    /// Lets every item stand alone.
    pub(super) fn separate_items(&mut self, id: NodeId) -> Result<(), OperationFault> {
        let text = self.node(id).span.text;
        let is_run = |piece: &Piece| matches!(piece, Piece::Run(_));
        if !self.node(id).all_pieces().any(is_run) {
            return Ok(());
        }
        let items = self.array(id).len;
        self.weight.take(2 * items * size_of::<Piece>())?;
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

    /// Pieces of a run of which one item stands alone, the one behind `before` others. The items are no longer one run,
    /// so that the next scan is shorter.
    fn split_run(&self, text: u32, run: Run, before: usize) -> Result<Vec<Piece>, JsonReadError> {
        let step = ((run.end - run.start) / SPLIT).max(SMALL);
        let mut walk = Walk::of(&self.texts[text as usize], run, false);
        let mut pieces = Vec::new();
        let mut open: Option<Run> = None;
        while let Some((spot, _)) = walk.next()? {
            if (spot.ordinal() - run.ordinal) as usize == before {
                pieces.extend(open.map(Piece::Run));
                return Ok(walk.split(self, text, pieces, spot).0);
            }
            let before_it = Run { start: spot.start, end: spot.end, count: 0, ordinal: spot.ordinal() };
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

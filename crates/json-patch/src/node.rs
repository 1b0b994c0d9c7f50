//! Node: an opened container, and the pieces that its children are in.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher, RandomState},
    sync::Arc,
};

use crate::text::Span;

/// One child that stands alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// The key, a JSON string; means nothing in arrays.
    pub(super) key: Span,
    /// `None` where it was removed.
    pub(super) value: Option<Value>,
    /// Content at this place when the container was opened.
    pub(super) was: Option<Was>,
}

/// A child as the container's text has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Was {
    /// Number of children before it.
    pub(super) ordinal: u32,
    /// Range of its value.
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Neighbours in the container's text, from the first one's beginning to the last one's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) count: u32,
    /// Number of children before it.
    pub(super) ordinal: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Run(Run),
    Child(Child),
}

impl Piece {
    /// The opened container that it is, if it is one.
    pub(super) fn opened(&self) -> Option<NodeId> {
        match self {
            Self::Child(Child { value: Some(Value::Open(id)), .. }) => Some(*id),
            Self::Child(_) | Self::Run(_) => None,
        }
    }
}

/// An opened container.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Text that it was opened from, brackets included.
    pub(super) span: Span,
    /// It is a copy, and so in no place where it was opened.
    pub(super) is_copy: bool,
    pub(super) children: Children,
}

#[derive(Clone, Debug)]
pub(super) enum Children {
    Object(Object),
    Array(Array),
}

impl Node {
    /// The same, to stand elsewhere.
    pub(super) fn copied(&self) -> Self {
        let children = match &self.children {
            Children::Object(object) => Children::Object(object.copied()),
            Children::Array(array) => Children::Array(array.copied()),
        };
        Self { span: self.span, is_copy: true, children }
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.children, Children::Object(_))
    }

    /// Bytes of memory that it takes.
    pub(super) fn held(&self) -> usize {
        let besides = match &self.children {
            Children::Object(object) => object.held(),
            Children::Array(_) => 0,
        };
        size_of::<Self>() + self.all_pieces().count() * size_of::<Piece>() + besides
    }

    /// Its pieces in order, as some slices.
    pub(super) fn pieces(&self, part: usize) -> Option<&[Piece]> {
        match &self.children {
            Children::Object(object) => (part == 0).then_some(&object.pieces),
            Children::Array(array) => array.part(part),
        }
    }

    /// All its pieces in order.
    pub(super) fn all_pieces(&self) -> impl Iterator<Item = &Piece> {
        (0..).map_while(|part| self.pieces(part)).flatten()
    }

    /// The same slices, to be changed.
    pub(super) fn pieces_mut(&mut self, part: usize) -> Option<&mut [Piece]> {
        match &mut self.children {
            Children::Object(object) => (part == 0).then_some(&mut object.pieces),
            Children::Array(array) => array.part_mut(part),
        }
    }

    /// A piece of one of those slices.
    pub(super) fn piece_mut(&mut self, part: usize, piece: usize) -> Option<&mut Piece> {
        self.pieces_mut(part)?.get_mut(piece)
    }
}

/// The number of a node.
pub(super) type NodeId = u32;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null(Null),
    /// Never `null`.
    Raw(Span),
    Open(NodeId),
}

/// Origin of a `null`. kube-apiserver's library distinguishes the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Null {
    /// Written in a text, or left out of an operation.
    Absent,
    /// An operation's value.
    Given,
    /// A copy of a given one, which that library takes for an empty object.
    Copied,
}

#[derive(Clone, Debug)]
pub(super) struct Array {
    /// None of them empty, but for the only one.
    pub(super) parts: Vec<Part>,
    pub(super) len: usize,
    /// Number of items when it was opened.
    was: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Items of all pieces.
    len: usize,
    pub(super) pieces: Vec<Piece>,
}

/// Pieces of a part.
const PART: usize = 64;
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
    pub(super) fn parts(pieces: &[Piece]) -> Vec<Part> {
        if pieces.is_empty() {
            return vec![Part::default()];
        }
        let part = |pieces: &[Piece]| Part { len: pieces.iter().map(items).sum(), pieces: pieces.to_vec() };
        pieces.chunks(PART / 2).map(part).collect()
    }

    /// The part and the piece that hold item `index`, and how many items of that piece stand before it. Behind the last
    /// item: behind the last piece.
    pub(super) fn find(&self, index: usize) -> (usize, usize, usize) {
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
    pub(super) fn splice(&mut self, part: usize, at: std::ops::Range<usize>, new: Vec<Piece>) {
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

/// Bytes of memory for a member's place in an index, with the room that a table leaves free.
pub(super) const INDEX_ENTRY_BYTES: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Object {
    /// No two children that were found have the same key.
    pub(super) pieces: Vec<Piece>,
    /// Members that were removed, and are no pieces any more.
    pub(super) removed: Vec<Child>,
    /// Cost of finding members so far, in bytes.
    pub(super) effort: usize,
    pub(super) index: Option<Index>,
}

impl Object {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        Self { pieces, removed: Vec::new(), effort: 0, index: None }
    }

    /// The same members, in another place, so without those that were removed.
    pub(super) fn copied(&self) -> Self {
        let there = |piece: &&Piece| !matches!(piece, Piece::Child(Child { value: None, .. }));
        Self::new(self.pieces.iter().filter(there).copied().collect())
    }

    /// Sets aside the members that were removed, so that nothing that is done to the others passes over them.
    pub(super) fn sweep(&mut self) {
        let gone = self.pieces.extract_if(.., |piece| matches!(piece, Piece::Child(Child { value: None, .. })));
        let gone = gone.filter_map(|piece| match piece {
            Piece::Child(child) if child.was.is_some() => Some(child),
            Piece::Child(_) | Piece::Run(_) => None,
        });
        self.removed.extend(gone);
        self.index = None;
        self.effort = 0;
    }

    /// Bytes of memory that it takes besides its pieces.
    pub(super) fn held(&self) -> usize {
        let index = self.index.as_ref().map_or(0, |index| index.pieces.len() * INDEX_ENTRY_BYTES);
        index + self.removed.len() * size_of::<Child>()
    }

    pub(super) fn child(&self, at: usize) -> Option<&Child> {
        match self.pieces.get(at) {
            Some(Piece::Child(child)) => Some(child),
            _ => None,
        }
    }
}

/// Place of each key's member.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Keyed, as the keys are the sender's choice.
    pub(super) hashes: Arc<RandomState>,
    /// Pieces by the hash of the key, or the next number that is free.
    pub(super) pieces: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

/// A hasher of what is a hash already.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

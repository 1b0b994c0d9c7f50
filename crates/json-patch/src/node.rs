//! Opened containers and the pieces that contain their children.
//!
//! The pieces of an array are in parts of bounded length, so that inserting at the front moves few of them.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher, RandomState},
    sync::Arc,
};

use crate::text::Span;

/// A separate child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// Key as a JSON string; unused in arrays.
    pub(super) key: Span,
    /// Current value; `None` if the child was removed.
    pub(super) value: Option<Value>,
    /// The child at this place when the container was opened; `None` if it was added.
    pub(super) was: Option<OriginalChild>,
}

/// Place of a child in the text of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginalChild {
    /// Number of children before it.
    pub(super) ordinal: u32,
    /// Range of its value.
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Adjacent children in the text of their container, from the beginning of the first to the end of the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) count: u32,
    /// Number of children before the run.
    pub(super) ordinal: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Run(Run),
    Child(Child),
}

impl Piece {
    /// Returns the node if the piece is an opened container.
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
    /// The text from which it was opened, including the brackets.
    pub(super) span: Span,
    /// True for a copy, which is not at its original place.
    pub(super) is_copy: bool,
    pub(super) children: Children,
}

#[derive(Clone, Debug)]
pub(super) enum Children {
    Object(Object),
    Array(Array),
}

impl Node {
    /// Returns a copy for another place.
    pub(super) fn copied(&self) -> Self {
        let children = match &self.children {
            Children::Object(object) => Children::Object(object.copied()),
            Children::Array(array) => Children::Array(array.clone()),
        };
        Self { span: self.span, is_copy: true, children }
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.children, Children::Object(_))
    }

    /// Returns the memory of the node in bytes.
    pub(super) fn held(&self) -> usize {
        let besides = match &self.children {
            Children::Object(object) => object.held(),
            Children::Array(_) => 0,
        };
        size_of::<Self>() + self.all_pieces().count() * size_of::<Piece>() + besides
    }

    /// Returns the pieces of a part. The parts are in order.
    pub(super) fn pieces(&self, part: usize) -> Option<&[Piece]> {
        match &self.children {
            Children::Object(object) => (part == 0).then_some(&object.pieces),
            Children::Array(array) => array.parts.get(part).map(|part| &*part.pieces),
        }
    }

    /// Returns all pieces in order.
    pub(super) fn all_pieces(&self) -> impl Iterator<Item = &Piece> {
        (0..).map_while(|part| self.pieces(part)).flatten()
    }

    /// Returns all pieces in order, each with its part and its index in the part.
    pub(super) fn placed_pieces(&self) -> impl Iterator<Item = (usize, usize, &Piece)> {
        let parts = (0..).map_while(|part| Some((part, self.pieces(part)?)));
        parts.flat_map(|(part, pieces)| pieces.iter().enumerate().map(move |(at, piece)| (part, at, piece)))
    }

    /// Returns the pieces of a part mutably.
    pub(super) fn pieces_mut(&mut self, part: usize) -> Option<&mut [Piece]> {
        match &mut self.children {
            Children::Object(object) => (part == 0).then_some(&mut object.pieces),
            Children::Array(array) => array.parts.get_mut(part).map(|part| &mut *part.pieces),
        }
    }

    /// Returns a piece of a part mutably.
    pub(super) fn piece_mut(&mut self, part: usize, piece: usize) -> Option<&mut Piece> {
        self.pieces_mut(part)?.get_mut(piece)
    }
}

/// Index of a node in [`Tree::nodes`](crate::tree::Tree::nodes).
pub(super) type NodeId = u32;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null(Null),
    /// Text of a value other than `null`.
    Raw(Span),
    Open(NodeId),
}

/// Origin of a `null`. kube-apiserver's library distinguishes three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Null {
    /// Written in a text, or absent from an operation.
    Absent,
    /// The value of an operation.
    Operand,
    /// A copy of an operation's value, which that library treats as an empty object.
    Copied,
}

#[derive(Clone, Debug)]
pub(super) struct Array {
    /// Parts; none is empty unless it is the only one.
    pub(super) parts: Vec<Part>,
    pub(super) len: usize,
    /// Number of items when the array was opened.
    pub(super) was: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Number of items of all pieces.
    len: usize,
    pub(super) pieces: Vec<Piece>,
}

/// Maximum number of pieces of a part.
const MAX_PART_PIECES: usize = 64;
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

    /// Distributes pieces over parts that are half full.
    pub(super) fn parts(pieces: &[Piece]) -> Vec<Part> {
        if pieces.is_empty() {
            return vec![Part::default()];
        }
        let part = |pieces: &[Piece]| Part { len: pieces.iter().map(items).sum(), pieces: pieces.to_vec() };
        pieces.chunks(MAX_PART_PIECES / 2).map(part).collect()
    }

    /// Returns the part and the piece with item `index`, and the number of items before it in that piece. For an index
    /// after the last item, the piece is the one after the last.
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

    /// Replaces pieces of a part.
    pub(super) fn splice(&mut self, part: usize, at: std::ops::Range<usize>, new: Vec<Piece>) {
        let changed = &mut self.parts[part];
        let (gone, come) = (changed.pieces[at.clone()].iter().map(items), new.iter().map(items));
        let (gone, come): (usize, usize) = (gone.sum(), come.sum());
        changed.len = changed.len - gone + come;
        self.len = self.len - gone + come;
        changed.pieces.splice(at, new);
        if changed.pieces.is_empty() && self.parts.len() > 1 {
            self.parts.remove(part);
        } else if self.parts[part].pieces.len() > MAX_PART_PIECES {
            let changed = &mut self.parts[part];
            let pieces = changed.pieces.split_off(MAX_PART_PIECES / 2);
            let len = pieces.iter().map(items).sum();
            changed.len -= len;
            self.parts.insert(part + 1, Part { len, pieces });
        }
    }
}

/// Memory for a member in an index in bytes, including the free capacity of a hash table.
pub(super) const INDEX_ENTRY_BYTES: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Pieces; no two separate children have the same key.
    pub(super) pieces: Vec<Piece>,
    /// Removed members that are no longer pieces.
    pub(super) removed: Vec<Child>,
    /// Cost of finding members so far, in scanned bytes.
    pub(super) effort: usize,
    pub(super) index: Option<Index>,
}

impl Object {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        Self { pieces, removed: Vec::new(), effort: 0, index: None }
    }

    /// Returns a copy without the removed members.
    pub(super) fn copied(&self) -> Self {
        let there = |piece: &&Piece| !matches!(piece, Piece::Child(Child { value: None, .. }));
        Self::new(self.pieces.iter().filter(there).copied().collect())
    }

    /// Moves removed members out of the pieces, so that later scans do not visit them.
    pub(super) fn compact_removed(&mut self) {
        let gone = self.pieces.extract_if(.., |piece| matches!(piece, Piece::Child(Child { value: None, .. })));
        let gone = gone.filter_map(|piece| match piece {
            Piece::Child(child) if child.was.is_some() => Some(child),
            Piece::Child(_) | Piece::Run(_) => None,
        });
        self.removed.extend(gone);
        self.index = None;
        self.effort = 0;
    }

    /// Returns the memory of the object besides its pieces, in bytes.
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

/// Hash index of members by key.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Randomly seeded, because the sender chooses the keys.
    pub(super) hashes: Arc<RandomState>,
    /// Pieces by the hash of their key, or by the next free number after it.
    pub(super) pieces: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
}

/// Hasher that returns numbers, which are hashes already, unchanged.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

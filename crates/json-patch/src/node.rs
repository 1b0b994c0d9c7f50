//! Node: an opened container, and the pieces that its children are in.

use super::{
    array::Array,
    object::Object,
    text::Span,
    tree::{NodeId, Value},
};

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

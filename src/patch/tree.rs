//! Tree: a document of which only what operations touched is opened.
//!
//! ```text
//!   Value ─┬─ Null
//!          ├─ Raw ── a slice of a text, not looked into
//!          └─ Open ─ a node: Object or Array, a row of pieces
//!                                               ├─ Run ─── neighbours as they were written
//!                                               └─ Child ─ one that an operation asked for
//! ```
//!
//! Nodes refer to each other by number, so that neither cloning nor dropping a deep tree recurses. A number is never given
//! anew; what nothing refers to any more goes with the tree.

use bytestring::ByteString;

use super::{
    Fault,
    array::Array,
    object::Object,
    outline::{Draft, Outline},
    weight::Weight,
};
use crate::{
    model::Rope,
    wire::json::{self, Cursor, ReadError},
};

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

/// Origin of a `null`. kube-apiserver's library tells the three apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Null {
    /// Written in a text, or left out of an operation.
    Absent,
    /// An operation's value.
    Given,
    /// A copy of a given one, which that library takes for an empty object.
    Copied,
}

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

/// An opened container.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Text that it was opened from, brackets included.
    pub(super) span: Span,
    /// It is a copy, and so in no place where it was opened.
    copied: bool,
    pub(super) children: Children,
}

#[derive(Clone, Debug)]
pub(super) enum Children {
    Object(Object),
    Array(Array),
}

impl Node {
    /// The same, to stand elsewhere.
    fn copied(&self) -> Self {
        let children = match &self.children {
            Children::Object(object) => Children::Object(object.copied()),
            Children::Array(array) => Children::Array(array.copied()),
        };
        Self { span: self.span, copied: true, children }
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.children, Children::Object(_))
    }

    /// Bytes of memory that it takes.
    pub(super) fn held(&self) -> usize {
        let index = match &self.children {
            Children::Object(object) => object.indexed_bytes(),
            Children::Array(_) => 0,
        };
        size_of::<Self>() + self.all_pieces().count() * size_of::<Piece>() + index
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
    fn pieces_mut(&mut self, part: usize) -> Option<&mut [Piece]> {
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

/// A text that values lie in. It has been checked to be JSON.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: ByteString,
    /// The same bytes as they arrived, where that was in several pieces.
    pub(super) pieces: Option<Rope>,
    outline: Option<Outline>,
}

impl Text {
    pub(super) fn new(text: ByteString, pieces: Option<Rope>) -> Self {
        Self { text, pieces, outline: None }
    }

    /// End of the container that begins at `start`, where it is known.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        self.outline.as_ref()?.end_of(start)
    }

    /// Bytes of memory that are held besides what arrived: the outline, and the text where it was copied to lie in one piece.
    pub(super) fn held(&self) -> usize {
        self.outline.as_ref().map_or(0, Outline::size) + self.pieces.as_ref().map_or(0, Rope::len)
    }

    /// Notes where the containers end of a text that is known to be JSON. Where it turns out to be none, nothing is noted.
    fn outline(&mut self, start: usize, mut draft: Draft) {
        self.outline = json::brackets(&self.text, start, &mut draft).is_ok().then(|| draft.finish());
    }
}

/// Pieces that a container is opened into, so that what is to be scanned for a child is a small part of it.
const PIECES: usize = 32;

/// Scans over the texts after which the ends of their containers are noted.
const PATIENCE: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) texts: Vec<Text>,
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
    /// Bytes that were scanned to open containers.
    scanned: usize,
    pub(super) weight: Weight,
}

impl Tree {
    /// A tree of one text, which is one object or array, and is checked to be, unless it was.
    pub(super) fn new(mut text: Text, is_checked: bool) -> Result<Self, ReadError> {
        let (start, len) = (Cursor::new(&text.text).at(), text.text.len());
        let span = Span { text: 0, start: start as u32, end: len as u32 };
        let draft = Draft::bounded(len, if is_checked { 0 } else { span.start });
        let draft = if is_checked {
            text.outline(start, draft);
            None
        } else {
            Some(draft)
        };
        let mut tree = Self { texts: vec![text], nodes: Vec::new(), root: 0, scanned: 0, weight: Weight::unbounded() };
        tree.root = tree.opening(span, draft)?;
        Ok(tree)
    }

    pub(super) fn add_text(&mut self, text: ByteString) -> u32 {
        self.texts.push(Text::new(text, None));
        (self.texts.len() - 1) as u32
    }

    pub(super) fn str(&self, span: Span) -> &str {
        &self.texts[span.text as usize].text[span.start as usize..span.end as usize]
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// A value as it stands in a text.
    pub(super) fn value(&self, span: Span) -> Value {
        match self.str(span) {
            "null" => Value::Null(Null::Absent),
            _ => Value::Raw(span),
        }
    }

    pub(super) fn is_container(&self, span: Span) -> bool {
        self.str(span).starts_with(['{', '['])
    }

    /// Opens the container that takes up `span`, but for white space behind it: one pass over those of its bytes that are
    /// in no container whose end is known.
    pub(super) fn open(&mut self, span: Span) -> Result<NodeId, ReadError> {
        self.outline_if_worthwhile(span);
        self.opening(span, None)
    }

    /// The same; its text gets the outline that is drawn on the way.
    fn opening(&mut self, span: Span, mut draft: Option<Draft>) -> Result<NodeId, ReadError> {
        let text = &self.texts[span.text as usize];
        let within = &text.text[span.start as usize..span.end as usize];
        let is_object = within.starts_with('{');
        let mut cursor = Cursor::new(within);
        let entered = if is_object { cursor.object("the object") } else { cursor.array("the object") };
        if !entered? {
            return Err(ReadError::Type { field: "the object", wanted: "an object is expected" });
        }
        let step = within.len() / PIECES;
        let mut runs = Vec::new();
        let mut run: Option<Run> = None;
        let mut count = 0;
        loop {
            let start = if is_object {
                let Some((key, _)) = cursor.placed_key()? else { break };
                key.start
            } else {
                if !cursor.item()? {
                    break;
                }
                cursor.at()
            };
            let start = span.start + start as u32;
            match (text.end_of(span.start + cursor.at() as u32), &mut draft) {
                (Some(end), _) => cursor.pass_to((end - span.start) as usize),
                (None, Some(draft)) => cursor.skip_noting(draft)?,
                (None, None) => cursor.skip()?,
            }
            let run_so_far = run.get_or_insert(Run { start, end: start, count: 0, ordinal: count });
            run_so_far.count += 1;
            run_so_far.end = span.start + cursor.behind() as u32;
            if (run_so_far.end - run_so_far.start) as usize >= step {
                runs.extend(run.take().map(Piece::Run));
            }
            count += 1;
        }
        let end = span.start + cursor.behind() as u32;
        cursor.end()?;
        runs.extend(run.map(Piece::Run));
        if let Some(draft) = draft {
            self.texts[span.text as usize].outline = Some(draft.finish());
        }
        let children =
            if is_object { Children::Object(Object::new(runs)) } else { Children::Array(Array::new(runs, count)) };
        let node = Node { span: Span { end, ..span }, copied: false, children };
        self.weight.add(node.held());
        self.nodes.push(node);
        Ok((self.nodes.len() - 1) as NodeId)
    }

    /// Opening a container passes over all that is in it and not noted. A patch that opens one inside the other again
    /// and again would have the innermost passed over as often as it is deep; then one more pass notes where each
    /// container ends.
    fn outline_if_worthwhile(&mut self, span: Span) {
        self.scanned += span.len();
        let text = &mut self.texts[span.text as usize];
        let is_whole = text.outline.as_ref().is_some_and(|outline| outline.is_whole);
        if !is_whole && self.scanned > PATIENCE * text.text.len() {
            let start = Cursor::new(&text.text).at();
            text.outline(start, Draft::whole(0));
            self.scanned = 0;
        }
    }

    /// The node of a value that is a container; a raw one is opened. `None` for anything else.
    pub(super) fn opened(&mut self, value: Value) -> Result<Option<NodeId>, Fault> {
        Ok(match value {
            Value::Open(id) => Some(id),
            Value::Raw(span) if self.is_container(span) => {
                let id = self.open(span)?;
                self.weight.check()?;
                Some(id)
            }
            Value::Raw(_) | Value::Null(_) => None,
        })
    }

    /// True where nothing has taken the place of what stood there in the text `of`.
    pub(super) fn is_as_it_was(&self, of: u32, value: Value, was: Was) -> bool {
        let was = Span { text: of, start: was.start, end: was.end };
        match value {
            Value::Raw(span) => span == was || self.str(span) == self.str(was),
            Value::Null(_) => self.str(was) == "null",
            Value::Open(id) => self.node(id).span == was && !self.node(id).copied,
        }
    }

    /// Makes every `null` one like any other: how it came to be matters within a patch alone.
    pub(super) fn settle_nulls(&mut self) {
        for node in &mut self.nodes {
            for part in 0.. {
                let Some(pieces) = node.pieces_mut(part) else { break };
                for piece in pieces {
                    if let Piece::Child(Child { value: Some(Value::Null(null)), .. }) = piece {
                        *null = Null::Absent;
                    }
                }
            }
        }
    }

    /// A copy of an opened container, with copies of all that is opened in it.
    pub(super) fn copy_node(&mut self, id: NodeId) -> NodeId {
        let first = self.nodes.len();
        self.nodes.push(self.node(id).copied());
        let mut copy = first;
        while copy < self.nodes.len() {
            for (part, piece, old) in self.open_children(copy as NodeId) {
                let new = self.nodes.len() as NodeId;
                self.nodes.push(self.node(old).copied());
                if let Some(Piece::Child(child)) = self.nodes[copy].piece_mut(part, piece) {
                    child.value = Some(Value::Open(new));
                }
            }
            copy += 1;
        }
        first as NodeId
    }

    /// The children that are opened themselves: by part and piece, with their node.
    pub(super) fn open_children(&self, id: NodeId) -> Vec<(usize, usize, NodeId)> {
        let node = self.node(id);
        let parts = (0..).map_while(|part| Some((part, node.pieces(part)?)));
        let pieces =
            parts.flat_map(|(part, pieces)| pieces.iter().enumerate().map(move |(at, piece)| (part, at, piece)));
        pieces
            .filter_map(|(part, at, piece)| match piece {
                Piece::Child(Child { value: Some(Value::Open(id)), .. }) => Some((part, at, *id)),
                _ => None,
            })
            .collect()
    }
}

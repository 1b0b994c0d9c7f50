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

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    OperationFault,
    array::Array,
    node::{Child, Children, Node, Piece, Run, Was},
    object::Object,
    outline::Draft,
    text::{Span, Text},
    weight::Weight,
};
use gatepost_json::{Cursor, JsonReadError};

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

/// Pieces that a container is opened into, so that what is to be scanned for a child is a small part of it.
const PIECES: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) texts: Vec<Text>,
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
    pub(super) weight: Weight,
    /// Set by whoever no longer waits for what is being done.
    pub(super) cancelled: Option<Arc<AtomicBool>>,
    /// Bytes that were compared to find values equal.
    pub(super) compared: usize,
}

impl Tree {
    /// A tree of one text, which is one object or array, and is checked to be, unless it was.
    pub(super) fn new(mut text: Text, is_checked: bool) -> Result<Self, JsonReadError> {
        let (start, len) = (Cursor::new(&text.text).at(), text.text.len());
        let span = Span { text: 0, start: start as u32, end: len as u32 };
        let draft = Draft::bounded(len, if is_checked { 0 } else { span.start });
        let draft = if is_checked {
            text.outline(draft);
            None
        } else {
            Some(draft)
        };
        let (weight, cancelled) = (Weight::unbounded(), None);
        let mut tree = Self { texts: vec![text], nodes: Vec::new(), root: 0, weight, cancelled, compared: 0 };
        tree.root = tree.opening(span, draft)?;
        Ok(tree)
    }

    pub(super) fn add_text(&mut self, text: Text) -> u32 {
        self.texts.push(text);
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
    fn open(&mut self, span: Span) -> Result<NodeId, OperationFault> {
        let room = self.weight.left();
        let outline = self.texts[span.text as usize].outline_if_worthwhile(room)?;
        self.weight.add(outline);
        Ok(self.opening(span, None)?)
    }

    /// The same; its text gets the outline that is drawn on the way.
    fn opening(&mut self, span: Span, mut draft: Option<Draft>) -> Result<NodeId, JsonReadError> {
        let text = &self.texts[span.text as usize];
        let within = &text.text[span.start as usize..span.end as usize];
        let is_object = within.starts_with('{');
        let mut cursor = Cursor::new(within);
        let entered = if is_object { cursor.object("the object") } else { cursor.array("the object") };
        if !entered? {
            return Err(JsonReadError::Type { field: "the object", wanted: "an object is expected" });
        }
        let step = within.len() / PIECES;
        let mut runs = Vec::new();
        let mut run: Option<Run> = None;
        let (mut count, mut passed) = (0, 0);
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
            let value = cursor.at();
            match (text.end_of(span.start + value as u32), &mut draft) {
                (Some(end), _) => {
                    let end = (end - span.start) as usize;
                    passed += end - value;
                    cursor.pass_to(end);
                }
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
        let (end, scanned) = (span.start + cursor.behind() as u32, cursor.behind() - passed);
        cursor.end()?;
        runs.extend(run.map(Piece::Run));
        let text = &mut self.texts[span.text as usize];
        text.scan(scanned);
        if let Some(draft) = draft {
            text.keep(draft);
        }
        let children =
            if is_object { Children::Object(Object::new(runs)) } else { Children::Array(Array::new(runs, count)) };
        let node = Node { span: Span { end, ..span }, is_copy: false, children };
        self.weight.add(node.held());
        self.nodes.push(node);
        Ok((self.nodes.len() - 1) as NodeId)
    }

    /// The node of a value that is a container; a raw one is opened. `None` for anything else.
    pub(super) fn opened(&mut self, value: Value) -> Result<Option<NodeId>, OperationFault> {
        Ok(match value {
            Value::Open(id) => Some(id),
            Value::Raw(span) if self.is_container(span) => {
                let id = self.open(span)?;
                self.check()?;
                Some(id)
            }
            Value::Raw(_) | Value::Null(_) => None,
        })
    }

    /// Does somebody still wait for what is being done, and is there memory for it?
    pub(super) fn check(&self) -> Result<(), OperationFault> {
        match &self.cancelled {
            Some(cancelled) if cancelled.load(Ordering::Relaxed) => Err(OperationFault::Cancelled),
            _ => self.weight.check(),
        }
    }

    /// True where nothing has taken the place of what stood there in the text `of`.
    pub(super) fn is_as_it_was(&self, of: u32, value: Value, was: Was) -> bool {
        let was = Span { text: of, start: was.start, end: was.end };
        match value {
            Value::Raw(span) => span == was || self.str(span) == self.str(was),
            Value::Null(_) => self.str(was) == "null",
            Value::Open(id) => self.node(id).span == was && !self.node(id).is_copy,
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
        pieces.filter_map(|(part, at, piece)| Some((part, at, piece.opened()?))).collect()
    }
}

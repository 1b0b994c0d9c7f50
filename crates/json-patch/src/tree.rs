//! The tree of a document. Only the containers that operations touched are opened.
//!
//! ```text
//!   Value ─┬─ Null
//!          ├─ Raw ── a slice of a text, not opened
//!          └─ Open ─ a node: Object or Array, a list of pieces
//!                                               ├─ Run ─── adjacent children as written
//!                                               └─ Child ─ a child that an operation named
//! ```
//!
//! Nodes refer to each other by index, so that neither cloning nor dropping a deep tree recurses. Indexes are never
//! reused; unreachable nodes are dropped with the tree.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use gatepost_json::{Cursor, JsonReadError};

use crate::{
    node::{Array, Child, Children, Node, NodeId, Null, Object, OriginalChild, Piece, Run, Value},
    operation::OperationFault,
    text::{OutlineRecorder, Span, Text},
};

/// Maximum number of pieces that a container is opened into, so that finding a child scans a small part of it.
const MAX_OPENED_PIECES: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) texts: Vec<Text>,
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
    pub(super) memory: MemoryCount,
    /// Set when the caller cancels.
    pub(super) cancelled: Option<Arc<AtomicBool>>,
    /// Number of bytes compared by `test` operations.
    pub(super) compared: usize,
}

impl Tree {
    /// Creates a tree of one text, which must be an object or array. Checks it unless `is_checked`.
    pub(super) fn new(mut text: Text, is_checked: bool) -> Result<Self, JsonReadError> {
        let (start, len) = (Cursor::new(&text.text).at(), text.text.len());
        let span = Span { text: 0, start: start as u32, end: len as u32 };
        let draft = OutlineRecorder::bounded(len, if is_checked { 0 } else { span.start });
        let mut draft = Some(draft);
        if is_checked && let Some(draft) = draft.take() {
            text.outline(draft);
        }
        let (memory, cancelled) = (MemoryCount::unbounded(), None);
        let mut tree = Self { texts: vec![text], nodes: Vec::new(), root: 0, memory, cancelled, compared: 0 };
        tree.root = tree.open_recording(span, draft)?;
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

    /// Returns the value of a slice of a text.
    pub(super) fn value(&self, span: Span) -> Value {
        match self.str(span) {
            "null" => Value::Null(Null::Absent),
            _ => Value::Raw(span),
        }
    }

    pub(super) fn is_container(&self, span: Span) -> bool {
        self.str(span).starts_with(['{', '['])
    }

    /// Opens the container in `span`, which may have trailing white space, in one pass over its bytes. Skips containers
    /// in it whose end is recorded.
    fn open(&mut self, span: Span) -> Result<NodeId, OperationFault> {
        let room = self.memory.left();
        let outline = self.texts[span.text as usize].outline_if_worthwhile(room)?;
        self.memory.add(outline);
        Ok(self.open_recording(span, None)?)
    }

    /// As [`Tree::open`], but records an outline of the text in the same pass if there is a `draft`.
    fn open_recording(&mut self, span: Span, mut draft: Option<OutlineRecorder>) -> Result<NodeId, JsonReadError> {
        let text = &self.texts[span.text as usize];
        let within = &text.text[span.start as usize..span.end as usize];
        let is_object = within.starts_with('{');
        let mut cursor = Cursor::new(within);
        let entered = if is_object { cursor.object("the object") } else { cursor.array("the object") };
        if !entered? {
            return Err(JsonReadError::Type { field: "the object", wanted: "an object is expected" });
        }
        let step = within.len() / MAX_OPENED_PIECES;
        let mut runs = Vec::new();
        let mut run: Option<Run> = None;
        let (mut count, mut passed) = (0, 0);
        loop {
            let start = if is_object {
                let Some((key, _)) = cursor.key_with_range()? else { break };
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
                    cursor.jump_to(end);
                }
                (None, Some(draft)) => cursor.skip_recorded(draft)?,
                (None, None) => cursor.skip()?,
            }
            let run_so_far = run.get_or_insert(Run { start, end: start, count: 0, ordinal: count });
            run_so_far.count += 1;
            run_so_far.end = span.start + cursor.value_end() as u32;
            if (run_so_far.end - run_so_far.start) as usize >= step {
                runs.extend(run.take().map(Piece::Run));
            }
            count += 1;
        }
        let (end, scanned) = (span.start + cursor.value_end() as u32, cursor.value_end() - passed);
        cursor.end()?;
        runs.extend(run.map(Piece::Run));
        let text = &mut self.texts[span.text as usize];
        text.scan(scanned);
        if let Some(draft) = draft {
            text.set_outline(draft);
        }
        let children =
            if is_object { Children::Object(Object::new(runs)) } else { Children::Array(Array::new(runs, count)) };
        let node = Node { span: Span { end, ..span }, is_copy: false, children };
        self.memory.add(node.held());
        self.nodes.push(node);
        Ok((self.nodes.len() - 1) as NodeId)
    }

    /// Returns the node of a container, after opening the container if necessary; `None` for other values.
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

    /// Fails if the caller has cancelled, or too much memory is taken.
    pub(super) fn check(&self) -> Result<(), OperationFault> {
        match &self.cancelled {
            Some(cancelled) if cancelled.load(Ordering::Relaxed) => Err(OperationFault::Cancelled),
            _ => self.memory.check(),
        }
    }

    /// Returns true if the value is the one at the place `was` in the text `of`.
    pub(super) fn is_as_it_was(&self, of: u32, value: Value, was: OriginalChild) -> bool {
        let was = Span { text: of, start: was.start, end: was.end };
        match value {
            Value::Raw(span) => span == was || self.str(span) == self.str(was),
            Value::Null(_) => self.str(was) == "null",
            Value::Open(id) => self.node(id).span == was && !self.node(id).is_copy,
        }
    }

    /// Resets the origins of `null`s, which matter only within one patch.
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

    /// Copies an opened container and everything opened in it.
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

    /// Returns the part and piece of each opened child, with its node.
    pub(super) fn open_children(&self, id: NodeId) -> Vec<(usize, usize, NodeId)> {
        self.node(id).placed_pieces().filter_map(|(part, at, piece)| Some((part, at, piece.opened()?))).collect()
    }
}

/// Memory that an opened document takes besides its texts, in bytes.
#[derive(Clone, Debug)]
pub(super) struct MemoryCount {
    taken: usize,
    most: usize,
}

impl MemoryCount {
    /// Creates a count without a limit.
    pub(super) fn unbounded() -> Self {
        Self { taken: 0, most: usize::MAX }
    }

    /// Limits the memory that may be taken from now on to `more` bytes.
    pub(super) fn bound(&mut self, more: usize) {
        self.most = self.taken.saturating_add(more);
    }

    /// Returns the number of bytes that may still be taken.
    pub(super) fn left(&self) -> usize {
        self.most.saturating_sub(self.taken)
    }

    /// Counts memory that was taken. The caller may call [`MemoryCount::check`] later, because it is little.
    pub(super) fn add(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Counts memory that is about to be taken.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), OperationFault> {
        self.add(bytes);
        self.check()
    }

    /// Fails if more memory is taken than the limit.
    pub(super) fn check(&self) -> Result<(), OperationFault> {
        if self.taken > self.most { Err(OperationFault::NoRoom) } else { Ok(()) }
    }
}

/// Minimum length of a slice that becomes a piece of its own, in bytes. Copying a shorter one costs less than a piece.
const MIN_SLICE_LEN: usize = 64;

/// Writes values of a tree as slices of its texts and small new pieces.
pub(super) struct Writer<'a> {
    tree: &'a Tree,
    done: Vec<Bytes>,
    /// New bytes since the last slice.
    small: Vec<u8>,
    /// Slice to be written, which the next slice may extend.
    pending: Option<Span>,
    /// Containers that are being written, outermost first.
    open: Vec<Frame>,
}

struct Frame {
    id: NodeId,
    part: usize,
    piece: usize,
    separator: &'static str,
}

impl<'a> Writer<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Self { tree, done: Vec::new(), small: Vec::new(), pending: None, open: Vec::new() }
    }

    /// Writes new bytes.
    pub(super) fn own(&mut self, bytes: impl AsRef<[u8]>) {
        self.flush();
        self.small.extend_from_slice(bytes.as_ref());
    }

    /// Writes a value.
    pub(super) fn value(&mut self, value: Value) {
        self.begin(value, "");
        while let Some(frame) = self.open.last_mut() {
            let node = self.tree.node(frame.id);
            let Some(piece) = next_piece(node, frame) else {
                self.joined(Span { start: node.span.end - 1, ..node.span }, "");
                self.open.pop();
                continue;
            };
            let separator = std::mem::replace(&mut frame.separator, ",");
            match piece {
                Piece::Run(run) => {
                    self.joined(Span { text: node.span.text, start: run.start, end: run.end }, separator);
                }
                Piece::Child(Child { key, value: Some(value), .. }) => {
                    if node.is_object() {
                        self.joined(*key, separator);
                        self.begin(*value, ":");
                    } else {
                        self.begin(*value, separator);
                    }
                }
                Piece::Child(Child { value: None, .. }) => unreachable!("removed children are passed over"),
            }
        }
    }

    /// Returns the written pieces.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.flush();
        self.end_small();
        self.done
    }

    /// Writes a separator and a value, or only the opening bracket of a container.
    fn begin(&mut self, value: Value, separator: &str) {
        match value {
            Value::Null(_) => {
                self.own(separator);
                self.own("null");
            }
            Value::Raw(span) => self.joined(span, separator),
            Value::Open(id) => {
                let span = self.tree.node(id).span;
                self.joined(Span { end: span.start + 1, ..span }, separator);
                self.open.push(Frame { id, part: 0, piece: 0, separator: "" });
            }
        }
    }

    /// Writes a separator and a slice. Extends the pending slice if both are in the same text, with only that separator
    /// and white space between them.
    fn joined(&mut self, span: Span, separator: &str) {
        if let Some(pending) = &mut self.pending
            && pending.text == span.text
            && pending.end <= span.start
        {
            let between = self.tree.str(Span { start: pending.end, end: span.start, ..span });
            if between.trim_matches([' ', '\t', '\n', '\r']) == separator {
                pending.end = span.end;
                return;
            }
        }
        self.own(separator);
        self.pending = Some(span);
    }

    fn flush(&mut self) {
        let Some(span) = self.pending.take() else { return };
        if span.len() < MIN_SLICE_LEN {
            self.small.extend_from_slice(self.tree.str(span).as_bytes());
            return;
        }
        self.end_small();
        let text = &self.tree.texts[span.text as usize];
        let range = span.start as usize..span.end as usize;
        match &text.pieces {
            Some(pieces) => self.done.extend(pieces.shared(range)),
            None => self.done.push(text.text.as_bytes().slice(range)),
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.done.push(std::mem::take(&mut self.small).into());
        }
    }
}

/// Returns the next piece that is not removed.
fn next_piece<'a>(node: &'a Node, frame: &mut Frame) -> Option<&'a Piece> {
    loop {
        let pieces = node.pieces(frame.part)?;
        match pieces.get(frame.piece) {
            None => {
                frame.part += 1;
                frame.piece = 0;
            }
            Some(piece) => {
                frame.piece += 1;
                if !matches!(piece, Piece::Child(Child { value: None, .. })) {
                    return Some(piece);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gatepost_json::Rope;

    use crate::{Document, Patch, PatchError, PatchLimits};

    fn document(text: &str) -> Document {
        Document::new(Rope::new([text.to_owned().into()])).unwrap()
    }

    fn patch(operations: &[String]) -> Patch {
        Patch::parse(format!("[{}]", operations.join(",")).into()).unwrap()
    }

    #[test]
    fn memory_limit_bounds_separate_members_and_items() {
        let members = (0..20_000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
        let items = "0,".repeat(20_000);
        for (object, value) in
            [(format!("{{{members}}}"), "{}".to_owned()), (format!("[{items}0]"), format!("[{items}1]"))]
        {
            let document = document(&format!("{{\"a\":{object}}}"));
            let patch = patch(&[format!(r#"{{"op":"test","path":"/a","value":{value}}}"#)]);
            let error = |held| document.patched(&patch, PatchLimits { held, ..PatchLimits::default() }).unwrap_err();
            assert_eq!(error(64 << 10), PatchError::NoRoom);
            assert!(matches!(error(8 << 20), PatchError::Operation { .. }), "it fails for what it says");
        }
    }

    #[test]
    fn copies_of_many_opened_parts_take_little_memory() {
        const PARTS: usize = 2000;
        let object = format!("{{\"a\":[{}]}}", vec![r#"{"x":[]}"#; PARTS].join(","));
        let test = |n: usize| format!(r#"{{"op":"test","path":"/a/{n}/x","value":[]}}"#);
        let copy = |n: usize| format!(r#"{{"op":"copy","from":"/a","path":"/b{n}"}}"#);
        let operations: Vec<_> = (0..PARTS).map(test).chain((0..100).map(copy)).collect();
        let patched = document(&object).patched(&patch(&operations), PatchLimits::default()).unwrap();
        assert!(patched.held() < 4 << 20, "{}", patched.held());
        let object: serde_json::Value = serde_json::from_slice(&patched.rope().to_bytes()).unwrap();
        assert!((0..100).all(|n| object[format!("b{n}")] == object["a"]));
    }

    #[test]
    fn joined_object_counts_as_held_memory() {
        let whole = r#"{"a":"0123456789"}"#;
        let pieces: Vec<_> = whole.split_inclusive(':').map(|piece| piece.to_owned().into()).collect();
        let extra = Document::new(Rope::new(pieces)).unwrap().held() - document(whole).held();
        assert_eq!(extra, whole.len());
    }
}

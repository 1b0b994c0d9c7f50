//! Writer: a tree's values as slices of its texts and small new pieces.

use bytes::Bytes;

use super::{
    node::{Child, Node, Piece},
    text::Span,
    tree::{NodeId, Tree, Value},
};

/// Shorter slices are copied: one more piece of a rope costs more.
const SHORT: usize = 64;

/// Text written so far.
pub(super) struct Writer<'a> {
    tree: &'a Tree,
    done: Vec<Bytes>,
    /// New bytes since the last slice.
    small: Vec<u8>,
    /// A slice to be written, which what follows may make longer.
    pending: Option<Span>,
    /// Containers that are being written, from the outermost on.
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
            let (id, separator) = (frame.id, frame.separator);
            let next = next_piece(node, frame);
            if next.is_some() {
                frame.separator = ",";
            }
            match next {
                None => {
                    debug_assert_eq!(self.tree.node(id).span, node.span);
                    self.close(node.span);
                    self.open.pop();
                }
                Some(Piece::Run(run)) => {
                    self.joined(Span { text: node.span.text, start: run.start, end: run.end }, separator);
                }
                Some(Piece::Child(Child { key, value: Some(value), .. })) => {
                    if node.is_object() {
                        self.joined(*key, separator);
                        self.begin(*value, ":");
                    } else {
                        self.begin(*value, separator);
                    }
                }
                Some(Piece::Child(Child { value: None, .. })) => unreachable!("removed children are passed over"),
            }
        }
    }

    /// All that was written.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.flush();
        self.end_small();
        self.done
    }

    /// Writes a separator and a value, of a container only the bracket.
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

    fn close(&mut self, span: Span) {
        self.joined(Span { start: span.end - 1, ..span }, "");
    }

    /// Writes a separator and a slice. Where the slice stands behind what was written last, and between them stands
    /// that separator and white space, all is one slice.
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
        if span.len() < SHORT {
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

/// The next piece that is not removed.
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

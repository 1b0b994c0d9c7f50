//! Difference: one patch from the object as it arrived to what it is now.
//!
//! Only containers that stand where they were opened are compared, child by child; anything else is a value by itself.
//! Differences inside a container are folded into one `replace` of it where that is shorter.

use super::{
    pointer,
    tree::{Child, Children, NodeId, Null, Piece, Tree, Value},
    write::Writer,
};
use crate::model::Rope;

/// One operation.
struct Step {
    op: &'static str,
    path: String,
    value: Option<Value>,
}

/// A container whose changes are being collected.
struct Frame {
    id: NodeId,
    /// Length of its path.
    path: usize,
    /// Number of steps before its own.
    mark: usize,
    /// Bytes of its steps.
    cost: usize,
    /// Containers in it that are still to be looked at, with their step of the path.
    inner: Vec<(String, NodeId)>,
}

struct Changes<'a> {
    tree: &'a Tree,
    /// Length of each node that is still there.
    lengths: Vec<usize>,
    path: String,
    steps: Vec<Step>,
}

/// Bytes of an operation besides its path and value.
const AROUND: usize = r#"{"op":"replace","path":"","value":},"#.len();

/// Number of every tree's root node.
const ROOT: NodeId = 0;

pub(super) fn of(tree: &Tree) -> Option<Rope> {
    let mut changes = Changes { tree, lengths: lengths(tree), path: String::new(), steps: Vec::new() };
    if tree.root == ROOT {
        changes.collect();
    } else {
        changes.step("replace", "", Some(Value::Open(tree.root)));
    }
    if changes.steps.is_empty() {
        return None;
    }
    let mut out = Writer::new(tree);
    let mut separator = "[";
    for step in changes.steps {
        out.own(separator);
        out.own(r#"{"op":""#);
        out.own(step.op);
        out.own(r#"","path":"#);
        out.own(serde_json::Value::from(step.path).to_string());
        if let Some(value) = step.value {
            out.own(r#","value":"#);
            out.value(value);
        }
        out.own("}");
        separator = ",";
    }
    out.own("]");
    Some(Rope::new(out.finish()))
}

impl Changes<'_> {
    fn collect(&mut self) {
        let mut open = vec![self.enter(ROOT)];
        while let Some(frame) = open.last_mut() {
            self.path.truncate(frame.path);
            if let Some((part, id)) = frame.inner.pop() {
                pointer::push(&mut self.path, &part);
                let inner = self.enter(id);
                open.push(inner);
                continue;
            }
            let Some(frame) = open.pop() else { break };
            let cost = self.folded(&frame);
            if let Some(around) = open.last_mut() {
                around.cost += cost;
            }
        }
    }

    /// Folds a container's steps where that is shorter; says what they cost then.
    fn folded(&mut self, frame: &Frame) -> usize {
        let whole = AROUND + frame.path + self.lengths[frame.id as usize];
        if frame.cost <= whole {
            return frame.cost;
        }
        self.steps.truncate(frame.mark);
        let path = self.path[..frame.path].to_owned();
        self.steps.push(Step { op: "replace", path, value: Some(Value::Open(frame.id)) });
        whole
    }

    /// Notes what differs among the children of a container that stands where it was.
    fn enter(&mut self, id: NodeId) -> Frame {
        let mut frame = Frame { id, path: self.path.len(), mark: self.steps.len(), cost: 0, inner: Vec::new() };
        let node = self.tree.node(id);
        match &node.children {
            Children::Object(object) => {
                // First: a member of the same name may have been added since.
                for child in &object.removed {
                    self.member(child, node.span.text, &mut frame);
                }
                for piece in node.all_pieces() {
                    if let Piece::Child(child) = piece {
                        self.member(child, node.span.text, &mut frame);
                    }
                }
            }
            Children::Array(array) => {
                self.removed_items(id, array.was(), &mut frame);
                self.added_items(id, &mut frame);
                self.changed_items(id, &mut frame);
            }
        }
        // The last is taken first.
        frame.inner.reverse();
        frame
    }

    fn member(&mut self, child: &Child, text: u32, frame: &mut Frame) {
        match (child.value, child.was) {
            (None, None) => {}
            (None, Some(_)) => frame.cost += self.step("remove", &self.tree.key(child.key), None),
            (Some(value), None) => frame.cost += self.step("add", &self.tree.key(child.key), Some(value)),
            (Some(value), Some(was)) if self.tree.is_as_it_was(text, value, was) => {
                if let Value::Open(id) = value {
                    frame.inner.push((self.tree.key(child.key).into_owned(), id));
                }
            }
            (Some(value), Some(_)) => frame.cost += self.step("replace", &self.tree.key(child.key), Some(value)),
        }
    }

    /// From the last one on, so that each index is that of the array as it was.
    fn removed_items(&mut self, id: NodeId, was: u32, frame: &mut Frame) {
        let mut removed = Vec::new();
        let mut next = 0;
        for piece in self.tree.node(id).all_pieces() {
            let (ordinal, count) = match piece {
                Piece::Run(run) => (run.ordinal, run.count),
                Piece::Child(Child { was: Some(was), .. }) => (was.ordinal, 1),
                Piece::Child(Child { was: None, .. }) => continue,
            };
            removed.extend(next..ordinal);
            next = ordinal + count;
        }
        removed.extend(next..was);
        for index in removed.into_iter().rev() {
            frame.cost += self.step("remove", &index.to_string(), None);
        }
    }

    /// From the first one on, so that each index is that of the array as it is.
    fn added_items(&mut self, id: NodeId, frame: &mut Frame) {
        for (index, child) in self.items(id) {
            if let Child { value: Some(value), was: None, .. } = child {
                frame.cost += self.step("add", &index.to_string(), Some(value));
            }
        }
    }

    fn changed_items(&mut self, id: NodeId, frame: &mut Frame) {
        let text = self.tree.node(id).span.text;
        for (index, child) in self.items(id) {
            let Child { value: Some(value), was: Some(was), .. } = child else { continue };
            if !self.tree.is_as_it_was(text, value, was) {
                frame.cost += self.step("replace", &index.to_string(), Some(value));
            } else if let Value::Open(id) = value {
                frame.inner.push((index.to_string(), id));
            }
        }
    }

    /// Items that stand alone, with their index.
    fn items(&self, id: NodeId) -> Vec<(usize, Child)> {
        let mut index = 0;
        let mut alone = Vec::new();
        for piece in self.tree.node(id).all_pieces() {
            match piece {
                Piece::Run(run) => index += run.count as usize,
                Piece::Child(child) => {
                    alone.push((index, *child));
                    index += 1;
                }
            }
        }
        alone
    }

    /// Notes an operation on a child of the container at the present path; of an empty `part`, on the root. Says how many
    /// bytes it has.
    fn step(&mut self, op: &'static str, part: &str, value: Option<Value>) -> usize {
        let len = self.path.len();
        let mut path = self.path.clone();
        if self.tree.root == ROOT {
            pointer::push(&mut path, part);
        }
        let value_len = value.map_or(0, |value| length(&self.lengths, value));
        debug_assert!(self.path.len() == len);
        let cost = AROUND + path.len() + value_len;
        self.steps.push(Step { op, path, value });
        cost
    }
}

/// About how long each node is when it is written, where it is part of the document.
pub(super) fn lengths(tree: &Tree) -> Vec<usize> {
    let mut lengths = vec![0; tree.nodes.len()];
    let mut reached = vec![tree.root];
    let mut at = 0;
    while let Some(id) = reached.get(at) {
        reached.extend(tree.node(*id).all_pieces().filter_map(|piece| match piece {
            Piece::Child(Child { value: Some(Value::Open(id)), .. }) => Some(*id),
            _ => None,
        }));
        at += 1;
    }
    // Inner ones were reached later.
    for id in reached.into_iter().rev() {
        let node = tree.node(id);
        let pieces = node.all_pieces().map(|piece| match piece {
            Piece::Run(run) => (run.end - run.start) as usize + 1,
            Piece::Child(Child { value: None, .. }) => 0,
            Piece::Child(Child { key, value: Some(value), .. }) => {
                let key = if node.is_object() { key.len() + 1 } else { 0 };
                key + length(&lengths, *value) + 1
            }
        });
        lengths[id as usize] = 2 + pieces.sum::<usize>();
    }
    lengths
}

fn length(lengths: &[usize], value: Value) -> usize {
    match value {
        Value::Null(Null::Absent | Null::Given | Null::Copied) => "null".len(),
        Value::Raw(span) => span.len(),
        Value::Open(id) => lengths[id as usize],
    }
}

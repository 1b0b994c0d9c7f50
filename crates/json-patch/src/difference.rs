//! Computes one patch from the original to the current object.
//!
//! Containers that are still at their original place are compared child by child; any other changed value is replaced
//! as a whole. The changes inside a container are folded into one `replace` of it if that is shorter.

use gatepost_json::{MAX_DEPTH, Rope, pointer};

use crate::{
    node::{Child, Children, NodeId, Null, Piece, Value},
    operation,
    text::Span,
    tree::{Tree, Writer},
};

/// One operation. Refers to the path of its container, so that the changes of one container do not repeat it.
struct Change {
    op: &'static str,
    /// Index of the container in [`Changes::places`].
    place: usize,
    /// Child that changes; `None` for the container itself.
    part: Option<PathStep>,
    value: Option<Value>,
}

/// One step of a path.
#[derive(Clone, Copy)]
enum PathStep {
    /// Key as a JSON string.
    Member(Span),
    Item(usize),
}

/// Path of a container that is at its original place.
struct PathNode {
    /// Index of the parent container and the step from it; `None` for the root.
    within: Option<(usize, PathStep)>,
    /// Length of the path as a JSON string, in bytes.
    len: usize,
}

/// A container whose changes are being collected.
struct Frame {
    id: NodeId,
    place: usize,
    /// Number of changes before its own.
    mark: usize,
    /// Length of its changes in bytes.
    cost: usize,
    /// Containers in it that are not yet compared, with the steps to them.
    inner: Vec<(PathStep, NodeId)>,
}

/// The operations from the original to the current object.
pub struct Changes<'a> {
    tree: &'a Tree,
    /// Length of each reachable node in bytes.
    lengths: Vec<usize>,
    places: Vec<PathNode>,
    operations: Vec<Change>,
    cost: usize,
}

/// Bytes of an operation besides its path and value.
const OPERATION_OVERHEAD: usize = r#"{"op":"replace","path":"","value":},"#.len();

/// Node of the original root in every tree.
pub(super) const ROOT: NodeId = 0;

pub(super) fn of(tree: &Tree) -> Option<Changes<'_>> {
    let places = vec![PathNode { within: None, len: 0 }];
    let mut changes = Changes { tree, lengths: lengths(tree), places, operations: Vec::new(), cost: 0 };
    changes.cost = if tree.root == ROOT {
        changes.collect()
    } else {
        changes.operations.push(Change { op: "replace", place: 0, part: None, value: Some(Value::Open(tree.root)) });
        OPERATION_OVERHEAD + changes.lengths[tree.root as usize]
    };
    if changes.operations.is_empty() { None } else { Some(changes) }
}

impl Changes<'_> {
    /// Returns the approximate length of the patch, which is at most that of the object and one operation.
    pub fn size(&self) -> usize {
        self.cost
    }

    /// Writes the JSON Patch.
    pub fn to_patch(&self) -> Rope {
        let mut out = Writer::new(self.tree);
        let mut separator = "[";
        // The last path, the container of the last change, and the length of that container's path.
        let (mut path, mut last, mut stem) = (String::new(), 0, 0);
        for step in &self.operations {
            if step.place != last {
                path.clear();
                self.push_path(&mut path, step.place);
                (last, stem) = (step.place, path.len());
            }
            path.truncate(stem);
            if let Some(part) = step.part {
                self.push_part(&mut path, part);
            }
            out.own(separator);
            out.own(r#"{"op":""#);
            out.own(step.op);
            out.own(r#"","path":"#);
            out.own(serde_json::Value::from(&*path).to_string());
            if let Some(value) = step.value {
                out.own(r#","value":"#);
                out.value(value);
            }
            out.own("}");
            separator = ",";
        }
        out.own("]");
        Rope::new(out.finish())
    }

    /// Appends the path of a container.
    fn push_path(&self, path: &mut String, mut place: usize) {
        let mut parts = Vec::new();
        while let Some((within, part)) = self.places[place].within {
            parts.push(part);
            place = within;
        }
        parts.into_iter().rev().for_each(|part| self.push_part(path, part));
    }

    fn push_part(&self, path: &mut String, part: PathStep) {
        match part {
            PathStep::Member(key) => pointer::push(path, &self.tree.key(key)),
            PathStep::Item(index) => pointer::push(path, &index.to_string()),
        }
    }

    /// Returns the length of a step as written, in bytes.
    fn len_of(&self, part: PathStep) -> usize {
        match part {
            PathStep::Member(key) => operation::len_in_json(&self.tree.key(key)),
            PathStep::Item(index) => "/".len() + index.checked_ilog10().unwrap_or(0) as usize + 1,
        }
    }

    /// Collects all changes. Returns their length in bytes.
    fn collect(&mut self) -> usize {
        let mut open = vec![self.enter(ROOT, 0)];
        while let Some(frame) = open.last_mut() {
            if let Some((part, id)) = frame.inner.pop() {
                let within = frame.place;
                let len = self.places[within].len + self.len_of(part);
                self.places.push(PathNode { within: Some((within, part)), len });
                let inner = self.enter(id, self.places.len() - 1);
                open.push(inner);
                continue;
            }
            let Some(frame) = open.pop() else { break };
            let cost = self.folded(&frame);
            match open.last_mut() {
                Some(around) => around.cost += cost,
                None => return cost,
            }
        }
        0
    }

    /// Folds a container's changes into one if that is shorter. Returns their length in bytes.
    fn folded(&mut self, frame: &Frame) -> usize {
        let whole = OPERATION_OVERHEAD + self.places[frame.place].len + self.lengths[frame.id as usize];
        if frame.cost <= whole {
            return frame.cost;
        }
        self.operations.truncate(frame.mark);
        let value = Some(Value::Open(frame.id));
        self.operations.push(Change { op: "replace", place: frame.place, part: None, value });
        whole
    }

    /// Collects the changes of the children of a container that is at its original place.
    fn enter(&mut self, id: NodeId, place: usize) -> Frame {
        let mut frame = Frame { id, place, mark: self.operations.len(), cost: 0, inner: Vec::new() };
        let node = self.tree.node(id);
        match &node.children {
            Children::Object(object) => {
                // First, because a member of the same key may have been added since.
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
                self.removed_items(id, array.was, &mut frame);
                self.added_items(id, &mut frame);
                self.changed_items(id, &mut frame);
            }
        }
        // The last one is popped first.
        frame.inner.reverse();
        frame
    }

    fn member(&mut self, child: &Child, text: u32, frame: &mut Frame) {
        let part = PathStep::Member(child.key);
        match (child.value, child.was) {
            (None, None) => {}
            (None, Some(_)) => self.change("remove", part, None, frame),
            (Some(value), None) => self.change("add", part, Some(value), frame),
            (Some(value), Some(was)) if self.tree.is_as_it_was(text, value, was) => {
                if let Value::Open(id) = value {
                    frame.inner.push((part, id));
                }
            }
            (Some(value), Some(_)) => self.change("replace", part, Some(value), frame),
        }
    }

    /// Collects removals from the last item on, so that each index is that in the original array.
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
            self.change("remove", PathStep::Item(index as usize), None, frame);
        }
    }

    /// Collects additions from the first item on, so that each index is that in the current array.
    fn added_items(&mut self, id: NodeId, frame: &mut Frame) {
        for (index, child) in self.items(id) {
            if let Child { value: Some(value), was: None, .. } = child {
                self.change("add", PathStep::Item(index), Some(value), frame);
            }
        }
    }

    fn changed_items(&mut self, id: NodeId, frame: &mut Frame) {
        let text = self.tree.node(id).span.text;
        for (index, child) in self.items(id) {
            let Child { value: Some(value), was: Some(was), .. } = child else { continue };
            if !self.tree.is_as_it_was(text, value, was) {
                self.change("replace", PathStep::Item(index), Some(value), frame);
            } else if let Value::Open(id) = value {
                frame.inner.push((PathStep::Item(index), id));
            }
        }
    }

    /// Returns the separate items with their indexes.
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

    /// Adds an operation on a child of a container.
    fn change(&mut self, op: &'static str, part: PathStep, value: Option<Value>, frame: &mut Frame) {
        let path = self.places[frame.place].len + self.len_of(part);
        frame.cost += OPERATION_OVERHEAD + path + value.map_or(0, |value| length(&self.lengths, value));
        self.operations.push(Change { op, place: frame.place, part: Some(part), value });
    }
}

/// Returns the approximate length of each reachable node as written, in bytes.
pub(super) fn lengths(tree: &Tree) -> Vec<usize> {
    let mut lengths = vec![0; tree.nodes.len()];
    let mut reached = vec![tree.root];
    let mut at = 0;
    while let Some(id) = reached.get(at) {
        reached.extend(tree.node(*id).all_pieces().filter_map(Piece::opened));
        at += 1;
    }
    // Inner nodes are later in `reached`.
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
        Value::Null(Null::Absent | Null::Operand | Null::Copied) => "null".len(),
        Value::Raw(span) => span.len(),
        Value::Open(id) => lengths[id as usize],
    }
}

impl Tree {
    /// Returns false if the document certainly does not nest too deep. A value of `n` bytes nests at most `n / 2` deep,
    /// and an unchanged value is as deep as before. `lengths` are those of the nodes.
    pub(super) fn may_nest_too_deep(&self, lengths: &[usize]) -> bool {
        let mut reached: Vec<(NodeId, usize)> = vec![(self.root, 1)];
        while let Some((id, depth)) = reached.pop() {
            let node = self.node(id);
            for piece in node.all_pieces() {
                let Piece::Child(Child { value: Some(value), was, .. }) = piece else { continue };
                let len = match value {
                    Value::Null(_) => continue,
                    Value::Raw(span) => span.len(),
                    Value::Open(inner) => {
                        reached.push((*inner, depth + 1));
                        lengths[*inner as usize]
                    }
                };
                let stayed = was.is_some_and(|was| self.is_as_it_was(node.span.text, *value, was));
                if !stayed && depth + len / 2 > MAX_DEPTH {
                    return true;
                }
            }
        }
        false
    }
}

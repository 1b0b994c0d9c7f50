//! Applies operations in order, as kube-apiserver's library does.
//!
//! That library departs from RFC 6902: `replace` sets a missing member; negative indexes count from the end; an
//! operation without `value` has the value `null`; a missing member is `null` for `test` and `copy`; scalars are equal
//! only if they are written alike. `test` compares objects by their members and arrays by their items.

use bytestring::ByteString;

use crate::{
    node::{Child, Children, Node, NodeId, Null, Piece, Value},
    operation::{self, OperationFault, OperationKind, Pointer},
    patch::{Operand, Operation, Patch, TextRange},
    text::{Span, Text},
    tree::{Tree, Writer},
};

/// A tree to which a patch is being applied.
pub(super) struct Application<'a> {
    tree: &'a mut Tree,
    /// Index of the patch's text in the tree.
    text: u32,
    /// Index of the patch's names in the tree.
    names: u32,
    /// Number of bytes that copies may still add.
    to_copy: usize,
}

/// A container that a path leads to.
#[derive(Clone, Copy)]
enum Container {
    Object(NodeId),
    Array(NodeId),
    /// A copied `null`, which has no members and to which none can be added.
    CopiedNull,
}

/// An existing child.
#[derive(Clone, Copy)]
enum Slot {
    Member(NodeId, usize),
    Item(NodeId, usize),
}

impl<'a> Application<'a> {
    pub(super) fn of(patch: &Patch, tree: &'a mut Tree, to_copy: usize) -> Self {
        let text = tree.add_text(Text::arrived(patch.text.clone(), None));
        let names = tree.add_text(Text::arrived(patch.names.clone(), None));
        Self { tree, text, names, to_copy }
    }

    /// Applies one operation. After an error the tree is unusable.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), OperationFault> {
        self.tree.check()?;
        let value = match operation.kind {
            OperationKind::Add => self.value(operation.value),
            OperationKind::Move => self.remove(&operation.from, "from")?,
            OperationKind::Copy => self.copied(&operation.from)?,
            OperationKind::Remove => return self.remove(&operation.path, "path").map(drop),
            OperationKind::Replace => return self.replace(operation),
            OperationKind::Test => return self.test(operation),
        };
        self.add(operation, value)
    }

    fn value(&self, given: Operand) -> Value {
        match given {
            Operand::Absent => Value::Null(Null::Absent),
            Operand::Null => Value::Null(Null::Operand),
            Operand::Text(TextRange { start, end }) => Value::Raw(Span { text: self.text, start, end }),
        }
    }

    fn add(&mut self, operation: &Operation, value: Value) -> Result<(), OperationFault> {
        let last = last(&operation.path);
        match self.container(&operation.path, "path")? {
            Container::CopiedNull => Err(OperationFault::NoParent("path")),
            Container::Object(id) => self.set_member(id, &last, operation.name, value),
            Container::Array(id) => {
                let len = self.tree.array(id).len;
                let index = if last == "-" { len } else { index(&last, len + 1, "path")? };
                self.tree.insert_item(id, index, value)
            }
        }
    }

    fn set_member(&mut self, id: NodeId, key: &str, name: TextRange, value: Value) -> Result<(), OperationFault> {
        match self.tree.member(id, key)? {
            Some(piece) => *self.slot_value(Slot::Member(id, piece))? = Some(value),
            None => {
                let key = Span { text: self.names, start: name.start, end: name.end };
                self.tree.push_member(id, Child { key, value: Some(value), was: None });
            }
        }
        Ok(())
    }

    /// Removes the value at `path`, which must exist.
    fn remove(&mut self, path: &str, field: &'static str) -> Result<Value, OperationFault> {
        let container = self.container(path, field)?;
        let slot = self.child(container, &last(path), field)?.ok_or(OperationFault::NoMember(field))?;
        let value = match slot {
            Slot::Member(..) => self.slot_value(slot)?.take(),
            Slot::Item(id, index) => {
                let value = *self.slot_value(slot)?;
                self.tree.remove_item(id, index)?;
                value
            }
        };
        value.ok_or(OperationFault::NoMember(field))
    }

    fn replace(&mut self, operation: &Operation) -> Result<(), OperationFault> {
        let value = self.value(operation.value);
        if operation.path.is_empty() {
            self.tree.root = self.tree.opened(value)?.ok_or(OperationFault::RootValue)?;
            return Ok(());
        }
        let container = self.container(&operation.path, "path")?;
        match (self.child(container, &last(&operation.path), "path")?, container) {
            (Some(slot), _) => *self.slot_value(slot)? = Some(value),
            (None, Container::Object(id)) => self.set_member(id, &last(&operation.path), operation.name, value)?,
            (None, _) => return Err(OperationFault::NoParent("path")),
        }
        Ok(())
    }

    fn copied(&mut self, from: &str) -> Result<Value, OperationFault> {
        let container = self.container(from, "from")?;
        let Some(slot) = self.child(container, &last(from), "from")? else { return Ok(Value::Null(Null::Absent)) };
        let value = self.slot_value(slot)?.unwrap_or(Value::Null(Null::Absent));
        let (copy, itself, counts) = self.tree.copied(value, self.to_copy)?;
        self.to_copy -= counts;
        if itself != value {
            *self.slot_value(slot)? = Some(itself);
        }
        Ok(copy)
    }

    fn test(&mut self, operation: &Operation) -> Result<(), OperationFault> {
        let wanted = self.value(operation.value);
        let equal = if operation.path.is_empty() {
            self.tree.equals(Value::Open(self.tree.root), wanted)?
        } else {
            let container = self.container(&operation.path, "path")?;
            match self.child(container, &last(&operation.path), "path")? {
                Some(slot) => self.test_slot(slot, wanted)?,
                None => matches!(wanted, Value::Null(_)),
            }
        };
        if equal { Ok(()) } else { Err(OperationFault::TestFailed) }
    }

    fn test_slot(&mut self, slot: Slot, wanted: Value) -> Result<bool, OperationFault> {
        let value = match (self.slot_value(slot)?.unwrap_or(Value::Null(Null::Absent)), wanted) {
            (Value::Null(Null::Absent), wanted) => return Ok(matches!(wanted, Value::Null(_))),
            (_, Value::Null(Null::Absent)) => return Ok(false),
            // The container stays open, so that the cost of the next test depends only on that test's value.
            (value @ Value::Raw(_), Value::Raw(wanted)) if self.tree.is_container(wanted) => {
                match self.tree.opened(value)? {
                    Some(id) => *self.slot_value(slot)?.insert(Value::Open(id)),
                    None => value,
                }
            }
            (value, _) => value,
        };
        self.tree.equals(value, wanted)
    }

    /// Returns the container of the child that `path` names. Opens all containers on the path.
    fn container(&mut self, path: &str, field: &'static str) -> Result<Container, OperationFault> {
        let pointer = Pointer::new(path).ok_or(OperationFault::NoParent(field))?;
        let mut at = self.kind(self.tree.root);
        for part in pointer.parents() {
            let slot = self.child(at, &part, field)?.ok_or(OperationFault::NoParent(field))?;
            at = match *self.slot_value(slot)? {
                Some(Value::Open(id)) => self.kind(id),
                Some(Value::Null(Null::Copied)) => Container::CopiedNull,
                Some(value @ Value::Raw(_)) => {
                    let id = self.tree.opened(value)?.ok_or(OperationFault::NoParent(field))?;
                    *self.slot_value(slot)? = Some(Value::Open(id));
                    self.kind(id)
                }
                Some(Value::Null(_)) | None => return Err(OperationFault::NoParent(field)),
            };
        }
        Ok(at)
    }

    fn kind(&self, id: NodeId) -> Container {
        match self.tree.node(id).children {
            Children::Object(_) => Container::Object(id),
            Children::Array(_) => Container::Array(id),
        }
    }

    /// Returns the member or item `part`. `None` if the member does not exist; fails if the item does not exist.
    fn child(&mut self, container: Container, part: &str, field: &'static str) -> Result<Option<Slot>, OperationFault> {
        Ok(match container {
            Container::CopiedNull => None,
            Container::Object(id) => self.tree.member(id, part)?.map(|piece| Slot::Member(id, piece)),
            Container::Array(id) => Some(Slot::Item(id, index(part, self.tree.array(id).len, field)?)),
        })
    }

    fn slot_value(&mut self, slot: Slot) -> Result<&mut Option<Value>, OperationFault> {
        match slot {
            Slot::Item(id, index) => Ok(&mut self.tree.item_mut(id, index)?.value),
            Slot::Member(id, piece) => match self.tree.node_mut(id).piece_mut(0, piece) {
                Some(Piece::Child(child)) => Ok(&mut child.value),
                _ => Err(OperationFault::NoMember("path")),
            },
        }
    }
}

/// Returns the last step of a path; empty for a path without steps.
fn last(path: &str) -> std::borrow::Cow<'_, str> {
    Pointer::new(path).map(Pointer::last).unwrap_or_default()
}

/// Reads an index below `len`. A negative index counts from `len`.
fn index(part: &str, len: usize, field: &'static str) -> Result<usize, OperationFault> {
    let index = operation::index(part).ok_or(OperationFault::NotAnIndex(field))?;
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < len).ok_or(OperationFault::OutOfRange(field))
}

/// Maximum number of bytes compared for each byte of a test's value. Beyond this, containers are opened instead of
/// compared. Otherwise the innermost of nested containers could be compared as often as it is deep.
const MAX_COMPARED_PER_BYTE: usize = 8;
/// Minimum length in bytes of a container that may be opened instead of compared. Shorter containers cannot nest deep,
/// and opening them takes more memory.
const MIN_OPENED_LEN: usize = 128;

/// Result of comparing two values as written.
enum Comparison {
    Equal,
    Different,
    /// Both are containers whose children must be compared. The second one belongs to the patch.
    ByChildren(Value, Span),
}

impl Tree {
    /// Compares a value of the document with one of a patch. Containers of the document stay open, so that the cost of
    /// the next comparison depends on the patch's value and not on the document.
    pub(super) fn equals(&mut self, ours: Value, other: Value) -> Result<bool, OperationFault> {
        let len = match other {
            Value::Raw(span) => span.len(),
            Value::Null(_) | Value::Open(_) => 0,
        };
        let most = self.compared.saturating_add(MAX_COMPARED_PER_BYTE * len);
        let mut pairs = match self.compare(ours, other, most)? {
            Comparison::Equal => return Ok(true),
            Comparison::Different => return Ok(false),
            Comparison::ByChildren(ours, other) => vec![(ours, other)],
        };
        while let Some((ours, other)) = pairs.pop() {
            let equal = match (self.opened(ours)?, self.opened(Value::Raw(other))?) {
                (Some(ours), Some(other)) => self.pair_children(ours, other, most, &mut pairs)?,
                _ => false,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares two values as written; large containers only until `most` bytes were compared.
    fn compare(&mut self, ours: Value, other: Value, most: usize) -> Result<Comparison, OperationFault> {
        let equal = match (ours, other) {
            (Value::Raw(our), Value::Raw(other)) => {
                let by_children = self.is_container(our) && self.is_container(other);
                let len = our.len();
                let affordable = !by_children || len < MIN_OPENED_LEN || self.compared.saturating_add(len) <= most;
                if len == other.len() && affordable {
                    self.compared += len;
                    if self.str(our) == self.str(other) {
                        return Ok(Comparison::Equal);
                    }
                }
                if by_children {
                    return Ok(Comparison::ByChildren(ours, other));
                }
                false
            }
            (Value::Open(_), Value::Raw(other)) if self.is_container(other) => {
                return Ok(Comparison::ByChildren(ours, other));
            }
            // A copied `null` is an empty object.
            (Value::Null(Null::Copied), Value::Raw(_)) => {
                self.opened(other)?.is_some_and(|other| self.is_empty_object(other))
            }
            (Value::Null(ours), Value::Null(other)) => ours == other && ours != Null::Copied,
            _ => false,
        };
        Ok(if equal { Comparison::Equal } else { Comparison::Different })
    }

    /// Adds the children that must be opened to `pairs`. Returns false if the two containers cannot be equal.
    fn pair_children(
        &mut self,
        ours: NodeId,
        other: NodeId,
        most: usize,
        pairs: &mut Vec<(Value, Span)>,
    ) -> Result<bool, OperationFault> {
        let places: Vec<_> = match (&self.node(ours).children, &self.node(other).children) {
            (Children::Object(_), Children::Object(_)) => match self.pair_members(ours, other)? {
                Some(places) => places,
                None => return Ok(false),
            },
            (Children::Array(our_items), Children::Array(items)) if our_items.len == items.len => {
                self.separate_items(ours)?;
                self.separate_items(other)?;
                let others = self.live(other).map(|(_, _, _, value)| value);
                self.live(ours)
                    .zip(others)
                    .map(|((part, piece, _, value), other)| (part, piece, value, other))
                    .collect()
            }
            _ => return Ok(false),
        };
        for (part, piece, value, other) in places {
            match self.compare(value, other, most)? {
                Comparison::Equal => {}
                Comparison::Different => return Ok(false),
                Comparison::ByChildren(value, other) => {
                    pairs.push((self.opened_in_place(ours, (part, piece), value)?, other));
                }
            }
        }
        Ok(true)
    }

    /// Returns part, piece and value of each member of one object, with the value of that key in the other object.
    /// `None` if the keys differ.
    #[expect(clippy::type_complexity, reason = "taken apart by the only caller")]
    fn pair_members(
        &mut self,
        ours: NodeId,
        other: NodeId,
    ) -> Result<Option<Vec<(usize, usize, Value, Value)>>, OperationFault> {
        self.index_live_members(ours)?;
        self.index_members(other)?;
        if self.live(ours).count() != self.live(other).count() {
            return Ok(None);
        }
        let members: Vec<_> = self.live(ours).collect();
        let mut pairs = Vec::with_capacity(members.len());
        for (part, piece, child, value) in members {
            let key = self.key(child.key).into_owned();
            let Some(found) = self.member(other, &key)? else { return Ok(None) };
            let Some(Piece::Child(Child { value: Some(other), .. })) = self.node_mut(other).piece_mut(0, found) else {
                return Ok(None);
            };
            pairs.push((part, piece, value, *other));
        }
        Ok(Some(pairs))
    }

    /// Indexes the members of an object. If most are removed or overridden by a later one with the same key, they are
    /// compacted first, because the next test visits all pieces.
    fn index_live_members(&mut self, id: NodeId) -> Result<(), OperationFault> {
        self.index_members(id)?;
        let mostly_removed = 2 * self.live(id).count() < self.node(id).all_pieces().count();
        if let Children::Object(object) = &mut self.node_mut(id).children
            && mostly_removed
        {
            object.compact_removed();
        }
        self.index_members(id)
    }

    /// Opens a child's value and leaves it open.
    fn opened_in_place(
        &mut self,
        id: NodeId,
        (part, piece): (usize, usize),
        value: Value,
    ) -> Result<Value, OperationFault> {
        let Some(opened) = self.opened(value)? else { return Ok(value) };
        if let Some(Piece::Child(child)) = self.node_mut(id).piece_mut(part, piece) {
            child.value = Some(Value::Open(opened));
        }
        Ok(Value::Open(opened))
    }

    fn is_empty_object(&self, id: NodeId) -> bool {
        matches!(self.node(id).children, Children::Object(_)) && self.node(id).all_pieces().next().is_none()
    }

    /// Returns part, piece and value of each separate child that is not removed.
    fn live(&self, id: NodeId) -> impl Iterator<Item = (usize, usize, Child, Value)> {
        self.node(id).placed_pieces().filter_map(|(part, at, piece)| match piece {
            Piece::Child(child) => Some((part, at, *child, child.value?)),
            Piece::Run(_) => None,
        })
    }
}

/// Size of a value as Go would write it: without white space, and with escapes for HTML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measure {
    len: usize,
    blanks: usize,
    /// Number of removed members that were skipped.
    removed: usize,
    /// Memory of its opened parts in bytes.
    held: usize,
}

/// Maximum memory for one byte of a copy, in bytes. A copy that would take more is written as text.
const MAX_COPY_MEMORY_PER_BYTE: usize = 8;
/// Memory that every copy may take, in bytes.
const MIN_COPY_MEMORY: usize = 16 << 10;

impl Measure {
    fn add(&mut self, text: &str) {
        let (bytes, mut blanks) = (text.as_bytes(), Blanks::default());
        for (at, byte) in bytes.iter().enumerate() {
            if blanks.is_blank(*byte) {
                self.blanks += 1;
                continue;
            }
            self.len += match byte {
                b'<' | b'>' | b'&' => 6,
                // U+2028 and U+2029 have three bytes, and an escape six.
                0xe2 if matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) => 4,
                _ => 1,
            };
        }
    }
}

/// Finds the white space between the tokens of a JSON text.
#[derive(Default)]
struct Blanks {
    in_string: bool,
    is_escaped: bool,
}

impl Blanks {
    /// Reads the next byte of the text. Returns true if it is white space outside strings.
    fn is_blank(&mut self, byte: u8) -> bool {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !self.in_string => return true,
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ => {}
        }
        false
    }
}

impl Tree {
    /// Copies a value. Returns the copy, the value that is to replace the original, and the number of bytes that the
    /// copy counts for, at most `left`. The replacement has no white space, so that the time of repeated copies is
    /// linear in the bytes that they count for.
    pub(super) fn copied(&mut self, value: Value, left: usize) -> Result<(Value, Value, usize), OperationFault> {
        let measure = match value {
            Value::Null(Null::Absent) => return Ok((value, value, 0)),
            Value::Null(_) if "null".len() > left => return Err(OperationFault::CopiedTooMuch),
            Value::Null(_) => return Ok((Value::Null(Null::Copied), value, "null".len())),
            Value::Raw(_) | Value::Open(_) => self.measure(value),
        };
        if measure.len > left {
            return Err(OperationFault::CopiedTooMuch);
        }
        if measure.blanks > 0 {
            let compact = self.compact(value)?;
            return Ok((compact, compact, measure.len));
        }
        if measure.removed > measure.len {
            self.compact_removed(value);
        }
        // Opened parts may take many times the memory of their text, and `left` limits only the text.
        if measure.held > MIN_COPY_MEMORY + MAX_COPY_MEMORY_PER_BYTE * measure.len {
            return Ok((self.compact(value)?, value, measure.len));
        }
        self.memory.take(measure.held)?;
        let copy = match value {
            Value::Open(id) => Value::Open(self.copy_node(id)),
            Value::Raw(_) | Value::Null(_) => value,
        };
        Ok((copy, value, measure.len))
    }

    /// Compacts removed children so that repeated copies stay linear.
    fn compact_removed(&mut self, value: Value) {
        let Value::Open(id) = value else { return };
        let mut reached = vec![id];
        while let Some(id) = reached.pop() {
            if let Children::Object(object) = &mut self.node_mut(id).children {
                object.compact_removed();
            }
            reached.extend(self.open_children(id).into_iter().map(|(_, _, id)| id));
        }
    }

    fn measure(&self, value: Value) -> Measure {
        let mut measure = Measure::default();
        let mut open = Vec::new();
        self.measure_value(value, &mut measure, &mut open);
        while let Some(id) = open.pop() {
            self.measure_node(self.node(id), &mut measure, &mut open);
        }
        measure
    }

    /// Measures a value, or adds it to `open` if it is an opened container.
    fn measure_value(&self, value: Value, measure: &mut Measure, open: &mut Vec<NodeId>) {
        match value {
            Value::Null(_) => measure.len += "null".len(),
            Value::Raw(span) => measure.add(self.str(span)),
            Value::Open(id) => open.push(id),
        }
    }

    fn measure_node(&self, node: &Node, measure: &mut Measure, open: &mut Vec<NodeId>) {
        let before = measure.len;
        measure.held += node.held();
        for piece in node.all_pieces() {
            match piece {
                Piece::Run(run) => {
                    measure.add(self.str(Span { text: node.span.text, start: run.start, end: run.end }));
                }
                Piece::Child(Child { value: None, .. }) => {
                    measure.removed += 1;
                    continue;
                }
                Piece::Child(Child { key, value: Some(value), .. }) => {
                    if node.is_object() {
                        measure.add(self.str(*key));
                        measure.len += ":".len();
                    }
                    self.measure_value(*value, measure, open);
                }
            }
            measure.len += ",".len();
        }
        // Two brackets, and one comma fewer than children.
        measure.len += if measure.len > before { 1 } else { 2 };
    }

    /// Writes the value without white space as a new text.
    fn compact(&mut self, value: Value) -> Result<Value, OperationFault> {
        let mut writer = Writer::new(self);
        writer.value(value);
        let mut blanks = Blanks::default();
        let written = writer.finish();
        let bytes = written.iter().flat_map(|bytes| bytes.iter()).copied();
        let mut compact: Vec<u8> = bytes.filter(|byte| !blanks.is_blank(*byte)).collect();
        compact.shrink_to_fit();
        self.memory.take(compact.len())?;
        let Ok(compact) = ByteString::try_from(compact) else { return Ok(value) };
        let end = compact.len() as u32;
        let text = self.add_text(Text::written(compact));
        Ok(Value::Raw(Span { text, start: 0, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_as_go_writes_them() {
        let count = |text: &str| {
            let mut measure = Measure::default();
            measure.add(text);
            (measure.len, measure.blanks)
        };
        assert_eq!(count(r#"{"a":[1,2]}"#), (11, 0));
        assert_eq!(count("{ \"a b\" :\t[1,\n2] }"), (13, 5));
        assert_eq!(count(r#""<a> & \"b c\"""#), (r#""\u003ca\u003e \u0026 \"b c\"""#.len(), 0));
        assert_eq!(count("\"\u{2028}\u{2029}\u{2027}\""), (17, 0));
    }
}

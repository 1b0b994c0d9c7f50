//! Application of operations, one after the other, as kube-apiserver's library applies them.
//!
//! Where it departs from RFC 6902: `replace` sets a member that is not there; negative indexes count from the end; an
//! operation without `value` has the value `null`; a member that is not there is `null` for `test` and `copy`; scalars are
//! equal only when they are written alike.

use super::{
    OperationFault, OperationKind, Patch,
    node::{Child, Children, Piece},
    operation::{Given, Operation, TextRange},
    pointer::{self, Pointer},
    text::{Span, Text},
    tree::{NodeId, Null, Tree, Value},
};

/// A tree that a patch is being applied to.
pub(super) struct Application<'a> {
    tree: &'a mut Tree,
    /// The patch's text, by its number in the tree.
    text: u32,
    /// Its names.
    names: u32,
    /// Bytes that copies may still add.
    to_copy: usize,
}

/// A place where children are.
#[derive(Clone, Copy)]
enum Container {
    Object(NodeId),
    Array(NodeId),
    /// `null` that was copied: it has no members, and takes none.
    Nothing,
}

/// A child that is there.
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

    /// Applies one operation. After an error the tree is of no use.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), OperationFault> {
        self.tree.check()?;
        match operation.kind {
            OperationKind::Add => {
                let container = self.container(&operation.path, "path")?;
                self.add(container, operation, self.value(operation.value))
            }
            OperationKind::Remove => self.remove(&operation.path, "path").map(drop),
            OperationKind::Replace => self.replace(operation),
            OperationKind::Move => {
                let value = self.remove(&operation.from, "from")?;
                let container = self.container(&operation.path, "path")?;
                self.add(container, operation, value)
            }
            OperationKind::Copy => {
                let value = self.copied(&operation.from)?;
                let container = self.container(&operation.path, "path")?;
                self.add(container, operation, value)
            }
            OperationKind::Test => self.test(operation),
        }
    }

    fn value(&self, given: Given) -> Value {
        match given {
            Given::Nothing => Value::Null(Null::Absent),
            Given::Null => Value::Null(Null::Given),
            Given::Written(TextRange { start, end }) => Value::Raw(Span { text: self.text, start, end }),
        }
    }

    fn add(&mut self, container: Container, operation: &Operation, value: Value) -> Result<(), OperationFault> {
        let last = last(&operation.path);
        match container {
            Container::Nothing => Err(OperationFault::NoParent("path")),
            Container::Object(id) => self.set_member(id, &last, operation.name, value),
            Container::Array(id) => {
                let len = self.tree.array(id).len();
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

    /// Takes away what stands at `path`, which must be something.
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
            // It stays open, so that the next test is no dearer than its own value.
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

    /// The container that holds what `path` means, all on the way to it opened.
    fn container(&mut self, path: &str, field: &'static str) -> Result<Container, OperationFault> {
        let pointer = Pointer::new(path).ok_or(OperationFault::NoParent(field))?;
        let mut at = self.kind(self.tree.root);
        for part in pointer.parents() {
            let slot = self.child(at, &part, field)?.ok_or(OperationFault::NoParent(field))?;
            at = match *self.slot_value(slot)? {
                Some(Value::Open(id)) => self.kind(id),
                Some(Value::Null(Null::Copied)) => Container::Nothing,
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

    /// A member, `None` where it is not there; or an item, which must be.
    fn child(&mut self, container: Container, part: &str, field: &'static str) -> Result<Option<Slot>, OperationFault> {
        Ok(match container {
            Container::Nothing => None,
            Container::Object(id) => self.tree.member(id, part)?.map(|piece| Slot::Member(id, piece)),
            Container::Array(id) => Some(Slot::Item(id, index(part, self.tree.array(id).len(), field)?)),
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

/// The last step of a path; of a path without steps, nothing.
fn last(path: &str) -> std::borrow::Cow<'_, str> {
    Pointer::new(path).map(Pointer::last).unwrap_or_default()
}

/// An index below `len`; a negative one counts from there.
fn index(part: &str, len: usize, field: &'static str) -> Result<usize, OperationFault> {
    let index = pointer::index(part).ok_or(OperationFault::NotAnIndex(field))?;
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok().filter(|index| *index < len).ok_or(OperationFault::OutOfRange(field))
}

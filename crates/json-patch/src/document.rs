//! Patched objects, the limits of patches, and the fields that identify an object.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use bytestring::ByteString;
use gatepost_json::{self as json, Cursor, JsonError, JsonReadError, MAX_DEPTH, Rope};

use crate::{
    apply::Application,
    children::Walk,
    difference::{self, Changes, ROOT},
    node::{Child, Children, Node, NodeId, Piece, Value},
    operation::{OperationFault, PatchError, json_error},
    patch::Patch,
    text::{Span, Text},
    tree::{Tree, Writer},
};

/// Limits of applying a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Maximum number of bytes that all `copy` operations of one patch may add, counted as kube-apiserver does
    /// (`JSONPatchMaxCopyBytes`, for which it has no flag).
    pub copied: usize,
    /// Maximum size of the patched object in bytes.
    pub object: usize,
    /// Maximum memory for opened parts of the object, in bytes.
    pub held: usize,
}

impl Default for PatchLimits {
    /// Returns kube-apiserver's limits on copies and on objects of its clients. Memory is unlimited.
    fn default() -> Self {
        Self { copied: 3 << 20, object: 3 << 20, held: usize::MAX }
    }
}

/// An original JSON object with the patches applied to it so far. It is immutable: [`Document::patched`] returns a new
/// document that shares the bytes, so a patch that does not apply leaves it unchanged.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) tree: Tree,
    rope: Rope,
}

impl Document {
    /// Creates a document and checks in one pass that the rope is a JSON object. Several pieces are joined for reading,
    /// but the ropes of patched objects are slices of the pieces.
    ///
    /// # Errors
    /// [`PatchError::NotAnObject`].
    pub fn new(object: Rope) -> Result<Self, PatchError> {
        Self::of(object, false)
    }

    /// As [`Document::new`], for a rope that is known to be valid JSON and is not checked again.
    ///
    /// # Errors
    /// As [`Document::new`], but some faults are not detected.
    pub fn checked(object: Rope) -> Result<Self, PatchError> {
        Self::of(object, true)
    }

    fn of(object: Rope, is_checked: bool) -> Result<Self, PatchError> {
        let not_an_object = |at, what| PatchError::NotAnObject(JsonError::new(at, what));
        if u32::try_from(object.len()).is_err() {
            return Err(not_an_object(0, "it has more than 4 GiB"));
        }
        let pieces = object.contiguous(0..object.len()).is_none().then(|| object.clone());
        let text = object.to_bytes();
        let text = ByteString::try_from(text).map_err(|_| not_an_object(0, "it is not UTF-8"))?;
        if !json::is_object(&text) {
            return Err(not_an_object(0, "it is something else"));
        }
        let tree = Tree::new(Text::arrived(text, pieces), is_checked);
        let tree = tree.map_err(|error| PatchError::NotAnObject(json_error(error, 0)))?;
        Ok(Self { tree, rope: object })
    }

    /// Returns the object's bytes: slices of the original and of the patches, and small new pieces.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Applies a patch and returns the patched document.
    ///
    /// # Errors
    /// [`PatchError`] with the operation that does not apply, or the limit that is exceeded.
    pub fn patched(&self, patch: &Patch, limits: PatchLimits) -> Result<Self, PatchError> {
        self.patched_unless(patch, limits, None)
    }

    /// As [`Document::patched`], but stops soon after `cancelled` is set.
    ///
    /// # Errors
    /// As [`Document::patched`], and [`PatchError::Cancelled`].
    pub fn patched_unless(
        &self,
        patch: &Patch,
        limits: PatchLimits,
        cancelled: Option<&Arc<AtomicBool>>,
    ) -> Result<Self, PatchError> {
        if patch.is_empty() {
            return Ok(self.clone());
        }
        let mut tree = self.tree.clone();
        tree.memory.bound(limits.held);
        tree.cancelled = cancelled.cloned();
        let mut application = Application::of(patch, &mut tree, limits.copied);
        for (index, operation) in patch.operations.iter().enumerate() {
            application.apply(operation).map_err(|fault| match fault {
                OperationFault::NoRoom => PatchError::NoRoom,
                OperationFault::Cancelled => PatchError::Cancelled,
                fault => PatchError::Operation { index, operation: operation.label(), fault },
            })?;
        }
        tree.cancelled = None;
        tree.settle_nulls();
        let mut writer = Writer::new(&tree);
        writer.value(Value::Open(tree.root));
        let rope = Rope::new(writer.finish());
        if rope.len() > limits.object {
            return Err(PatchError::ObjectTooLarge { len: rope.len(), limit: limits.object });
        }
        if rope.len() > MAX_DEPTH && tree.may_nest_too_deep(&difference::lengths(&tree)) {
            tree.memory.take(rope.len()).map_err(|_| PatchError::NoRoom)?;
            json::value(&rope.to_bytes()).map_err(|_| PatchError::TooDeep)?;
        }
        Ok(Self { tree, rope })
    }

    /// Returns one JSON Patch from the original to the current object; `None` if they are equal. It has one operation
    /// for each differing place, or for a container around it if that is shorter.
    ///
    /// The result depends on the two objects and on the places that patches touched, and not on how the operations were
    /// distributed over patches.
    pub fn difference(&self) -> Option<Rope> {
        Some(self.changes()?.to_patch())
    }

    /// Returns the changes before they are written as a patch, so that the caller can check their size first.
    pub fn changes(&self) -> Option<Changes<'_>> {
        difference::of(&self.tree)
    }

    /// Returns the identity fields that the patches have changed.
    pub fn changed_identity(&self) -> Vec<IdentityField> {
        let tree = &self.tree;
        if !tree.node(tree.root).is_object() {
            return vec![IdentityField::Root];
        }
        let changed = |field: &IdentityField| {
            let path = field.path();
            match tree.root {
                ROOT => tree.differs(ROOT, path),
                root => tree.text_in(tree.node(ROOT).span, path) != tree.text_at(Value::Open(root), path),
            }
        };
        IdentityField::ALL.into_iter().filter(changed).collect()
    }

    /// Returns the memory in bytes besides the original and the texts of patches: opened containers, the outline (at
    /// most [`Document::outline`]), rewritten copies, and the joined object if the original has several pieces.
    pub fn held(&self) -> usize {
        Self::held_by(&self.tree)
    }

    pub(super) fn held_by(tree: &Tree) -> usize {
        let nodes: usize = tree.nodes.iter().map(Node::held).sum();
        nodes + tree.texts.iter().map(Text::held).sum::<usize>()
    }

    /// Returns the maximum memory in bytes for the outline of an object of `len` bytes, before any patch.
    pub const fn outline(len: usize) -> usize {
        len / 8
    }
}

/// A field that identifies an object.
///
/// kube-apiserver's webhook code compares none of these fields. Its later steps, decoding the object and validating its
/// metadata, reject most changes of them, but do not name the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityField {
    /// The root, which is no longer a JSON object.
    Root,
    /// `apiVersion`
    ApiVersion,
    /// `kind`
    Kind,
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// `metadata.uid`
    Uid,
}

impl IdentityField {
    const ALL: [Self; 5] = [Self::ApiVersion, Self::Kind, Self::Name, Self::Namespace, Self::Uid];

    fn path(self) -> &'static [&'static str] {
        match self {
            Self::Root => &[],
            Self::ApiVersion => &["apiVersion"],
            Self::Kind => &["kind"],
            Self::Name => &["metadata", "name"],
            Self::Namespace => &["metadata", "namespace"],
            Self::Uid => &["metadata", "uid"],
        }
    }
}

impl fmt::Display for IdentityField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("the object as a whole"),
            field => f.write_str(&field.path().join(".")),
        }
    }
}

impl Tree {
    /// Returns true if the value at `path` differs in a container that is still at its original place.
    fn differs(&self, id: NodeId, path: &[&str]) -> bool {
        let (Some((key, rest)), Children::Object(_)) = (path.split_first(), &self.node(id).children) else {
            return false;
        };
        let Some(child) = self.touched(id, key) else {
            // The member is in a run and so unchanged, or it was removed and compacted.
            return self.untouched(id, key).is_none() && self.text_in(self.node(id).span, path).is_some();
        };
        let text = self.node(id).span.text;
        let before = self.text_in(self.node(id).span, path);
        match (child.value, child.was) {
            (Some(Value::Open(inner)), Some(was)) if self.is_as_it_was(text, Value::Open(inner), was) => {
                if rest.is_empty() { false } else { self.differs(inner, rest) }
            }
            (Some(value), _) => before != self.text_at(value, rest),
            (None, _) => before.is_some(),
        }
    }

    /// Returns the value at `path` in a value as text; `None` if it is absent or `null`.
    fn text_at(&self, value: Value, path: &[&str]) -> Option<String> {
        let id = match value {
            Value::Null(_) => return None,
            Value::Raw(span) => return self.text_in(span, path),
            Value::Open(id) => id,
        };
        let Some((key, rest)) = path.split_first() else { return Some("a container".into()) };
        if !self.node(id).is_object() {
            return None;
        }
        match self.touched(id, key) {
            Some(child) => self.text_at(child.value?, rest),
            None => self.text_in(self.untouched(id, key)?, rest),
        }
    }

    /// Returns the value at `path` in a slice of a text.
    fn text_in(&self, span: Span, path: &[&str]) -> Option<String> {
        text_in(self.str(span), path).ok().flatten()
    }

    /// Returns the value of the member `key` if it is in a run.
    fn untouched(&self, id: NodeId, key: &str) -> Option<Span> {
        let text = self.node(id).span.text;
        let mut found = None;
        for piece in self.node(id).all_pieces() {
            let Piece::Run(run) = piece else { continue };
            let mut walk = Walk::of(&self.texts[text as usize], *run, true);
            while let Ok(Some((spot, written))) = walk.next() {
                if written.is_some_and(|written| written.plain() == key) {
                    found = Some(Span { text, start: spot.value, end: spot.end });
                }
            }
        }
        found
    }

    /// Returns the member `key` if it is separate.
    fn touched(&self, id: NodeId, key: &str) -> Option<&Child> {
        let is_it = |child: &&Child| (child.value.is_some() || child.was.is_some()) && self.key(child.key) == key;
        let children = self.node(id).all_pieces().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Run(_) => None,
        });
        children.filter(is_it).last()
    }
}

/// Returns the value at `path` in a text: unescaped if it is a string, otherwise as written.
fn text_in(mut text: &str, path: &[&str]) -> Result<Option<String>, JsonReadError> {
    for part in path {
        let mut cursor = Cursor::new(text);
        if !text.starts_with('{') || !cursor.object("")? {
            return Ok(None);
        }
        let mut found = None;
        while let Some(key) = cursor.key()? {
            let place = cursor.value_range()?;
            if key.plain() == *part {
                found = Some(&text[place]);
            }
        }
        match found {
            Some(inner) => text = inner,
            None => return Ok(None),
        }
    }
    if text.starts_with('"') {
        return Ok(Cursor::new(text).string("")?.map(|text| text.plain().into_owned()));
    }
    Ok((text != "null").then(|| text.to_owned()))
}

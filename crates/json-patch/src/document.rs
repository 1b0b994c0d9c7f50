//! Document: an object, and what patches made of it.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use bytestring::ByteString;
use gatepost_json::{self as json, Cursor, JsonError, JsonReadError, MAX_DEPTH, Rope};

use crate::{
    apply::Application,
    children::Walk,
    difference::{self, Changes},
    node::{Child, Children, Node, NodeId, Piece, Value},
    operation::{OperationFault, PatchError, json_error},
    patch::Patch,
    text::{Span, Text},
    tree::{Tree, Writer},
};

/// Limits of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Bytes that the `copy` operations of one patch may add together, counted as kube-apiserver does
    /// (`JSONPatchMaxCopyBytes`, for which it has no flag).
    pub copied: usize,
    /// Bytes of the patched object.
    pub object: usize,
    /// Bytes of memory that opening parts of the object may take.
    pub held: usize,
}

impl Default for PatchLimits {
    /// Limits of a kube-apiserver: it copies no more, and its clients may send no larger objects. Memory has no bound.
    fn default() -> Self {
        Self { copied: 3 << 20, object: 3 << 20, held: usize::MAX }
    }
}

/// A JSON object as it arrived, with all patches applied to it so far. It never changes: [`Document::patched`] makes a new
/// one, which shares the bytes, so that one that does not apply does no harm.
#[derive(Clone, Debug)]
pub struct Document {
    pub(super) tree: Tree,
    rope: Rope,
}

impl Document {
    /// The object that a rope is, and is checked to be: one pass over it. Where it lies in several pieces they are joined
    /// to be read; patched objects still are slices of the pieces.
    ///
    /// # Errors
    /// [`PatchError::NotAnObject`].
    pub fn new(object: Rope) -> Result<Self, PatchError> {
        Self::of(object, false)
    }

    /// The same of a rope that is known to be JSON: it is not checked once more.
    ///
    /// # Errors
    /// As [`Document::new`], as far as what is wrong is found.
    pub fn checked(object: Rope) -> Result<Self, PatchError> {
        Self::of(object, true)
    }

    fn of(object: Rope, is_checked: bool) -> Result<Self, PatchError> {
        let not_an_object = |at, what| PatchError::NotAnObject(JsonError::new(at, what));
        if u32::try_from(object.len()).is_err() {
            return Err(not_an_object(0, "it has more than 4 GiB"));
        }
        let pieces = object.contiguous(0..object.len()).is_none().then(|| object.clone());
        let text = object.copy_of(0..object.len());
        let text = ByteString::try_from(text).map_err(|_| not_an_object(0, "it is not UTF-8"))?;
        if !json::is_object(&text) {
            return Err(not_an_object(0, "it is something else"));
        }
        let tree = Tree::new(Text::arrived(text, pieces), is_checked);
        let tree = tree.map_err(|error| PatchError::NotAnObject(json_error(error, 0)))?;
        Ok(Self { tree, rope: object })
    }

    /// The object's bytes: slices of what arrived and of the patches, and small new pieces. To be written as they are
    /// ([`Rope::chunks`]), or joined once ([`Rope::copy_of`]).
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// The document with a patch applied to it.
    ///
    /// # Errors
    /// [`PatchError`] names the operation that does not apply, or the limit that the patched object is beyond.
    pub fn patched(&self, patch: &Patch, limits: PatchLimits) -> Result<Self, PatchError> {
        self.patched_unless(patch, limits, None)
    }

    /// The same, for as long as somebody waits for it: it ends soon after `cancelled` is set.
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
        tree.weight.bound(limits.held);
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
            tree.weight.take(rope.len()).map_err(|_| PatchError::NoRoom)?;
            json::value(&rope.copy_of(0..rope.len())).map_err(|_| PatchError::TooDeep)?;
        }
        Ok(Self { tree, rope })
    }

    /// One JSON Patch that makes of the object as it arrived what it is now, whatever patches led there: each place that
    /// differs, once, or what is around it where that is shorter. `None` where nothing differs.
    ///
    /// It follows from the two objects and from which parts of them patches touched; neither from how long anything took
    /// nor from how operations were spread over patches.
    pub fn difference(&self) -> Option<Rope> {
        Some(self.changes()?.written())
    }

    /// The same, before it is written: how long it is can be known before there is room for it.
    pub fn changes(&self) -> Option<Changes<'_>> {
        difference::of(&self.tree)
    }

    /// Fields that say which object this is, and that the patches have changed.
    pub fn changed_identity(&self) -> Vec<IdentityField> {
        changed(&self.tree)
    }

    /// Bytes of memory that are held besides the bytes that arrived and the patches' texts: what patches have touched, at
    /// most [`Document::outline`], copies that were written anew, and the object itself where it arrived in several pieces.
    pub fn held(&self) -> usize {
        Self::held_by(&self.tree)
    }

    pub(super) fn held_by(tree: &Tree) -> usize {
        let nodes: usize = tree.nodes.iter().map(Node::held).sum();
        nodes + tree.texts.iter().map(Text::held).sum::<usize>()
    }

    /// The most bytes of memory that are held of an object of so many bytes before anything is patched.
    pub const fn outline(len: usize) -> usize {
        len / 8
    }
}

// Identity: the fields by which an object is known, and whether patches have changed them.
//
// kube-apiserver's webhook code compares none of them; its next steps, decoding the object and validating its
// metadata, refuse most such changes for everybody. Here the hook that made the change is known.

/// A field by which an object is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityField {
    /// The object itself is no JSON object any more.
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

/// The first node of every tree is its first root.
const ROOT: NodeId = 0;

pub(super) fn changed(tree: &Tree) -> Vec<IdentityField> {
    if !tree.node(tree.root).is_object() {
        return vec![IdentityField::Root];
    }
    let changed = |field: &IdentityField| {
        let path = field.path();
        let before = tree.node(ROOT).span;
        match tree.root {
            ROOT => tree.differs(ROOT, path),
            root => tree.said_in(before, path) != tree.said(Value::Open(root), path),
        }
    };
    IdentityField::ALL.into_iter().filter(changed).collect()
}

impl Tree {
    /// Does what stands at `path` differ in a container that stands where it was?
    fn differs(&self, id: NodeId, path: &[&str]) -> bool {
        let (Some((key, rest)), Children::Object(_)) = (path.split_first(), &self.node(id).children) else {
            return false;
        };
        let Some(child) = self.touched(id, key) else {
            // In a run, and so not touched; or removed, and set aside.
            return self.untouched(id, key).is_none() && self.said_in(self.node(id).span, path).is_some();
        };
        let text = self.node(id).span.text;
        let before = self.said_in(self.node(id).span, path);
        match (child.value, child.was) {
            (Some(Value::Open(inner)), Some(was)) if self.is_as_it_was(text, Value::Open(inner), was) => {
                if rest.is_empty() { false } else { self.differs(inner, rest) }
            }
            (Some(value), _) => before != self.said(value, rest),
            (None, _) => before.is_some(),
        }
    }

    /// Text at `path` in a value, as it is written; `None` where nothing or `null` stands there.
    fn said(&self, value: Value, path: &[&str]) -> Option<String> {
        let id = match value {
            Value::Null(_) => return None,
            Value::Raw(span) => return self.said_in(span, path),
            Value::Open(id) => id,
        };
        let Some((key, rest)) = path.split_first() else { return Some("a container".into()) };
        if !self.node(id).is_object() {
            return None;
        }
        match self.touched(id, key) {
            Some(child) => self.said(child.value?, rest),
            None => self.said_in(self.untouched(id, key)?, rest),
        }
    }

    /// Text at `path` in a slice of a text.
    fn said_in(&self, span: Span, path: &[&str]) -> Option<String> {
        said_in(self.str(span), path).ok().flatten()
    }

    /// The value of the member of that key, if it is in a run.
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

    /// The member of that key, if it stands alone.
    fn touched(&self, id: NodeId, key: &str) -> Option<&Child> {
        let is_it = |child: &&Child| (child.value.is_some() || child.was.is_some()) && self.key(child.key) == key;
        let children = self.node(id).all_pieces().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Run(_) => None,
        });
        children.filter(is_it).last()
    }
}

/// Text at `path` in a text. Strings as they read, anything else as it is written.
fn said_in(mut text: &str, path: &[&str]) -> Result<Option<String>, JsonReadError> {
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

//! Document: an object, and what patches made of it.

use std::sync::{Arc, atomic::AtomicBool};

use bytestring::ByteString;

use super::{
    Changes, OperationFault, Patch, PatchError, PatchLimits,
    apply::Application,
    difference,
    error::json_error,
    identity::{self, IdentityField},
    node::Node,
    text::Text,
    tree::{Tree, Value},
    write::Writer,
};
use gatepost_json::{self as json, JsonError, MAX_DEPTH, Rope};

/// A JSON object as it arrived, with all patches applied to it so far. It never changes: [`Document::patched`] makes a new
/// one, which shares the bytes, so that one that does not apply does no harm.
#[derive(Clone, Debug)]
pub struct Document {
    tree: Tree,
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
        identity::changed(&self.tree)
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

    #[cfg(test)]
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The most bytes of memory that are held of an object of so many bytes before anything is patched.
    pub const fn outline(len: usize) -> usize {
        len / 8
    }
}

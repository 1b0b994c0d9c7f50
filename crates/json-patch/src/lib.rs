//! JSON Patch (RFC 6902) on the bytes of an object, with the meaning of the library that kube-apiserver uses
//! (`gopkg.in/evanphx/json-patch.v4`). Pure.
//!
//! A [`Document`] is an object as it arrived and what patches made of it. Paths are located by scanning; only
//! containers on a path are opened, and of an opened one only the children that were asked for stand alone. Everything
//! else stays a slice of what arrived, and the result is a rope of such slices and the few new pieces. Nothing here
//! recurses.
//!
//! ```
//! use gatepost_json::Rope;
//! use gatepost_json_patch::{Document, PatchLimits, Patch};
//!
//! let object = Rope::new([r#"{"kind":"Pod","metadata":{"name":"a"}}"#.into()]);
//! let patch = Patch::parse(r#"[{"op":"add","path":"/metadata/labels","value":{"by":"us"}}]"#.into())?;
//! let patched = Document::new(object)?.patched(&patch, PatchLimits::default())?;
//! let bytes = patched.rope().copy_of(0..patched.rope().len());
//! assert_eq!(bytes, r#"{"kind":"Pod","metadata":{"name":"a","labels":{"by":"us"}}}"#);
//! # Ok::<(), gatepost_json_patch::PatchError>(())
//! ```

mod apply;
mod array;
mod copy;
mod depth;
mod difference;
mod document;
mod equal;
mod error;
mod fields;
mod identity;
mod node;
mod object;
mod operation;
mod outline;
mod pointer;
mod repeats;
mod run;
mod text;
mod tree;
mod weight;
mod write;

pub use self::{
    difference::Changes,
    document::Document,
    error::{OperationFault, PatchError},
    fields::TouchedFields,
    identity::IdentityField,
    operation::{OperationKind, Patch},
};

/// Operations of one patch. kube-apiserver's limit for patches of its clients; for those of webhooks it has none.
pub const MAX_OPERATIONS: usize = 10_000;

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

#[cfg(test)]
mod tests;

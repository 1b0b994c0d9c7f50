//! JSON Patch (RFC 6902) on the bytes of an object, with the semantics of the library that kube-apiserver uses.
//!
//! A [`Document`] is an original object with the patches applied to it. Paths are located by scanning. Only containers
//! on a path are opened, and in an opened container only the children that an operation names are separated. Everything
//! else stays a slice of the original, and the result is a rope of such slices and a few new pieces. Nothing recurses.
//!
//! ```
//! use gatepost_json::Rope;
//! use gatepost_json_patch::{Document, PatchLimits, Patch};
//!
//! let object = Rope::new([r#"{"kind":"Pod","metadata":{"name":"a"}}"#.into()]);
//! let patch = Patch::parse(r#"[{"op":"add","path":"/metadata/labels","value":{"by":"us"}}]"#.into())?;
//! let patched = Document::new(object)?.patched(&patch, PatchLimits::default())?;
//! let bytes = patched.rope().to_bytes();
//! assert_eq!(bytes, r#"{"kind":"Pod","metadata":{"name":"a","labels":{"by":"us"}}}"#);
//! # Ok::<(), gatepost_json_patch::PatchError>(())
//! ```
//!
//! JSON Merge Patch and strategic merge patches are not supported. The upstream library is
//! `gopkg.in/evanphx/json-patch.v4`. This crate copies its departures from RFC 6902, which the files `apply` and
//! `operation` list.

mod apply;
mod children;
mod difference;
mod document;
mod fields;
mod node;
mod operation;
mod patch;
mod text;
mod tree;

pub use self::{
    difference::Changes,
    document::{Document, IdentityField, PatchLimits},
    fields::TouchedFields,
    operation::{MAX_OPERATIONS, OperationFault, OperationKind, OperationLabel, PatchError},
    patch::Patch,
};

#[cfg(test)]
mod tests;

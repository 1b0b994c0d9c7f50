//! Schema: the written form of our own kinds as Rust types, and the CustomResourceDefinitions that they make.
//!
//! A cluster that stores our documents checks them by what [`definitions`] says, before any replica reads them: the
//! shape by an OpenAPI schema, and by rules in CEL what a shape cannot say. The check beside this module stays the
//! last word, because it also sees certificates, other documents and what takes more than a rule. Tests hold that both
//! know the same keys and the same words.
//!
//! Each type is one map as people write it; its doc comments are the descriptions that `kubectl explain` prints.

pub mod configuration;
mod definition;
pub mod hook;
pub mod initializers;
pub mod status;
pub mod words;

pub use self::definition::{GROUP, VERSION, definitions};

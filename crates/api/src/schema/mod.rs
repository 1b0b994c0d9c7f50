//! Schema: the written form of our own kinds as Rust types, and the CustomResourceDefinitions made from them.
//!
//! A cluster that stores our documents checks them against [`definitions`] before any replica reads them: an OpenAPI
//! schema checks their shape, and CEL rules check what a schema cannot express. The check in `crates/config` is
//! authoritative, because it also checks certificates, other documents, and what CEL cannot express. Tests compare the
//! keys and words of both.
//!
//! Each type is one map as people write it. Its doc comments are the descriptions that `kubectl explain` prints.

pub mod configuration;
mod definition;
pub mod hook;
pub mod initializers;
pub mod status;
pub mod words;

pub use self::definition::{GROUP, VERSION, definitions};

//! Wire formats of reviews, answers and initializer messages. Does no I/O and reads no clock.

/// Generated from `proto/`; `tests/documents/proto_is_current.rs` generates it again and compares.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
pub mod pb;

/// `FileDescriptorSet` of the protocol and its imports, for gRPC server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("pb/descriptors.bin");

pub use gatepost_json as json;

pub mod answer;
pub mod encodings;
pub mod envelope;
pub mod groups;
pub mod http_answer;
pub mod inbound;
pub mod initializers;
pub mod json_view;
mod labels;
pub mod metadata;
pub mod names;
pub mod object_head;
pub mod outbound;
pub mod protobuf_object;
pub mod request;
pub mod review_json;
mod user;
mod walk;

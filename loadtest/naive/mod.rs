//! The naive reference: the sidecar as most people would write it.
//!
//! Stock tonic on both sides, `Vec<u8>` objects, one channel per hook, and per hook the message cloned and encoded
//! again by prost. It is kept honest: the same allocator, TCP_NODELAY, 1 MiB windows, one `current_thread` runtime,
//! no rules, no metrics, no audit. Everything it does not do is work the product has to make up for.

mod sidecar;
mod start;

/// Generated with `Vec<u8>` for `bytes`; `tests/documents/proto_is_current.rs` regenerates and compares.
#[allow(missing_docs, dead_code, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
mod pb;

pub(crate) use start::{Settings, run};

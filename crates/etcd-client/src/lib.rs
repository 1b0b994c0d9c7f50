//! Client of an etcd cluster, for the reads and writes of Gatepost.
//!
//! All endpoints belong to one cluster: a call tries them in turn, within one deadline. Reads are linearizable: a
//! response contains every earlier write, whichever member sends it.

mod access;
mod ask;
mod client;
mod error;
mod login;
mod member;
/// Generated from `proto/`; `tests/documents/proto_is_current.rs` regenerates the files and compares them.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
mod pb;

pub use self::{
    access::{EtcdAccess, Login, TlsFiles},
    client::{EtcdClient, Pair, PrefixContents, PrefixSummary, PrefixWatch},
    error::EtcdError,
};

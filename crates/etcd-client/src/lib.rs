//! Etcd: a client of an etcd cluster, for what Gatepost reads and writes there.
//!
//! Several endpoints are one cluster: a call asks them in turn, within one deadline. Reads are linearizable, so whoever
//! answers knows everything that was written before.

mod access;
mod ask;
mod client;
mod error;
mod login;
mod member;
/// Generated from `proto/`; `tests/documents/proto_is_current.rs` regenerates and compares.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
mod pb;

pub use self::{
    access::{EtcdAccess, Login, TlsFiles},
    client::{EtcdClient, Glance, Pair, Ranged},
    error::EtcdError,
};

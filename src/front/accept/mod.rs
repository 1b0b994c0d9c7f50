//! Sockets and the connections that come in on them: accept, sniff, handshake, hand to a worker, drain.

pub(crate) mod bound;
pub(crate) mod clients;
pub(crate) mod handshake;
pub(crate) mod identity;
pub(crate) mod life;
pub(crate) mod linger;
pub mod listen;
pub(crate) mod share;
pub mod shared_port;
pub(crate) mod sniff;
pub mod worker;

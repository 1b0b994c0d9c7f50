//! Bytes: bytes of hostile peers.

pub mod caller;
pub mod http1;
pub mod http2;
pub mod peer;
pub mod reviews;

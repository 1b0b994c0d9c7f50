//! Bytes: what hostile peers write.

pub mod caller;
pub mod http1;
pub mod http2;
pub mod peer;
pub mod reviews;

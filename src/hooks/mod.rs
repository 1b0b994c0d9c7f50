//! How a hook is called: one warm HTTP/2 connection per worker and endpoint, shared bytes out, answers in.

pub mod channel;

pub use channel::Channel;

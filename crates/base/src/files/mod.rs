//! Files: reads of this machine's files while reviews are served. Nothing waits for one without end, and none fills the
//! memory.

mod blocking_reads;
pub mod regular;

pub use blocking_reads::{AT_ONCE, BlockingReads, Unread};

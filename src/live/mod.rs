//! What is in force now: a snapshot with its live hooks, and how fresh it is.

pub mod current;
pub mod generation;

pub use current::Current;
pub use generation::{Generation, LiveHook, Rotation};

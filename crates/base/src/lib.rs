//! Building blocks of a long-running server: clocks, a memory budget, offloaded work, and reads of files.
//!
//! ```
//! use gatepost_base::memory::{MemoryBudget, Purpose};
//!
//! let budget = MemoryBudget::new(1 << 20);
//! let review = budget.reserve(Purpose::Review, 64 << 10).expect("the budget is empty");
//! assert_eq!(budget.held(), 64 << 10);
//! drop(review);
//! assert_eq!(budget.held(), 0);
//! ```
//!
//! This crate does not know what the bytes, the work or the files are. It has no configuration, logs nothing and counts
//! nothing. It follows no upstream.
#![forbid(unsafe_code)]

pub mod clock;
pub mod files;
pub mod memory;
pub mod offload;
pub mod throttle;

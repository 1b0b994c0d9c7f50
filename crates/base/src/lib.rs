//! Building blocks that know nothing of admission: time, the memory budget, work beside the workers, reads of files.
#![forbid(unsafe_code)]

pub mod clock;
pub mod files;
pub mod memory;
pub mod offload;
pub mod throttle;

//! Reload: one load after another. What is kept of the one before, and which state of each document counts.

pub(crate) mod arbitration;
pub(crate) mod checked_file;
pub(crate) mod kept;
pub(crate) mod load_cache;
pub(crate) mod relaxation;

//! Reload: keeps results from load to load, selects the state of each document, and detects relaxations.

pub(crate) mod arbitration;
pub(crate) mod checked_file;
pub(crate) mod load_cache;
pub(crate) mod relaxation;

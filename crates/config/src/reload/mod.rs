//! Reload: one load after another. It owns the results kept from load to load, and the choice of each document's state.

pub(crate) mod arbitration;
pub(crate) mod checked_file;
pub(crate) mod load_cache;
pub(crate) mod relaxation;

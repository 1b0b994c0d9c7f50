//! Where configuration is read from.

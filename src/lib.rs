//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! The map, in layer order; a layer uses only the layers above it in this list (`tests/layers.rs` keeps that true).
#![forbid(unsafe_code)]

pub mod model;
pub mod snapshot;
pub mod wire;

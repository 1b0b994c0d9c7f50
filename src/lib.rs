//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! A review passes through [`front`], [`review`] and [`hooks`], a configuration through [`source`], [`rotate`] and
//! [`live`]. `CONTRIBUTING.md` describes the modules of this crate and the other crates.
#![forbid(unsafe_code)]

pub mod commands;
pub mod front;
pub mod hooks;
pub mod live;
pub mod review;
pub mod rotate;
pub mod runtime;
pub mod source;
pub mod telemetry;

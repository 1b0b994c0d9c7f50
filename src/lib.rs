//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! A review passes [`front`], [`review`] and [`hooks`]; a configuration passes [`source`], [`rotate`] and [`live`].
//! `CONTRIBUTING.md` has the map of this folder and of the crates beside it.
#![forbid(unsafe_code)]

pub mod commands;
pub mod front;
pub mod hooks;
pub mod live;
pub mod replicas;
pub mod review;
pub mod rotate;
pub mod runtime;
pub mod source;
pub mod telemetry;
pub mod watch;

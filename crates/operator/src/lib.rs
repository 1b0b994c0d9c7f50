//! Commands that only talk to clusters, replicas and files. They know nothing of the serving path: a change of one builds
//! no sidecar.
#![forbid(unsafe_code)]

pub mod audit;
pub mod certificates;
pub mod command;
pub mod crd;
pub mod health;
pub mod log_flags;
pub mod service;

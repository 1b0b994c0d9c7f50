//! Commands that only use clusters, replicas and files. They do not depend on the serving path, so that a changed
//! command rebuilds no sidecar.
#![forbid(unsafe_code)]

pub mod audit;
pub mod certificates;
pub mod command;
pub mod crd;
pub mod health;

//! Reports of this replica: created from the state in force, and published.

mod publishing;
mod report;

pub use gatepost_replicas::*;

pub use self::{
    publishing::{Publishing, StatusPlace},
    report::replica_report,
};

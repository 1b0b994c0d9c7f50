//! Replicas: reports of the sidecars, their readers, and conclusions from them.
//!
//! ```text
//! Current ──> Report ──> /configz                          asked by `status` and `drain` --admin
//!               └──────> Publisher (etcd lease key) ─────> read by `status` and `drain` --source etcd
//!                        Publisher (objects' status) ────> read by `status` and `drain` --source kubernetes
//! Reports ──> wait: has every live replica that revision? may that endpoint be switched off?
//! ```

pub mod ask;
mod entry;
mod exceptions;
pub mod objects;
pub mod place;
pub mod publisher;
pub mod publishing;
pub mod read;
pub mod replica;
pub mod report;
mod text;
pub mod wait;

pub use ask::AdminUrl;
pub use objects::StatusObjects;
pub use place::StatusPlace;
pub use publisher::Publisher;
pub use publishing::Publishing;
pub use replica::{PublishStatus, Replica};
pub use report::{HookReport, HookStanding, InitializerReport, ReplicaReport};
pub use wait::{Progress, ReplicasSeen, Silent};

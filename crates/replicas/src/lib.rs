//! Reports of replicas: their schema, their publishers and readers, and conclusions from them.
//!
//! ```text
//! ReplicaReport ──> /configz                               read by `status` and `drain` --admin
//!         └───────> Publisher (etcd lease key) ──────────> read by `status` and `drain` --source etcd
//!                   Publisher (objects' status) ─────────> read by `status` and `drain` --source kubernetes
//! ReplicasSeen ──> wait: a revision is in force on every live replica, or a hook has drained
//! ```
#![forbid(unsafe_code)]

mod client;
mod objects;
mod publisher;
mod report;
mod status;
pub mod wait;

/// Report of one hook. `/configz` and the status of objects use the same schema.
pub use gatepost_api::schema::status::{HookState as HookStanding, HookStatus as HookReport};

pub use self::{
    client::{AdminUrl, authorities, read_all, read_etcd, read_objects},
    objects::{FINALIZER, StatusObjects},
    publisher::{LeaseKey, PublishStatus, Publisher, Replica, TTL},
    report::{
        HeldReport, InitializerReport, KeptRequestReport, MAX_TEXT_CHARS, PluginReport, ReadFailure,
        RejectedConfiguration, ReplicaReport, UnenforcedReport, short, time,
    },
    wait::{Progress, ReplicasSeen, ReportError},
};

//! Reports of the sidecars: their schema, where they are published, their readers, and conclusions from them.
//!
//! ```text
//! ReplicaReport ──> /configz                               asked by `status` and `drain` --admin
//!         └───────> Publisher (etcd lease key) ──────────> read by `status` and `drain` --source etcd
//!                   Publisher (objects' status) ─────────> read by `status` and `drain` --source kubernetes
//! ReplicasSeen ──> wait: has every live replica that revision? may that endpoint be switched off?
//! ```
#![forbid(unsafe_code)]

mod client;
mod objects;
mod publisher;
mod report;
mod status;
pub mod wait;

/// Report of one hook: `/configz` and the status of objects have the same schema.
pub use gatepost_api::schema::status::{HookState as HookStanding, HookStatus as HookReport};

pub use self::{
    client::{AdminUrl, ask_all, authorities, read_etcd, read_objects},
    objects::{FINALIZER, StatusObjects},
    publisher::{LeaseKey, PublishStatus, Publisher, Replica, TTL},
    report::{
        HeldReport, InitializerReport, MAX_TEXT_CHARS, ReadFailure, RejectedConfiguration, ReplicaReport, short, time,
    },
    wait::{Progress, ReplicasSeen, Silent},
};

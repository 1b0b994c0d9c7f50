//! Client of a Kubernetes apiserver.
//!
//! kube-rs does connections and credentials (kubeconfigs, client certificates, token files, exec plugins). This crate
//! adds requests, lists at one revision, watches and errors. Configuration stays [`serde_json::Value`], as types of our
//! own would drop the fields they do not know. Of followed objects only the needed fields are read ([`FollowHandler`]).

mod access;
mod client;
mod discovery;
mod error;
mod follow;
mod lease;
mod list;
mod object;
pub mod plugin;
mod reloading_client;
mod reviews;
mod watch;

pub use self::{
    access::{ApiEndpoint, KubeAccess},
    client::{KubeClient, object_path},
    discovery::Discoverer,
    error::KubeError,
    follow::{FailureLog, FollowEvent, FollowHandler, FollowTarget, follow},
    lease::{LeaderElection, LeaseObserver, lease_spec, leases_path, micro_time, patch_lease, release_lease},
    list::{List, ObjectIdentity},
    object::{MANAGED_BY, RawAnswer, created, is_our_own, webhook_suffix},
    reloading_client::ReloadingClient,
    watch::{Watch, WatchedChange},
};

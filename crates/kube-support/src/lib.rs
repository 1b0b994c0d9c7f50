//! Kube: a client of a Kubernetes apiserver, for what Gatepost reads there.
//!
//! The package does connections and credentials (kubeconfigs, client certificates, token files, exec plugins); what is
//! asked, how a list is read as one, and what a failure is called, is ours. Configuration stays [`serde_json::Value`]: we
//! hand on what people wrote, and types of our own would drop the fields we do not know. Of objects that are only followed
//! no more is read than is needed ([`FollowHandler`]).

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
    follow::{FollowEvent, FollowHandler, FollowTarget, follow},
    lease::{LeaderElection, LeaseObserver, lease_spec, leases_path, micro_time, patch_lease, release_lease},
    list::{List, ObjectIdentity},
    object::{MANAGED_BY, RawAnswer, created, is_our_own, our_webhooks},
    reloading_client::ReloadingClient,
    watch::{Watch, WatchedChange},
};

//! Kube: a client of a Kubernetes apiserver, for what Gatepost reads there.
//!
//! The package does connections and credentials (kubeconfigs, client certificates, token files, exec plugins); what is
//! asked, how a list is read as one, and what a failure is called, is ours. Configuration stays [`serde_json::Value`]: we
//! hand on what people wrote, and types of our own would drop the fields we do not know. Of objects that are only followed
//! no more is read than is needed ([`FollowHandler`]).

mod access;
mod access_review;
mod client;
mod discovery;
mod endpoint;
mod error;
mod follow;
mod list_text;
mod metadata;
mod object_text;
mod one_object;
mod own;
mod pages;
pub mod plugin;
mod reloading_client;
mod token_review;
mod watch;

pub use self::{
    access::KubeAccess,
    client::{KubeClient, object_path},
    discovery::Discoverer,
    endpoint::ApiEndpoint,
    error::KubeError,
    follow::{FollowEvent, FollowHandler, FollowTarget, follow},
    metadata::created,
    object_text::ObjectIdentity,
    one_object::RawAnswer,
    own::{MANAGED_BY, is_our_own, our_webhooks},
    pages::List,
    reloading_client::ReloadingClient,
    watch::{Watch, WatchedChange},
};

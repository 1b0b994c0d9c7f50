//! Kube: a client of a Kubernetes apiserver, for what Gatepost reads there.
//!
//! The package does connections and credentials (kubeconfigs, client certificates, token files, exec plugins); what is
//! asked, how a list is read as one, and what a failure is called, is ours. Objects stay [`serde_json::Value`]: we hand
//! on what people wrote, and types of our own would drop the fields we do not know.

mod access;
mod access_review;
mod client;
mod discovery;
mod endpoint;
mod error;
mod metadata;
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
    metadata::{MetadataPage, created},
    one_object::RawAnswer,
    own::{MANAGED_BY, is_our_own, our_webhooks},
    pages::List,
    reloading_client::ReloadingClient,
    watch::{Watch, WatchedChange},
};

//! Read: reports of replicas from etcd, and from the objects of a cluster.

use std::time::SystemTime;

use super::{ReplicaReport, ReplicasSeen, Silent, entry, objects::error_chain};
use crate::{
    etcd::{EtcdClient, EtcdError},
    kube,
    source::kubernetes::configurations,
};

/// Every replica whose key is there: the live ones, and those that died less than [`TTL`](super::publisher::TTL) ago.
///
/// # Errors
/// [`EtcdError`] of the read.
pub async fn all(client: &EtcdClient, prefix: &str) -> Result<ReplicasSeen, EtcdError> {
    let mut seen = ReplicasSeen::default();
    for pair in client.get_prefix(prefix).await?.pairs {
        match serde_json::from_slice(&pair.value) {
            Ok(report) => seen.reports.push(report),
            Err(error) => seen.silent.push(Silent {
                place: String::from_utf8_lossy(&pair.key).into_owned(),
                why: format!("its value is not a report of a replica: {error}"),
            }),
        }
    }
    seen.reports.sort_by(|one: &ReplicaReport, other| one.replica.cmp(&other.replica));
    Ok(seen)
}

/// Every replica with entries in configuration objects that it has renewed lately.
///
/// # Errors
/// Message with the cause and, without any object, what to do.
pub async fn objects(client: &kube::KubeClient, now: SystemTime) -> Result<ReplicasSeen, String> {
    let objects = client.list(&configurations()).await.map_err(|error| error_chain(&error))?.items;
    match objects.is_empty() {
        true => Err(
            "the cluster has no AdmissionControlConfiguration, in whose status replicas report: create one, which may \
                 be without hooks; or ask the replicas, with --admin URL"
                .to_owned(),
        ),
        false => Ok(entry::seen(&objects, now)),
    }
}

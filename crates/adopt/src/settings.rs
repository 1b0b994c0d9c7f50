//! Settings of adoption, and requests for its leases.

use std::time::Duration;

use gatepost_api::registration::is_our_webhook;
use gatepost_kube_support::{KubeClient, KubeError, is_our_own, leases_path, micro_time};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{AdoptionScope, Claims, LEADER_LEASE, Lease, lease_name, replica_lease};

/// Timeout of the first write of this replica's lease, which delays the first read.
const FIRST_LEASE_TIMEOUT: Duration = Duration::from_millis(300);

/// Settings of adoption: the webhooks to take over, and the leases through which replicas coordinate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionSettings {
    /// Configurations to take over unless a command overrides this.
    pub scope: AdoptionScope,
    /// Namespace of the leases.
    pub namespace: String,
    /// Name of this replica.
    pub replica: String,
    /// Name of the registrations of this Gatepost; `None` if the cluster has no other Gatepost.
    pub registration: Option<String>,
}

impl AdoptionSettings {
    /// Returns the API path of the leases.
    pub fn leases(&self) -> String {
        leases_path(&self.namespace)
    }

    /// Returns the API path of the leader's lease.
    pub fn leader_lease(&self) -> String {
        format!("{}/{LEADER_LEASE}", self.leases())
    }

    /// Returns the API path of the lease of the replica with that holder identity.
    pub fn replica_lease(&self, holder: &str) -> String {
        format!("{}/{}", self.leases(), lease_name(holder))
    }

    /// Reads the leases.
    ///
    /// # Errors
    /// [`KubeError`] of the list request.
    pub async fn read_leases(&self, client: &KubeClient) -> Result<Vec<Lease>, KubeError> {
        Ok(client.list(&self.leases()).await?.items.iter().filter_map(Lease::of).collect())
    }

    /// Reads the leases. Before that, writes this replica's lease unless it is `registered`. A failed write does not
    /// fail the read, because the write may wait for our own verdict. The leader then does not wait for this replica,
    /// so the replica calls announced webhooks without a probe.
    ///
    /// # Errors
    /// [`KubeError`] of the list request.
    pub async fn register_and_read_leases(
        &self,
        client: &KubeClient,
        holder: &str,
        registered: &mut bool,
    ) -> Result<Vec<Lease>, KubeError> {
        if !std::mem::replace(registered, true) {
            let writing = async {
                self.write_lease(client, holder, None).await?;
                self.create_leader_lease(client).await
            };
            match timeout(FIRST_LEASE_TIMEOUT, writing).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, fix = error.fix(), "cannot write this replica's lease; it is written later");
                }
                Err(_) => tracing::warn!("this replica's lease is not written in time; it is written later"),
            }
        }
        self.read_leases(client).await
    }

    /// Renews this replica's lease with its claims. `None` marks the replica as starting.
    ///
    /// # Errors
    /// [`KubeError`] of the write.
    pub async fn write_lease(
        &self,
        client: &KubeClient,
        holder: &str,
        claims: Option<&Claims>,
    ) -> Result<(), KubeError> {
        client.apply(&self.replica_lease(holder), &replica_lease(holder, &micro_time(), claims)).await
    }

    /// Creates the leader's lease if there is none.
    ///
    /// # Errors
    /// [`KubeError`] of the write.
    pub async fn create_leader_lease(&self, client: &KubeClient) -> Result<(), KubeError> {
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEADER_LEASE}});
        client.apply(&self.leader_lease(), &lease).await
    }

    /// Returns true if this webhook configuration registers this Gatepost, and not another one. A configuration with
    /// our label that has only webhooks of others does not: anybody may set the label.
    pub fn is_our_own(&self, item: &Value) -> bool {
        let webhooks = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
        let is_ours = |entry: &Value| entry["name"].as_str().is_some_and(is_our_webhook);
        is_our_own(item)
            && (webhooks.is_empty() || webhooks.iter().any(is_ours))
            && self.registration.as_ref().is_none_or(|name| item["metadata"]["name"] == **name)
    }
}

//! Leadership: the lease by which replicas agree which of them works on marked objects.
//!
//! It is held as that of adoption is: whoever has not renewed it for [`REPLICA_LEASE_DURATION`] is taken for dead, by the clock of who looks.
//! Two that work for a moment do no harm: each of their changes is made for one version of its object.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    adopt::REPLICA_LEASE_DURATION,
    kube::{KubeClient, KubeError, micro_time},
};

/// Name of the lease.
const NAME: &str = "gatepost-initialize";
/// Interval at which its holder renews it.
pub(super) const RENEW: Duration = Duration::from_secs(5);
/// Longest time that its holder works on after the last renewal; less than the others wait.
pub(super) const WORKS_WITHIN: Duration = Duration::from_secs(10);

/// One replica's part in the agreement.
#[derive(Debug)]
pub(super) struct Leadership {
    leases: String,
    holder: String,
    /// The lease as it was seen last, and since when it has not changed.
    seen: Option<(String, Instant)>,
}

impl Leadership {
    /// That of this holder, by the lease in that namespace.
    pub(super) fn new(namespace: &str, holder: String) -> Self {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self { leases, holder, seen: None }
    }

    /// Renews the lease, or takes it where nobody alive has it. Does this replica lead?
    ///
    /// # Errors
    /// Why that cannot be found out.
    pub(super) async fn hold(&mut self, client: &KubeClient) -> Result<bool, KubeError> {
        let spec = json!({
            "holderIdentity": self.holder, "renewTime": micro_time(), "leaseDurationSeconds": REPLICA_LEASE_DURATION.as_secs(),
        });
        let Some(lease) = client.find(&self.leases, NAME).await? else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": spec,
            });
            return match client.create(&self.leases, &lease).await {
                Ok(_) => Ok(true),
                Err(KubeError::Unwritten { code: 409, .. }) => Ok(false),
                Err(error) => Err(error),
            };
        };
        let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (holder, version) = (text("/spec/holderIdentity"), text("/metadata/resourceVersion"));
        if holder != self.holder && !holder.is_empty() && !self.is_silent(version) {
            return Ok(false);
        }
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        match client.patch(&format!("{}/{NAME}", self.leases), "application/merge-patch+json", &patch).await {
            Ok(()) => Ok(true),
            Err(KubeError::Unwritten { code: 409, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Has the lease not changed for so long that its holder is dead?
    fn is_silent(&mut self, version: &str) -> bool {
        match &self.seen {
            Some((seen, since)) if seen == version => since.elapsed() >= REPLICA_LEASE_DURATION,
            _ => {
                self.seen = Some((version.to_owned(), Instant::now()));
                false
            }
        }
    }

    /// Gives the lease back, where this replica holds it.
    pub(super) async fn leave(&mut self, client: &KubeClient) -> Result<(), KubeError> {
        let Some(lease) = client.find(&self.leases, NAME).await? else { return Ok(()) };
        let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/spec/holderIdentity") != self.holder {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": text("/metadata/resourceVersion")}, "spec": {"holderIdentity": ""},
        });
        client.patch(&format!("{}/{NAME}", self.leases), "application/merge-patch+json", &patch).await
    }
}

#[cfg(test)]
mod tests;

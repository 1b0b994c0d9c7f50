//! Leases: leader election, and the time since a holder's last renewal.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{KubeClient, KubeError, client::unless_refused};

const MERGE_PATCH: &str = "application/merge-patch+json";

/// Returns the API path of the leases of this namespace.
pub fn leases_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Returns the current time in the format of leases. Replicas never compare it with their own clock.
pub fn micro_time() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// Returns the `spec` of a lease.
pub fn lease_spec(holder: &str, renewed: &str, duration: Duration) -> Value {
    json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration.as_secs()})
}

/// Writes a merge patch of a lease, which contains the resourceVersion that was read. Returns false if the lease has
/// changed since.
///
/// # Errors
/// [`KubeError`] of the write.
pub async fn patch_lease(client: &KubeClient, path: &str, patch: &Value) -> Result<bool, KubeError> {
    unless_refused(client.patch(path, MERGE_PATCH, patch).await, &[409])
}

/// Removes the holder of a lease that was read in this version, so that another replica can take it immediately.
///
/// # Errors
/// [`KubeError`] of the write.
pub async fn release_lease(client: &KubeClient, path: &str, version: &str) -> Result<(), KubeError> {
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}});
    client.patch(path, MERGE_PATCH, &patch).await
}

/// Renewals of leases as this process observes them, by its own clock: the clocks of other machines may be wrong.
#[derive(Debug, Default)]
pub struct LeaseObserver(BTreeMap<String, (String, Duration)>);

impl LeaseObserver {
    /// Records all leases read at `now`, as name and state. A renewal changes the state.
    pub fn observe(&mut self, now: Duration, states: impl IntoIterator<Item = (String, String)>) {
        let known = std::mem::take(&mut self.0);
        let observed = |(name, state): (String, String)| {
            let since = known.get(&name).filter(|(last, _)| *last == state).map_or(now, |(_, since)| *since);
            (name, (state, since))
        };
        self.0 = states.into_iter().map(observed).collect();
    }

    /// Returns the time since the lease was first observed in its present state; zero if it was never observed.
    pub fn since_renewal(&self, now: Duration, name: &str) -> Duration {
        self.0.get(name).map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }

    /// Returns the names of the leases observed last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Participation of one replica in the election of a leader by a lease. A holder that has not renewed the lease for its
/// duration counts as dead, by the clock of each observer.
#[derive(Debug)]
pub struct LeaderElection {
    leases: String,
    name: &'static str,
    holder: String,
    duration: Duration,
    opened: Instant,
    observer: LeaseObserver,
}

impl LeaderElection {
    /// Creates the election by the lease of this name and namespace, for this holder identity.
    pub fn new(namespace: &str, name: &'static str, holder: String, duration: Duration) -> Self {
        let (leases, observer) = (leases_path(namespace), LeaseObserver::default());
        Self { leases, name, holder, duration, opened: Instant::now(), observer }
    }

    /// Renews the lease, or takes it if its holder is dead. Returns true if this replica leads.
    ///
    /// # Errors
    /// [`KubeError`] of a request.
    pub async fn hold(&mut self, client: &KubeClient) -> Result<bool, KubeError> {
        let spec = lease_spec(&self.holder, &micro_time(), self.duration);
        let Some(lease) = client.find(&self.leases, self.name).await? else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}, "spec": spec,
            });
            return unless_refused(client.create(&self.leases, &lease).await, &[409]);
        };
        let (holder, version) = holder_and_version(&lease);
        if holder != self.holder && !holder.is_empty() && !self.is_expired(version) {
            return Ok(false);
        }
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        patch_lease(client, &self.path(), &patch).await
    }

    /// Releases the lease if this replica holds it.
    ///
    /// # Errors
    /// [`KubeError`] of a request.
    pub async fn leave(&mut self, client: &KubeClient) -> Result<(), KubeError> {
        let Some(lease) = client.find(&self.leases, self.name).await? else { return Ok(()) };
        let (holder, version) = holder_and_version(&lease);
        if holder == self.holder { release_lease(client, &self.path(), version).await } else { Ok(()) }
    }

    fn is_expired(&mut self, version: &str) -> bool {
        let now = self.opened.elapsed();
        self.observer.observe(now, [(self.name.to_owned(), version.to_owned())]);
        self.observer.since_renewal(now, self.name) >= self.duration
    }

    fn path(&self) -> String {
        format!("{}/{}", self.leases, self.name)
    }
}

fn holder_and_version(lease: &Value) -> (&str, &str) {
    let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/spec/holderIdentity"), text("/metadata/resourceVersion"))
}

#[cfg(test)]
mod tests;

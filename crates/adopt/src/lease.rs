//! Leases through which replicas coordinate, and the settings of adoption, which name them. An annotation of the leader's
//! lease has its announcement, and an annotation of each replica's lease lists the entries that the replica calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_api::registration::is_our_webhook;
use gatepost_kube_support::{KubeClient, KubeError, is_our_own, lease_spec, leases_path, micro_time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    AdoptionRequests, AdoptionScope, FightRecord,
    entry::short_digest,
    scope::{REQUESTS_ANNOTATION, to_json},
};

/// Name of the leader's lease.
pub const LEADER_LEASE: &str = "gatepost-adopt";
/// Duration of a replica's lease.
pub const REPLICA_LEASE_DURATION: Duration = Duration::from_secs(15);
/// Duration of the leader's lease, which it renews every second. After this time, another replica leads.
pub const LEADER_LEASE_DURATION: Duration = Duration::from_secs(6);
/// Maximum number of entries that can be taken over: the annotations of an object may have 256 KiB.
pub const MAX_ENTRIES: usize = 4096;
/// Maximum number of entries whose fights are recorded for the next leader.
pub const MAX_FIGHTS: usize = 100;
/// Maximum length of the annotation with the state of the entries, in bytes.
const MAX_STATUS_BYTES: usize = 96 << 10;

const ANNOUNCEMENT_ANNOTATION: &str = "gatepost.dev/announced";
const CLAIMS_ANNOTATION: &str = "gatepost.dev/calls";
const STATUS_ANNOTATION: &str = "gatepost.dev/webhooks";
const FIGHTS_ANNOTATION: &str = "gatepost.dev/fights";

/// Entries that replicas must call, whether or not they carry the mark yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AnnouncementJson", into = "AnnouncementJson")]
pub struct Announcement {
    /// Number of changes of the announcement.
    pub epoch: u64,
    /// [Ids](crate::EntryKey::id) of the entries.
    pub ids: BTreeSet<String>,
    /// Ids of other entries, which carried the mark a moment ago. A replica that starts also calls these; any
    /// other replica calls them for [`GRACE_PERIOD`](crate::GRACE_PERIOD).
    pub ending: BTreeSet<String>,
}

/// Announcement as JSON in a lease. Replicas of a former version read only `ids`, so `ids` includes the ending entries
/// that they must call.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct AnnouncementJson {
    epoch: u64,
    ids: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    ending: BTreeSet<String>,
}

impl From<AnnouncementJson> for Announcement {
    fn from(AnnouncementJson { epoch, mut ids, ending }: AnnouncementJson) -> Self {
        ids.retain(|id| !ending.contains(id));
        Self { epoch, ids, ending }
    }
}

impl From<Announcement> for AnnouncementJson {
    fn from(Announcement { epoch, ids, ending }: Announcement) -> Self {
        Self { epoch, ids: ids.union(&ending).cloned().collect(), ending }
    }
}

/// Entries that one replica calls, except those in their grace period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Epoch of the announcement that the replica has read.
    pub epoch: u64,
    /// [Ids](crate::EntryKey::id) of the entries.
    pub ids: BTreeSet<String>,
}

/// One lease as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// Name of the lease.
    pub name: String,
    /// resourceVersion of the lease.
    pub version: String,
    /// Holder identity: a replica's name and instance.
    pub holder: String,
    /// Renewal time by the holder's clock.
    pub renewed: String,
    annotations: Value,
}

impl Lease {
    /// Parses an object; returns `None` if it is not one of our leases.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let ours = name == LEADER_LEASE || name.strip_prefix(LEADER_LEASE).is_some_and(|rest| rest.starts_with('.'));
        ours.then(|| Self {
            name,
            version: text("/metadata/resourceVersion"),
            holder: text("/spec/holderIdentity"),
            renewed: text("/spec/renewTime"),
            annotations: object.pointer("/metadata/annotations").cloned().unwrap_or_default(),
        })
    }

    /// Returns true if this is the leader's lease.
    pub fn is_leader(&self) -> bool {
        self.name == LEADER_LEASE
    }

    /// Returns the name of the replica that holds the lease, for display.
    pub fn replica(&self) -> &str {
        self.holder.split('/').next().unwrap_or_default()
    }

    /// Returns the name of the lease, and a state that changes with its holder and renewal, not with other writes.
    pub(crate) fn state(&self) -> (String, String) {
        (self.name.clone(), format!("{} {}", self.holder, self.renewed))
    }

    /// Returns the announcement in the leader's lease.
    pub fn announcement(&self) -> Announcement {
        self.read(ANNOUNCEMENT_ANNOTATION)
    }

    /// Returns the claims of the replica; `None` while it starts.
    pub fn claims(&self) -> Option<Claims> {
        (!self.annotations[CLAIMS_ANNOTATION].is_null()).then(|| self.read(CLAIMS_ANNOTATION))
    }

    /// Returns the requests made by commands.
    pub fn requests(&self) -> AdoptionRequests {
        self.read(REQUESTS_ANNOTATION)
    }

    /// Returns the leader's records of fights and failures, by entry id.
    pub fn fights(&self) -> BTreeMap<String, FightRecord> {
        self.read(FIGHTS_ANNOTATION)
    }

    /// Returns the name, state and reason of each entry, as the leader wrote them.
    pub fn status(&self) -> Vec<[String; 3]> {
        self.read(STATUS_ANNOTATION)
    }

    /// Returns the value of an annotation; the default if it is absent or cannot be parsed.
    fn read<T: Default + for<'a> Deserialize<'a>>(&self, key: &str) -> T {
        self.annotations[key].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Returns the name of the lease of the replica with this holder identity. It contains a digest because it must be a
/// DNS name. Two processes never share a lease, even under one replica name, because each publishes its own claims.
pub fn lease_name(holder: &str) -> String {
    format!("{LEADER_LEASE}.{}", short_digest(holder))
}

/// Returns a replica's lease, to be applied. `claims` is `None` while the replica starts.
pub fn replica_lease(holder: &str, renewed: &str, claims: Option<&Claims>) -> Value {
    let annotations = claims.map_or_else(|| json!({}), |claims| json!({ CLAIMS_ANNOTATION: to_json(claims) }));
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease_name(holder), "annotations": annotations},
        "spec": lease_spec(holder, renewed, REPLICA_LEASE_DURATION),
    })
}

/// Returns a merge patch of the leader's lease: holder, announcement, state of each entry, fights. The apiserver
/// rejects it if the lease has changed since that version.
pub fn leader_lease(
    version: &str,
    holder: &str,
    renewed: &str,
    announcement: &Announcement,
    status: &[[String; 3]],
    fights: &BTreeMap<String, FightRecord>,
) -> Value {
    let mut status = status.to_vec();
    // The id of an ending entry is written twice.
    let room = MAX_STATUS_BYTES.saturating_sub(to_json(&announcement.ending).len());
    while !status.is_empty() && to_json(&status).len() > room {
        status.truncate(status.len() / 2);
    }
    let annotations = json!({
        ANNOUNCEMENT_ANNOTATION: to_json(announcement), STATUS_ANNOTATION: to_json(&status),
        FIGHTS_ANNOTATION: to_json(fights),
    });
    json!({
        "metadata": {"resourceVersion": version, "annotations": annotations},
        "spec": lease_spec(holder, renewed, LEADER_LEASE_DURATION),
    })
}

/// Timeout of the first write of this replica's lease, which delays the first read.
const FIRST_LEASE_TIMEOUT: Duration = Duration::from_millis(300);

/// Settings of adoption: the entries to take over, and the leases through which replicas coordinate.
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
    /// so the replica calls announced entries without a probe.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fights;

    #[test]
    fn lease_round_trips_and_an_invalid_annotation_reads_as_default() {
        let ids = BTreeSet::from(["ab".to_owned()]);
        let claims = Claims { epoch: 3, ids: ids.clone() };
        let mut lease = replica_lease("Node_1/4711", "t", Some(&claims));
        lease["metadata"]["resourceVersion"] = "9".into();
        let read = Lease::of(&lease).unwrap();
        assert_eq!((read.claims(), read.replica(), &*read.version), (Some(claims), "Node_1", "9"));
        assert_eq!(Lease::of(&replica_lease("Node_1/4711", "t", None)).unwrap().claims(), None, "it starts");
        assert!(!read.is_leader() && read.name.starts_with("gatepost-adopt."));
        assert_ne!(lease_name("Node_1/4711"), lease_name("Node_1/4712"), "two processes of one name");
        let announcement = Announcement { epoch: 1, ids, ending: ["cd".to_owned()].into() };
        let fights = BTreeMap::from([("ab".to_owned(), FightRecord::default())]);
        let told = [["w".into(), "taken".into(), "".into()]];
        let mut lease = leader_lease("9", "a/1", "t", &announcement, &told, &fights);
        lease["metadata"]["name"] = LEADER_LEASE.into();
        let read = Lease::of(&lease).unwrap();
        assert_eq!(
            (read.announcement(), read.status().len(), read.requests()),
            (announcement, 1, AdoptionRequests::default())
        );
        assert_eq!(read.fights(), fights);
        lease["metadata"]["annotations"]["gatepost.dev/announced"] = "{\"epoch\": [}".into();
        assert_eq!(Lease::of(&lease).unwrap().announcement(), Announcement::default());
        assert_eq!(Lease::of(&json!({"metadata": {"name": "kube-scheduler"}})), None);
    }

    #[test]
    fn lease_status_is_truncated_to_the_annotation_limit() {
        let long = vec![["w".repeat(250), "left".to_owned(), "x".repeat(400)]; 4096];
        let all: BTreeSet<_> = (0..MAX_ENTRIES).map(|number| format!("{number:016}")).collect();
        let mut fights = Fights::default();
        (0..12).for_each(|drop| fights.record_drop(Duration::from_secs(drop * 299), Duration::ZERO));
        let mut record = fights.record(Duration::from_secs(3400)).unwrap();
        (record.failures, record.failure_pause_left_secs) = (8, 3600);
        assert_eq!(record.weight(), (12, 8, 0));
        let fights: BTreeMap<_, _> = (0..MAX_FIGHTS).map(|number| (format!("{number:016}"), record.clone())).collect();
        let announcements = [
            Announcement { epoch: 1, ids: all.clone(), ending: BTreeSet::new() },
            Announcement { epoch: 1, ids: BTreeSet::new(), ending: all },
        ];
        for announcement in announcements {
            let lease = leader_lease("9", "a/1", "t", &announcement, &long, &fights);
            let annotations = lease["metadata"]["annotations"].as_object().unwrap();
            let size: usize = annotations.values().map(|value| value.as_str().unwrap().len()).sum();
            // Requests by command have another 64 KiB.
            assert!(size < 190 << 10, "{size}");
        }
    }

    #[test]
    fn announcement_lists_ending_ids_for_former_versions() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let announcement = Announcement { epoch: 2, ids: ids(&["a"]), ending: ids(&["b"]) };
        let written = to_json(&announcement);
        assert_eq!(written, r#"{"epoch":2,"ids":["a","b"],"ending":["b"]}"#);
        assert_eq!(serde_json::from_str::<Announcement>(&written).unwrap(), announcement);
        let former = serde_json::from_str::<Announcement>(r#"{"epoch":2,"ids":["a","b"]}"#).unwrap();
        assert_eq!(former, Announcement { epoch: 2, ids: ids(&["a", "b"]), ending: BTreeSet::new() });
        assert_eq!(to_json(&former), r#"{"epoch":2,"ids":["a","b"]}"#);
    }
}

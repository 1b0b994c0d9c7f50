//! Leases: annotations of Lease objects through which replicas coordinate: the leader, its announcement, the claims of
//! each replica, and requests made by command.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{AdoptionScope, KeptFights, Reason, WebhookKey, WebhookStanding};

/// Name of the leader's lease.
pub const LEADER: &str = "gatepost-adopt";
/// Duration of a replica's lease.
pub const LIVE: Duration = Duration::from_secs(15);
/// Duration of the leader's lease, which it renews every second: after so long without a renewal another replica leads.
pub const LEADS: Duration = Duration::from_secs(6);
/// Most webhooks that can be taken over: an object has room for 256 KiB of annotations.
pub const MOST_WEBHOOKS: usize = 4096;
/// Most webhooks whose fights are handed over to the next leader.
pub const MOST_FIGHTS: usize = 100;
/// Most bytes of the annotation with the state of the webhooks.
const MOST_STATUS: usize = 96 << 10;

const ANNOUNCED: &str = "gatepost.dev/announced";
const CALLS: &str = "gatepost.dev/calls";
const WISHES: &str = "gatepost.dev/wishes";
const STATUS: &str = "gatepost.dev/webhooks";
const FIGHTS: &str = "gatepost.dev/fights";

/// Webhooks that replicas are to call, whether they carry the condition yet or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenAnnouncement", into = "WrittenAnnouncement")]
pub struct Announcement {
    /// Counts every change.
    pub epoch: u64,
    /// Their [ids](WebhookKey::id).
    pub ids: BTreeSet<String>,
    /// Ids of others that carried the condition a moment ago: a replica that starts calls them, too. Another goes on
    /// for [`GRACE`](super::GRACE).
    pub ending: BTreeSet<String>,
}

/// Announcement in a lease. Replicas of a former version know `ids` alone: what ends is among these, so that they go on
/// calling it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenAnnouncement {
    epoch: u64,
    ids: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    ending: BTreeSet<String>,
}

impl From<WrittenAnnouncement> for Announcement {
    fn from(WrittenAnnouncement { epoch, mut ids, ending }: WrittenAnnouncement) -> Self {
        ids.retain(|id| !ending.contains(id));
        Self { epoch, ids, ending }
    }
}

impl From<Announcement> for WrittenAnnouncement {
    fn from(Announcement { epoch, ids, ending }: Announcement) -> Self {
        Self { epoch, ids: ids.union(&ending).cloned().collect(), ending }
    }
}

/// Webhooks that one replica calls for a reason that lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Epoch of the announcement that it has read.
    pub epoch: u64,
    /// Their [ids](WebhookKey::id).
    pub ids: BTreeSet<String>,
}

/// Requests made by `gatepost adopt` and `gatepost release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wishes {
    /// Configurations to be taken: `NAME`, or `validating/NAME`.
    pub adopt: BTreeSet<String>,
    /// Everything is to be taken.
    pub adopt_all: bool,
    /// Configurations to be given back, whatever else is said.
    pub release: BTreeSet<String>,
    /// Everything is to be given back.
    pub release_all: bool,
}

impl Wishes {
    /// Is that webhook to be taken?
    ///
    /// # Errors
    /// The [`Reason`] to leave it to the apiserver.
    pub fn judge(&self, standing: &WebhookStanding, wanted: &AdoptionScope) -> Result<(), Reason> {
        let WebhookKey { hook_type, configuration, .. } = &standing.key;
        let full = format!("{}/{configuration}", WebhookKey::word(*hook_type));
        let names = |names: &BTreeSet<String>| names.contains(configuration) || names.contains(&full);
        if names(&self.adopt) {
            return Ok(());
        }
        if self.release_all || names(&self.release) {
            return Err(Reason::Released);
        }
        if self.adopt_all || wanted.matches(standing) { Ok(()) } else { Err(Reason::NotWanted) }
    }

    /// With these to be taken.
    pub fn adopting(&mut self, names: &[String], all: bool) {
        if all {
            *self = Self { adopt_all: true, ..Self::default() };
        }
        for name in names {
            self.release.remove(name);
            self.adopt.insert(name.clone());
        }
    }

    /// With these to be given back.
    pub fn releasing(&mut self, names: &[String], all: bool) {
        if all {
            *self = Self { release_all: true, ..Self::default() };
        }
        for name in names {
            self.adopt.remove(name);
            self.release.insert(name.clone());
        }
    }

    /// Merge patch of the leader's lease that stores these requests.
    pub fn patch(&self) -> Value {
        json!({"metadata": {"annotations": {WISHES: text(self)}}})
    }
}

/// One lease as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// Its resourceVersion.
    pub version: String,
    /// Holder identity: a replica's name and instance.
    pub holder: String,
    /// Renewal time by the holder's clock.
    pub renewed: String,
    annotations: Value,
}

impl Lease {
    /// Reads an object; `None` where it is none of ours.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let ours = name == LEADER || name.strip_prefix(LEADER).is_some_and(|rest| rest.starts_with('.'));
        ours.then(|| Self {
            name,
            version: text("/metadata/resourceVersion"),
            holder: text("/spec/holderIdentity"),
            renewed: text("/spec/renewTime"),
            annotations: object.pointer("/metadata/annotations").cloned().unwrap_or_default(),
        })
    }

    /// Is it the one of the replica that writes?
    pub fn is_leader(&self) -> bool {
        self.name == LEADER
    }

    /// Name of the replica that holds it, for people.
    pub fn replica(&self) -> &str {
        self.holder.split('/').next().unwrap_or_default()
    }

    /// Announcement in the leader's lease.
    pub fn announcement(&self) -> Announcement {
        self.read(ANNOUNCED)
    }

    /// Claims of its replica; `None` while that only starts.
    pub fn claims(&self) -> Option<Claims> {
        (!self.annotations[CALLS].is_null()).then(|| self.read(CALLS))
    }

    /// Requests made by command.
    pub fn wishes(&self) -> Wishes {
        self.read(WISHES)
    }

    /// Fights with owners, and announcements in vain, that its holder hands over, by the webhooks' ids.
    pub fn fights(&self) -> BTreeMap<String, KeptFights> {
        self.read(FIGHTS)
    }

    /// Name, state and reason of each webhook, as the leader wrote them.
    pub fn status(&self) -> Vec<[String; 3]> {
        self.read(STATUS)
    }

    /// Value of an annotation; the default where it is absent or cannot be parsed.
    fn read<T: Default + for<'a> Deserialize<'a>>(&self, key: &str) -> T {
        self.annotations[key].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Name of the lease of the replica with this holder identity, by a digest, as an object's name must be a DNS name. Two
/// processes never share a lease, even under one replica name: each has to publish its own claims.
pub fn lease_name(holder: &str) -> String {
    let digest: String = Sha256::digest(holder).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{LEADER}.{digest}")
}

/// A replica's lease, to be applied; without claims while it starts.
pub fn replica_lease(holder: &str, renewed: &str, claims: Option<&Claims>) -> Value {
    let annotations = claims.map_or_else(|| json!({}), |claims| json!({ CALLS: text(claims) }));
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease_name(holder), "annotations": annotations},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": LIVE.as_secs()},
    })
}

/// Merge patch of the leader's lease: holder, announcement, state of each webhook, fights. The apiserver rejects it where
/// the lease has changed since that version.
pub fn leader_lease(
    version: &str,
    holder: &str,
    renewed: &str,
    announcement: &Announcement,
    status: &[[String; 3]],
    fights: &BTreeMap<String, KeptFights>,
) -> Value {
    let mut status = status.to_vec();
    // An ending webhook is written twice.
    let room = MOST_STATUS.saturating_sub(text(&announcement.ending).len());
    while !status.is_empty() && text(&status).len() > room {
        status.truncate(status.len() / 2);
    }
    let annotations = json!({ANNOUNCED: text(announcement), STATUS: text(&status), FIGHTS: text(fights)});
    json!({
        "metadata": {"resourceVersion": version, "annotations": annotations},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": LEADS.as_secs()},
    })
}

/// Strings, numbers and sets of them are always written.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        adopt::{Fights, standings},
        model::HookType,
    };

    #[test]
    fn what_is_written_is_read_and_what_is_broken_says_nothing() {
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
        let fights = BTreeMap::from([("ab".to_owned(), KeptFights::default())]);
        let told = [["w".into(), "taken".into(), "".into()]];
        let mut lease = leader_lease("9", "a/1", "t", &announcement, &told, &fights);
        lease["metadata"]["name"] = LEADER.into();
        let read = Lease::of(&lease).unwrap();
        assert_eq!((read.announcement(), read.status().len(), read.wishes()), (announcement, 1, Wishes::default()));
        assert_eq!(read.fights(), fights);
        lease["metadata"]["annotations"]["gatepost.dev/announced"] = "{\"epoch\": [}".into();
        assert_eq!(Lease::of(&lease).unwrap().announcement(), Announcement::default());
        assert_eq!(Lease::of(&json!({"metadata": {"name": "kube-scheduler"}})), None);
    }

    #[test]
    fn a_status_is_cut_to_what_an_object_can_hold() {
        let long = vec![["w".repeat(250), "left".to_owned(), "x".repeat(400)]; 4096];
        let all: BTreeSet<_> = (0..MOST_WEBHOOKS).map(|number| format!("{number:016}")).collect();
        let mut fights = Fights::default();
        (0..12).for_each(|drop| fights.dropped(Duration::from_secs(drop * 299), Duration::ZERO));
        let mut kept = fights.kept(Duration::from_secs(3400)).unwrap();
        (kept.vain, kept.pause) = (8, 3600);
        assert_eq!(kept.weight(), (12, 8, 0));
        let fights: BTreeMap<_, _> = (0..MOST_FIGHTS).map(|number| (format!("{number:016}"), kept.clone())).collect();
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
    fn what_ends_is_announced_to_replicas_that_do_not_know_of_that() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let announcement = Announcement { epoch: 2, ids: ids(&["a"]), ending: ids(&["b"]) };
        let written = text(&announcement);
        assert_eq!(written, r#"{"epoch":2,"ids":["a","b"],"ending":["b"]}"#);
        assert_eq!(serde_json::from_str::<Announcement>(&written).unwrap(), announcement);
        let former = serde_json::from_str::<Announcement>(r#"{"epoch":2,"ids":["a","b"]}"#).unwrap();
        assert_eq!(former, Announcement { epoch: 2, ids: ids(&["a", "b"]), ending: BTreeSet::new() });
        assert_eq!(text(&former), r#"{"epoch":2,"ids":["a","b"]}"#);
    }

    #[test]
    fn what_is_named_counts_more_than_what_is_said_of_all() {
        let object = json!({"metadata": {"name": "c", "labels": {"team": "x"}}, "webhooks": [{"name": "w"}]});
        let standing = standings(HookType::Validating, &object).remove(0);
        let judge = |wishes: &Wishes, wanted: &AdoptionScope| wishes.judge(&standing, wanted);
        let mut wishes = Wishes::default();
        assert_eq!(judge(&wishes, &AdoptionScope::Named), Err(Reason::NotWanted));
        assert_eq!(judge(&wishes, &AdoptionScope::All), Ok(()));
        wishes.releasing(&["validating/c".to_owned()], false);
        assert_eq!(judge(&wishes, &AdoptionScope::All), Err(Reason::Released));
        wishes.adopting(&["validating/c".to_owned()], false);
        assert_eq!(judge(&wishes, &AdoptionScope::Named), Ok(()));
        wishes.releasing(&[], true);
        assert_eq!(judge(&wishes, &AdoptionScope::All), Err(Reason::Released));
        wishes.adopting(&["c".to_owned()], false);
        assert_eq!(judge(&wishes, &AdoptionScope::Named), Ok(()), "one by one");
        wishes.releasing(&[], true);
        wishes.adopting(&[], true);
        assert_eq!(judge(&wishes, &AdoptionScope::Named), Ok(()));
    }
}

//! Adopting: webhooks of others among the objects of a cluster, and those of them that this replica calls.

pub(super) mod giving_back;
mod own;
pub mod upkeep;
mod verdict;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

pub use self::{
    giving_back::remove,
    upkeep::{Due, Upkeep},
};
use self::{
    own::{Own, hold_back},
    verdict::{Verdict, judge},
};
use super::objects::Kind;
use crate::{
    adopt::{
        AdoptionRequests, AdoptionScope, CallPlan, CalledWebhook, Claims, Follower, LEADER_LEASE, Lease, MAX_WEBHOOKS,
        OwnRegistration, Reason, SeenWebhook, WebhookKey, WebhookStanding, lease_name, replica_lease, standings,
    },
    kube::{KubeClient, KubeError, is_our_own},
    model::{HookType, registration::is_our_webhook},
    snapshot::{CALL_AT_ONCE, ENTRY_STATES, SourceFile, is_misspelt},
    source::Contents,
};

/// Settings of adoption: the webhooks to take over, and the leases through which replicas coordinate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// Configurations to take over where no command applies to them.
    pub wanted: AdoptionScope,
    /// The namespace of the leases.
    pub namespace: String,
    /// The name of this replica.
    pub replica: String,
    /// Name of the registrations that lead to us; `None` where there is no other Gatepost.
    pub registration: Option<String>,
    /// Maker of the webhooks of our registrations, where these are kept up to date.
    pub upkeep: Option<Upkeep>,
}

impl Adopt {
    /// Path of the leases.
    pub fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Reads the leases.
    ///
    /// # Errors
    /// [`KubeError`] of the list request.
    pub async fn read_leases(&self, client: &KubeClient) -> Result<Vec<Lease>, KubeError> {
        Ok(client.list(&self.leases()).await?.items.iter().filter_map(Lease::of).collect())
    }

    /// Renews this replica's lease with its claims; without claims, the replica is starting.
    ///
    /// # Errors
    /// [`KubeError`] of the write.
    pub async fn write_lease(
        &self,
        client: &KubeClient,
        holder: &str,
        claims: Option<&Claims>,
    ) -> Result<(), KubeError> {
        let lease = replica_lease(holder, &micro_time(), claims);
        client.apply(&format!("{}/{}", self.leases(), lease_name(holder)), &lease).await
    }

    /// Makes the leader's lease, where there is none yet.
    ///
    /// # Errors
    /// [`KubeError`] of the write.
    pub async fn make_leader_lease(&self, client: &KubeClient) -> Result<(), KubeError> {
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEADER_LEASE}});
        client.apply(&format!("{}/{LEADER_LEASE}", self.leases()), &lease).await
    }
}

/// Current time in the format of leases. Replicas never compare it with their own clock; only commands for people do.
pub fn micro_time() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

/// Result of one read, for the loop that writes.
#[derive(Debug, Default)]
pub struct AdoptionView {
    /// Start of the read, as time since the source was opened.
    pub now: Duration,
    /// The leases.
    pub leases: Vec<Lease>,
    /// The webhooks of others.
    pub seen: Vec<SeenWebhook>,
    /// Webhooks that this replica calls, and the announcement that it follows.
    pub followed: CallPlan,
    /// The registrations that lead to us.
    pub registered: Vec<OwnRegistration>,
    /// Registrations to update.
    pub due: Vec<Due>,
    /// The uid of the cluster.
    pub cluster: String,
}

/// State between reads.
#[derive(Debug, Default)]
pub(super) struct Adopting {
    follower: Follower,
    /// Cached verdict on each webhook, with a digest of its inputs.
    judged: HashMap<WebhookKey, ([u8; 32], Verdict)>,
    upkeep: upkeep::Memory,
}

impl Adopting {
    /// Processes the webhook configurations of one read that began at `now`, on the replica with this holder identity,
    /// and returns the documents of the webhooks that it calls.
    pub(super) fn take(
        &mut self,
        (now, adopt, holder): (Duration, &Adopt, &str),
        leases: Vec<Lease>,
        lists: &[(Kind, Vec<Value>)],
    ) -> Result<(Vec<SourceFile>, AdoptionView), String> {
        let wishes = leases.iter().find(|lease| lease.is_leader()).map(Lease::requests).unwrap_or_default();
        let seen = self.seen(lists, adopt, &wishes);
        let followed = self.follower.read(now, holder, &leases, &seen);
        let files = files(lists, &followed.webhooks)?;
        let registered = lists.iter().filter_map(|(kind, items)| Some((kind.hook_type()?, items)));
        let registered = registered.flat_map(|(hook_type, items)| {
            let ours = items.iter().filter(|item| adopt.is_our_own(item));
            ours.filter_map(move |item| OwnRegistration::of(hook_type, item))
        });
        let registered = registered.collect();
        let (due, cluster) = (Vec::new(), String::new());
        Ok((files, AdoptionView { now, leases, seen, followed, registered, due, cluster }))
    }

    /// Registrations to update, given everything that was read.
    pub(super) fn due(
        &mut self,
        adopt: &Adopt,
        lists: &[(Kind, Vec<Value>)],
        (contents, view): (&Contents, &AdoptionView),
    ) -> Vec<Due> {
        upkeep::due(&mut self.upkeep, adopt, lists, (contents, view))
    }

    fn seen(&mut self, lists: &[(Kind, Vec<Value>)], adopt: &Adopt, wishes: &AdoptionRequests) -> Vec<SeenWebhook> {
        let mut seen = Vec::new();
        let isolates = own::isolates(lists);
        let former = std::mem::take(&mut self.judged);
        for (kind, items) in lists {
            let Some(hook_type) = kind.hook_type() else { continue };
            let own = Own::among(items, adopt);
            let registered = digest(own.items.iter().chain(&own.called).map(|item| item["webhooks"].to_string()));
            let guarded =
                own.items.iter().filter_map(|item| OwnRegistration::of(hook_type, item)).all(|own| own.guarded);
            for mut standing in items.iter().flat_map(|item| of_others(hook_type, item)) {
                if let Some(namespaces) = &own.never_sent {
                    standing.leave(namespaces);
                }
                let of_own = format!("{registered:?} {:?} {:?} {isolates}", own.ambiguous, own.never_sent);
                let depends = [standing.entry.to_string(), of_own];
                let state = digest(depends.into_iter());
                let known =
                    former.get(&standing.key).filter(|(of, _)| *of == state).map(|(_, verdict)| verdict.clone());
                let verdict = known.unwrap_or_else(|| judge(&standing, (&own, isolates), &adopt.namespace));
                self.judged.insert(standing.key.clone(), (state, verdict.clone()));
                let room = seen.len() < MAX_WEBHOOKS;
                let wanted = if room { wishes.judge(&standing, &adopt.wanted) } else { Err(Reason::TooMany) };
                let Verdict { unservable, objection, unsent, asks_authorizer } = verdict;
                let in_flight = Duration::ZERO;
                seen.push(SeenWebhook {
                    standing,
                    unservable,
                    objection,
                    unsent,
                    wanted,
                    asks_authorizer,
                    guarded,
                    in_flight,
                });
            }
            if hook_type == HookType::Mutating {
                hold_back(&mut seen, items, &own);
            }
        }
        seen
    }
}

impl Adopt {
    /// True for a webhook configuration that registers this Gatepost. That of another Gatepost is none, nor is one with our
    /// label and no webhook of ours: anybody may put the label there.
    pub fn is_our_own(&self, item: &Value) -> bool {
        let webhooks = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
        let leads_to_us = webhooks.is_empty() || webhooks.iter().any(is_ours);
        is_our_own(item)
            && leads_to_us
            && self.registration.as_ref().is_none_or(|name| item["metadata"]["name"] == **name)
    }
}

fn is_ours(entry: &Value) -> bool {
    entry["name"].as_str().is_some_and(is_our_webhook)
}

/// The webhooks of a configuration that are not those of a registration of Gatepost. A label alone makes none: whoever puts
/// it on a configuration that is taken over would have nobody call its webhooks.
fn of_others(hook_type: HookType, item: &Value) -> Vec<WebhookStanding> {
    let mut all = standings(hook_type, item);
    if is_our_own(item) {
        all.retain(|standing| !is_our_webhook(&standing.key.webhook));
    }
    all
}

/// Webhook configurations as they are judged outside of a running sidecar: what could be taken, and what could not.
pub fn judged(lists: &[(HookType, Vec<Value>)], adopt: &Adopt, wishes: &AdoptionRequests) -> Vec<SeenWebhook> {
    let lists: Vec<_> = lists.iter().map(|(hook_type, items)| (Kind::of_type(*hook_type), items.clone())).collect();
    Adopting::default().seen(&lists, adopt, wishes)
}

fn digest(parts: impl Iterator<Item = String>) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    sha.finalize().into()
}

/// A document for each configuration of which something is called.
fn files(lists: &[(Kind, Vec<Value>)], asked: &[CalledWebhook]) -> Result<Vec<SourceFile>, String> {
    let mut by_configuration = BTreeMap::<(HookType, &str), Vec<&CalledWebhook>>::new();
    for one in asked {
        by_configuration.entry((one.key.hook_type, one.key.configuration.as_str())).or_default().push(one);
    }
    let mut files = Vec::new();
    for (kind, items) in lists {
        let Some(hook_type) = kind.hook_type() else { continue };
        for item in items {
            let metadata = &item["metadata"];
            let name = metadata["name"].as_str().ok_or("an object has no name")?;
            let Some(asked) = by_configuration.get(&(hook_type, name)) else { continue };
            let at_once = asked.iter().filter(|one| one.at_once).map(|one| one.key.webhook.as_str());
            let at_once = at_once.collect::<Vec<_>>().join(" ");
            let mut annotations = serde_json::Map::new();
            for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
                // A word that is none would make the whole document faulty, and all of its webhooks with it.
                let is_misspelt = is_misspelt(key, value.as_str());
                if key.starts_with("gatepost.dev/") && !is_misspelt {
                    annotations.insert(key.clone(), value.clone());
                }
            }
            let states = asked.iter().map(|one| format!("{}={}", one.key.webhook, one.state));
            annotations.insert(ENTRY_STATES.to_owned(), states.collect::<Vec<_>>().join(" ").into());
            annotations.remove(CALL_AT_ONCE);
            if !at_once.is_empty() {
                annotations.insert(CALL_AT_ONCE.to_owned(), at_once.into());
            }
            let document = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": WebhookKey::kind(hook_type),
                "metadata": {"name": name, "uid": metadata["uid"], "annotations": annotations},
                "webhooks": asked.iter().map(|one| &one.entry).collect::<Vec<_>>(),
            });
            let name = format!("{}/{name}", WebhookKey::resource(hook_type));
            files.push(SourceFile { name, bytes: document.to_string().into() });
        }
    }
    Ok(files)
}

/// Writes this replica's lease before its first read, and reads all leases. A failed write does not fail the read, as
/// the write may wait for our own verdict. The leader does not wait for this replica then, so it calls announced
/// webhooks without a probe.
pub(super) async fn leases(
    client: &KubeClient,
    adopt: &Adopt,
    (holder, registered): (&str, &mut bool),
) -> Result<Vec<Lease>, KubeError> {
    /// Timeout of these writes, which delay the first read.
    const WITHIN: Duration = Duration::from_millis(300);
    if !std::mem::replace(registered, true) {
        let writing = async {
            adopt.write_lease(client, holder, None).await?;
            adopt.make_leader_lease(client).await
        };
        match timeout(WITHIN, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, fix = error.fix(), "cannot write this replica's lease; it is written later");
            }
            Err(_) => tracing::warn!("this replica's lease is not written in time; it is written later"),
        }
    }
    adopt.read_leases(client).await
}

/// Shared with the closure that takes a read up, off this thread.
pub(super) type Shared = Arc<std::sync::Mutex<Adopting>>;

#[cfg(test)]
mod tests;

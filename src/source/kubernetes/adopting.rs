//! Processes the webhook configurations read from a cluster: assesses which webhooks can be adopted, and returns the
//! documents of those that this replica calls.

mod judge;
pub mod upkeep;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use sha2::Digest as _;

use self::judge::{OwnRegistrations, Verdict, isolates, judge, set_in_flight};
pub use self::upkeep::Upkeep;
use super::objects::Kind;
use crate::source::contents::PartsDigest;
use gatepost_adopt::{
    AdoptionRequests, AdoptionSettings, AdoptionView, AssessedWebhook, CalledWebhook, ClusterWebhook, Follower, Lease,
    MAX_WEBHOOKS, OwnRegistration, Reason, WebhookKey, webhooks_of,
};
use gatepost_api::{HookType, registration::is_our_webhook};
use gatepost_config::{CALL_AT_ONCE, ENTRY_STATES, SourceFile, is_misspelt};
use gatepost_kube_support::is_our_own;

/// Webhook reader, shared with the closure that processes a read on another thread.
pub(super) type SharedReader = Arc<Mutex<WebhookReader>>;

/// Webhook state that is kept between two reads.
#[derive(Debug, Default)]
pub(super) struct WebhookReader {
    follower: Follower,
    /// Cached verdict on each webhook, with a digest of its inputs.
    judged: HashMap<WebhookKey, ([u8; 32], Verdict)>,
    pub(super) upkeep: upkeep::Cache,
}

impl WebhookReader {
    /// Processes the webhook configurations of a read that began at `now`, on the replica with this holder identity.
    /// Returns the documents of the webhooks that this replica calls.
    pub(super) fn read(
        &mut self,
        (now, settings, holder): (Duration, &AdoptionSettings, &str),
        leases: Vec<Lease>,
        lists: &[(Kind, Vec<Value>)],
    ) -> Result<(Vec<SourceFile>, AdoptionView), String> {
        let requests = leases.iter().find(|lease| lease.is_leader()).map(Lease::requests).unwrap_or_default();
        let seen = self.seen(lists, settings, &requests);
        let calls = self.follower.read(now, holder, &leases, &seen);
        let files = files(lists, &calls.webhooks)?;
        let registrations = lists.iter().filter_map(|(kind, items)| Some((kind.hook_type()?, items)));
        let registrations = registrations.flat_map(|(hook_type, items)| {
            let ours = items.iter().filter(|item| settings.is_our_own(item));
            ours.filter_map(move |item| OwnRegistration::of(hook_type, item))
        });
        let registrations = registrations.collect();
        let (updates, cluster) = (Vec::new(), String::new());
        Ok((files, AdoptionView { now, leases, seen, calls, registrations, updates, cluster }))
    }

    fn seen(
        &mut self,
        lists: &[(Kind, Vec<Value>)],
        settings: &AdoptionSettings,
        requests: &AdoptionRequests,
    ) -> Vec<AssessedWebhook> {
        let mut seen = Vec::new();
        let isolates = isolates(lists);
        let former = std::mem::take(&mut self.judged);
        for (kind, items) in lists {
            let Some(hook_type) = kind.hook_type() else { continue };
            let own = OwnRegistrations::among(items, settings);
            let registered = digest(own.items.iter().chain(&own.called).map(|item| item["webhooks"].to_string()));
            let guarded =
                own.items.iter().filter_map(|item| OwnRegistration::of(hook_type, item)).all(|own| own.guarded);
            for mut standing in items.iter().flat_map(|item| foreign_webhooks(hook_type, item)) {
                if let Some(namespaces) = &own.never_sent {
                    standing.leave(namespaces);
                }
                let of_own = format!("{registered:?} {:?} {:?} {isolates}", own.ambiguous, own.never_sent);
                let inputs = digest([standing.entry.to_string(), of_own].into_iter());
                let known =
                    former.get(&standing.key).filter(|(of, _)| *of == inputs).map(|(_, verdict)| verdict.clone());
                let verdict = known.unwrap_or_else(|| judge(&standing, (&own, isolates), &settings.namespace));
                self.judged.insert(standing.key.clone(), (inputs, verdict.clone()));
                let has_room = seen.len() < MAX_WEBHOOKS;
                let wanted = if has_room { requests.judge(&standing, &settings.scope) } else { Err(Reason::TooMany) };
                let Verdict { unservable, reason_not_to_adopt, unsent, uses_authorizer } = verdict;
                let in_flight = Duration::ZERO;
                seen.push(AssessedWebhook {
                    standing,
                    unservable,
                    reason_not_to_adopt,
                    unsent,
                    wanted,
                    uses_authorizer,
                    guarded,
                    in_flight,
                });
            }
            if hook_type == HookType::Mutating {
                set_in_flight(&mut seen, items, &own);
            }
        }
        seen
    }
}

/// Returns the webhooks of a configuration, without those of Gatepost's own registration. The label alone does not
/// identify a registration: if it did, labelling an adopted configuration would leave its webhooks uncalled.
fn foreign_webhooks(hook_type: HookType, item: &Value) -> Vec<ClusterWebhook> {
    let mut all = webhooks_of(hook_type, item);
    if is_our_own(item) {
        all.retain(|standing| !is_our_webhook(&standing.key.webhook));
    }
    all
}

/// Assesses which webhooks of these configurations could be adopted, outside of a running sidecar.
pub fn judged(
    lists: &[(HookType, Vec<Value>)],
    settings: &AdoptionSettings,
    requests: &AdoptionRequests,
) -> Vec<AssessedWebhook> {
    let lists: Vec<_> = lists.iter().map(|(hook_type, items)| (Kind::Webhooks(*hook_type), items.clone())).collect();
    WebhookReader::default().seen(&lists, settings, requests)
}

fn digest(parts: impl Iterator<Item = String>) -> [u8; 32] {
    let mut digest = PartsDigest::default();
    parts.for_each(|part| digest.part(part));
    digest.0.finalize().into()
}

/// Returns the document of one configuration with these webhooks.
fn file((hook_type, name): (HookType, &str), mut metadata: Value, webhooks: Value) -> SourceFile {
    metadata["name"] = name.into();
    let document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": hook_type.kind(), "metadata": metadata,
        "webhooks": webhooks,
    });
    let name = format!("{}/{name}", hook_type.resource());
    SourceFile { name, bytes: document.to_string().into() }
}

/// Returns a document for each configuration with a called webhook.
fn files(lists: &[(Kind, Vec<Value>)], webhooks: &[CalledWebhook]) -> Result<Vec<SourceFile>, String> {
    let mut by_configuration = BTreeMap::<(HookType, &str), Vec<&CalledWebhook>>::new();
    for one in webhooks {
        by_configuration.entry((one.key.hook_type, one.key.configuration.as_str())).or_default().push(one);
    }
    let mut files = Vec::new();
    for (kind, items) in lists {
        let Some(hook_type) = kind.hook_type() else { continue };
        for item in items {
            let metadata = &item["metadata"];
            let name = metadata["name"].as_str().ok_or("an object has no name")?;
            let Some(called) = by_configuration.get(&(hook_type, name)) else { continue };
            let at_once = called.iter().filter(|one| one.at_once).map(|one| one.key.webhook.as_str());
            let at_once = at_once.collect::<Vec<_>>().join(" ");
            let mut annotations = serde_json::Map::new();
            for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
                // An invalid value would make the whole document invalid, with all of its webhooks.
                if key.starts_with("gatepost.dev/") && !is_misspelt(key, value.as_str()) {
                    annotations.insert(key.clone(), value.clone());
                }
            }
            let states = called.iter().map(|one| format!("{}={}", one.key.webhook, one.state));
            annotations.insert(ENTRY_STATES.to_owned(), states.collect::<Vec<_>>().join(" ").into());
            annotations.remove(CALL_AT_ONCE);
            if !at_once.is_empty() {
                annotations.insert(CALL_AT_ONCE.to_owned(), at_once.into());
            }
            let entries: Vec<_> = called.iter().map(|one| &one.entry).collect();
            let metadata = json!({"uid": metadata["uid"], "annotations": annotations});
            files.push(file((hook_type, name), metadata, json!(entries)));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;

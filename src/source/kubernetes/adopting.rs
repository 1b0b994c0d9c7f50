//! Processes the webhook configurations and policies read from a cluster: assesses which of them can be adopted, and
//! returns the documents of those that this replica uses.

mod judge;
mod policies;
pub mod upkeep;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
    AdoptionRequests, AdoptionSettings, AdoptionView, Announcement, AssessedEntry, CalledEntry, ClusterEntry, EntryKey,
    Follower, Lease, MAX_ENTRIES, OwnRegistration, Reason, bindings_of, webhooks_of,
};
use gatepost_api::{Canary, HookType, registration::is_our_webhook};
use gatepost_config::{CALL_AT_ONCE, ENTRY_STATES, SourceFile, is_misspelt};
use gatepost_kube_support::is_our_own;

/// Maximum time from a write of a binding until every apiserver goes by it, beyond that of a webhook. An apiserver looks
/// for changed policies once a second, compiles them, and may have to start reading their params.
// source: k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_source.go, policyRefreshIntervalDefault.
const POLICY_LAG: Duration = Duration::from_secs(3);

/// Entry reader, shared with the closure that processes a read on another thread.
pub(super) type SharedReader = Arc<Mutex<EntryReader>>;

/// State of the entries that is kept between two reads.
#[derive(Debug, Default)]
pub(super) struct EntryReader {
    follower: Follower,
    /// Cached verdict on each entry, with a digest of its inputs.
    judged: HashMap<EntryKey, ([u8; 32], Verdict)>,
    pub(super) upkeep: upkeep::Cache,
}

impl EntryReader {
    /// Processes the lists of a read that began at `now`, on the replica with this holder identity.
    /// Returns the documents of the entries that this replica uses.
    pub(super) fn read(
        &mut self,
        (now, settings, holder): (Duration, &AdoptionSettings, &str),
        leases: Vec<Lease>,
        lists: &[(Kind, Vec<Value>)],
    ) -> Result<(Vec<SourceFile>, AdoptionView), String> {
        let leader = leases.iter().find(|lease| lease.is_leader());
        let requests = leader.map(Lease::requests).unwrap_or_default();
        let announcement = leader.map(Lease::announcement).unwrap_or_default();
        let seen = self.seen(lists, settings, &requests, &announcement);
        let calls = self.follower.read(now, holder, &leases, &seen);
        let files = files(lists, &calls.entries)?;
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
        announcement: &Announcement,
    ) -> Vec<AssessedEntry> {
        let mut seen = Vec::new();
        let isolates = isolates(lists);
        let former = std::mem::take(&mut self.judged);
        let bypasses = bypasses(lists);
        let let_past = digest(bypasses.iter().map(|bypass| bypass.to_string()));
        for (kind, items) in lists {
            let Some(hook_type) = kind.hook_type() else { continue };
            let own = OwnRegistrations::among(items, settings);
            let registered = digest(own.items.iter().chain(&own.called).map(|item| item["webhooks"].to_string()));
            let guarded =
                own.items.iter().filter_map(|item| OwnRegistration::of(hook_type, item)).all(|own| own.guarded);
            let listed = |wanted| lists.iter().find(|(kind, _)| *kind == wanted).map_or(&[][..], |(_, items)| items);
            let bindings = bindings_of(hook_type, listed(Kind::Policies(hook_type)), listed(Kind::Bindings(hook_type)));
            for mut standing in items.iter().flat_map(|item| foreign_webhooks(hook_type, item)).chain(bindings) {
                let is_binding = standing.key.kind.is_binding();
                if let Some(namespaces) = own.never_sent.as_ref().filter(|_| !is_binding) {
                    standing.leave(namespaces);
                }
                let has_room = seen.len() < MAX_ENTRIES;
                let wanted = if has_room { requests.judge(&standing, &settings.scope) } else { Err(Reason::TooMany) };
                // A binding is compiled if somebody wants it or a replica may evaluate it. One that was judged before
                // stays so: replicas evaluate it for some seconds after it is given back.
                let announced = [&announcement.ids, &announcement.ending].iter().any(|ids| ids.contains(&standing.id));
                let is_judged = !is_binding
                    || wanted.is_ok()
                    || standing.carries
                    || announced
                    || former.contains_key(&standing.key);
                let verdict = if is_judged {
                    let of_own = format!("{registered:?} {:?} {:?} {isolates}", own.ambiguous, own.never_sent);
                    let itself = format!("{} {} {}", standing.content, standing.foreign, standing.orphaned);
                    let of_own = if is_binding { format!("{of_own} {let_past:?}") } else { of_own };
                    let inputs = digest([itself, of_own].into_iter());
                    let known = former.get(&standing.key).filter(|(of, _)| *of == inputs);
                    let verdict = known.map(|(_, verdict)| verdict.clone()).unwrap_or_else(|| match is_binding {
                        false => judge(&standing, (&own, isolates), &settings.namespace),
                        true => policies::judge(&standing, (&own, isolates), &bypasses),
                    });
                    self.judged.insert(standing.key.clone(), (inputs, verdict.clone()));
                    verdict
                } else {
                    Verdict::default()
                };
                let Verdict { unservable, reason_not_to_adopt, unsent, uses_authorizer, reads } = verdict;
                let in_flight = if is_binding { POLICY_LAG } else { Duration::ZERO };
                seen.push(AssessedEntry {
                    standing,
                    unservable,
                    reason_not_to_adopt,
                    unsent,
                    wanted,
                    uses_authorizer,
                    reads,
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
fn foreign_webhooks(hook_type: HookType, item: &Value) -> Vec<ClusterEntry> {
    let mut all = webhooks_of(hook_type, item);
    if is_our_own(item) {
        all.retain(|standing| !is_our_webhook(&standing.key.name));
    }
    all
}

/// Assesses which entries of these lists could be adopted, outside of a running sidecar.
pub fn judged(
    lists: &[(Kind, Vec<Value>)],
    settings: &AdoptionSettings,
    requests: &AdoptionRequests,
) -> Vec<AssessedEntry> {
    EntryReader::default().seen(lists, settings, requests, &Announcement::default())
}

/// Returns true if everything that the leader announces is a webhook or a binding of these lists.
pub(super) fn knows_announced(lists: &[(Kind, Vec<Value>)], leases: &[Lease]) -> bool {
    let leader = leases.iter().find(|lease| lease.is_leader());
    let Some(announcement) = leader.map(Lease::announcement) else { return true };
    let items = lists.iter().filter_map(|(kind, items)| Some((kind.hook_type()?, items)));
    let webhooks = items.flat_map(|(hook_type, items)| items.iter().flat_map(move |item| webhooks_of(hook_type, item)));
    let listed = |wanted| lists.iter().find(|(kind, _)| *kind == wanted).map_or(&[][..], |(_, items)| items);
    let bindings = [HookType::Validating, HookType::Mutating].into_iter().flat_map(|hook_type| {
        bindings_of(hook_type, listed(Kind::Policies(hook_type)), listed(Kind::Bindings(hook_type)))
    });
    let known: BTreeSet<_> = webhooks.chain(bindings).map(|entry| entry.id).collect();
    announcement.ids.union(&announcement.ending).all(|id| known.contains(id))
}

/// Returns the bypass rules of our own configuration, as written.
fn bypasses(lists: &[(Kind, Vec<Value>)]) -> Vec<&Value> {
    let own = lists.iter().filter(|(kind, _)| *kind == Kind::Configuration).flat_map(|(_, items)| items);
    own.flat_map(|item| item["bypass"].as_array().into_iter().flatten()).collect()
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

/// Returns a document for each configuration with a called webhook, and one for each policy with a called binding.
fn files(lists: &[(Kind, Vec<Value>)], called: &[CalledEntry]) -> Result<Vec<SourceFile>, String> {
    let mut by_configuration = BTreeMap::<(HookType, &str), Vec<&CalledEntry>>::new();
    let is_webhook = |one: &&CalledEntry| !one.key.kind.is_binding();
    for one in called.iter().filter(is_webhook) {
        by_configuration.entry((one.key.kind.hook_type(), one.key.configuration.as_str())).or_default().push(one);
    }
    // The newest state of a policy comes first.
    let mut bindings: Vec<_> = called.iter().filter(|one| one.key.kind.is_binding()).collect();
    bindings.sort_by_key(|one| one.former);
    let mut files = policies::files(bindings.into_iter().map(|one| (&one.key, &one.content, Some(&*one.state))));
    for (kind, items) in lists {
        let Some(hook_type) = kind.hook_type() else { continue };
        for item in items {
            let metadata = &item["metadata"];
            let name = metadata["name"].as_str().ok_or("an object has no name")?;
            let Some(called) = by_configuration.get(&(hook_type, name)) else { continue };
            let at_once = called.iter().filter(|one| one.at_once).map(|one| one.key.name.as_str());
            let at_once = at_once.collect::<Vec<_>>().join(" ");
            let mut annotations = serde_json::Map::new();
            for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
                // An invalid value would make the whole document invalid, with all of its webhooks.
                if key.starts_with("gatepost.dev/") && !is_misspelt(key, value.as_str()) {
                    annotations.insert(key.clone(), value.clone());
                }
            }
            let states = called.iter().map(|one| format!("{}={}", one.key.name, one.state));
            annotations.insert(ENTRY_STATES.to_owned(), states.collect::<Vec<_>>().join(" ").into());
            annotations.remove(CALL_AT_ONCE);
            // Which of two webhooks decides must not depend on which of them is adopted yet.
            annotations.remove(Canary::ANNOTATION);
            if !at_once.is_empty() {
                annotations.insert(CALL_AT_ONCE.to_owned(), at_once.into());
            }
            let entries: Vec<_> = called.iter().map(|one| &one.content).collect();
            let metadata = json!({"uid": metadata["uid"], "annotations": annotations});
            files.push(file((hook_type, name), metadata, json!(entries)));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;

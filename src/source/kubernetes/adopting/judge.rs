//! Verdict on an entry of others: whether it can be served, and whether our registration sends its requests.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::objects::Kind;
use gatepost_adopt::{AdoptionSettings, AssessedEntry, ClusterEntry, EntryKey, ObjectAccess, Reason, webhooks_of};
use gatepost_api::{AdoptionCondition, Hook, HookType, registration::is_our_webhook};
use gatepost_cel::Condition;
use gatepost_config::{
    Snapshot,
    coverage::{Atom, Registration, atoms_of, foreign_condition, selectors},
    hazards::Severity,
    load,
};
use gatepost_tls::SystemRoots;

/// Maximum duration of a request in seconds.
const MAX_REQUEST_SECONDS: u64 = 60;

/// Our own registrations of one type.
pub(super) struct OwnRegistrations<'a> {
    pub(super) items: Vec<&'a Value>,
    /// Registrations that an apiserver still calls: `items`, and those that are being deleted.
    pub(super) called: Vec<&'a Value>,
    pub(super) registration: Registration,
    /// Requests that an apiserver still sends.
    sent: Registration,
    /// Message if there are several registrations, and the one that leads here is unknown.
    pub(super) ambiguous: Option<String>,
    /// Message if one of their entries cannot be relied on.
    pub(super) conditional: Option<String>,
    /// Namespaces in which the apiserver goes on calling adopted webhooks; `None` if unknown.
    pub(super) never_sent: Option<Vec<String>>,
}

impl<'a> OwnRegistrations<'a> {
    pub(super) fn among(items: &'a [Value], settings: &AdoptionSettings) -> Self {
        let ours: Vec<_> = items.iter().filter(|item| settings.is_our_own(item)).collect();
        let names: Vec<_> = ours.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        let ambiguous = (names.len() > 1).then(|| {
            format!(
                "there are several ({}), and which lead here is not known; give serve --registration NAME",
                names.join(", ")
            )
        });
        // A registration that is being deleted is still in force, but its webhooks are already given back.
        let lasts = |item: &&Value| item["metadata"]["deletionTimestamp"].is_null();
        let items: Vec<_> = ours.iter().copied().filter(lasts).collect();
        let conditional = items.iter().find_map(|item| conditional(item));
        let read = |items: &[&Value]| Registration::read(items.iter().copied().map(reliable_part)).unwrap_or_default();
        let (registration, sent) = (read(&items), read(&ours));
        let never_sent = match items[..] {
            [item] if ambiguous.is_none() => Some(never_sent(item)),
            _ => None,
        };
        Self { items, called: ours, registration, sent, ambiguous, conditional, never_sent }
    }
}

/// Returns the namespaces that our registration excludes on purpose, as far as a match condition can express them. None
/// if any entry leads elsewhere than to a Service, as for a replica beside an apiserver.
fn never_sent(item: &Value) -> Vec<String> {
    let entries = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    if !entries.iter().all(|entry| entry["clientConfig"]["service"].is_object()) {
        return Vec::new();
    }
    let names = selectors::never_sent(item, entries);
    let condition = AdoptionCondition::default().in_namespaces(names.iter().map(String::as_str));
    condition.namespaces().map(str::to_owned).collect()
}

/// Returns true if a hook of our own configuration is isolated. Another mutating webhook then changes the segments
/// regardless of the current registration, and upkeep would alternately register the segments with it and without it.
pub(super) fn isolates(lists: &[(Kind, Vec<Value>)]) -> bool {
    fn says(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.iter().any(|(key, value)| key == "isolate" && *value == true || says(value)),
            Value::Array(list) => list.iter().any(says),
            _ => false,
        }
    }
    lists.iter().any(|(kind, items)| *kind == Kind::Configuration && items.iter().any(says))
}

fn conditional(item: &Value) -> Option<String> {
    item["webhooks"].as_array()?.iter().find_map(|entry| {
        let (name, condition) = (entry["name"].as_str().unwrap_or_default(), foreign_condition(entry)?);
        Some(format!("its entry {name} is not counted on: remove the match condition {condition} from it"))
    })
}

/// Returns a copy of the registration, without entries on which a foreign condition may prevent requests, and without
/// fields that an apiserver adds.
fn reliable_part(item: &Value) -> Value {
    let relied_on = item["webhooks"].as_array().map(|entries| {
        let relied_on = entries.iter().filter(|entry| foreign_condition(entry).is_none());
        relied_on.collect::<Vec<_>>()
    });
    json!({
        "apiVersion": item["apiVersion"], "kind": item["kind"],
        "metadata": {"name": item["metadata"]["name"]}, "webhooks": relied_on,
    })
}

/// Adds to `in_flight` of mutating entries the time from an apiserver's decision on them to its call of Gatepost. It calls webhooks in sequence, in the order of their configurations' names.
pub(super) fn set_in_flight(seen: &mut [AssessedEntry], items: &[Value], own: &OwnRegistrations<'_>) {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let Some(last) = own.called.iter().map(|item| name(item)).max() else { return };
    let seconds = |entry: &Value| entry["timeoutSeconds"].as_u64().unwrap_or(10).min(30);
    let ours = own.called.iter().flat_map(|item| item["webhooks"].as_array().into_iter().flatten());
    // The request may be sent by the last of our own entries, so the timeouts of the others count.
    let ours: u64 = ours.map(seconds).collect::<Vec<_>>().split_last().map_or(0, |(_, before)| before.iter().sum());
    let before = items.iter().filter(|item| name(item) < last && !own.called.contains(item));
    let before: u64 = before
        .flat_map(|item| webhooks_of(HookType::Mutating, item))
        .filter(|standing| !standing.carries)
        .map(|standing| seconds(&standing.content))
        .sum();
    for seen in seen.iter_mut().filter(|seen| seen.standing.key.kind.hook_type() == HookType::Mutating) {
        let key = &seen.standing.key;
        let itself = !key.kind.is_binding() && !seen.standing.carries && key.configuration < last;
        let others = before - if itself { seconds(&seen.standing.content) } else { 0 };
        // Policies come before all webhooks.
        seen.in_flight += Duration::from_secs((others + ours).min(MAX_REQUEST_SECONDS));
    }
}

/// Verdict on one webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) unservable: Option<Reason>,
    pub(super) reason_not_to_adopt: Option<Reason>,
    pub(super) unsent: bool,
    pub(super) uses_authorizer: bool,
    pub(super) reads: Vec<ObjectAccess>,
}

impl Verdict {
    pub(super) fn unservable(what: String) -> Self {
        Self { unservable: Some(Reason::Unservable(what)), ..Self::default() }
    }
}

impl OwnRegistrations<'_> {
    /// Returns the reason if the registration does not send all that the snapshot needs. `elsewhere` are namespaces in
    /// which the apiserver goes on using the entry.
    pub(super) fn uncovered(&self, snapshot: &Snapshot, elsewhere: &[String]) -> Option<Reason> {
        if let Some(why) = &self.ambiguous {
            return Some(Reason::Uncovered(why.clone()));
        }
        if self.registration.is_empty() {
            let none = || "there is none in this cluster".to_owned();
            return Some(Reason::Uncovered(self.conditional.clone().unwrap_or_else(none)));
        }
        // Every other gap counts, including intended ones and those that fail open: there the apiserver uses the entry
        // until it is adopted.
        let gap = self.registration.gaps_outside(snapshot, elsewhere).into_iter().next()?;
        let condition = self.conditional.as_ref().map(|what| format!("; {what}")).unwrap_or_default();
        Some(Reason::Uncovered(format!("{}{condition}", gap.what)))
    }

    /// Returns true if an apiserver sends only some of the requests that the snapshot needs, or none.
    pub(super) fn leaves_unsent(&self, snapshot: &Snapshot, elsewhere: &[String]) -> bool {
        self.ambiguous.is_none() && (self.sent.is_empty() || !self.sent.gaps_outside(snapshot, elsewhere).is_empty())
    }

    /// Returns the reason not to add a mutating entry. If announced, it would move our own hooks to other segments than
    /// registered, or be in a segment that does not receive its requests. For some time after such a change, requests of
    /// segments are rejected.
    pub(super) fn segmented(&self, hook_type: HookType, isolates: bool) -> Option<Reason> {
        let is_segmented = isolates || self.registration.has_segments();
        (hook_type == HookType::Mutating && is_segmented).then(|| {
            Reason::Hazard(
                "Gatepost's hooks are in segments, and another mutating webhook would change these; take \
                 `isolate: true` off the hooks and register Gatepost again, or leave this one to the apiserver"
                    .to_owned(),
            )
        })
    }
}

pub(super) fn judge(
    standing: &ClusterEntry,
    (own, isolates): (&OwnRegistrations<'_>, bool),
    namespace: &str,
) -> Verdict {
    let not = |reason: Reason| Verdict { unservable: Some(reason), ..Verdict::default() };
    if standing.foreign {
        return not(Reason::ForeignCondition);
    }
    if is_our_webhook(&standing.key.name) {
        return not(Reason::NamedLikeOurs);
    }
    let unservable = Verdict::unservable;
    let EntryKey { kind, configuration, .. } = &standing.key;
    let file = super::file((kind.hook_type(), configuration), json!({"uid": standing.uid}), json!([standing.content]));
    let snapshot = match load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())) {
        Ok(snapshot) => snapshot,
        Err(problems) => return unservable(problems.first().map_or_else(String::new, ToString::to_string)),
    };
    let roots = SystemRoots::default();
    for hook in &snapshot.hooks {
        let Some(wanted) = &hook.endpoint.tls else { continue };
        if let Err(error) = gatepost_tls::client_config(wanted, hook.endpoint.transport, &roots) {
            return unservable(format!("{error}; {}", error.fix()));
        }
    }
    let deadlock = || {
        let findings = snapshot.hazards();
        let found = findings.into_iter().find(|finding| finding.severity == Severity::Deadlock)?;
        Some(Reason::Hazard(format!("{}: {}", found.rule, found.sentence())))
    };
    let judges_our_leases = || {
        let guards = |hook: &Hook| {
            let matches = |atom: Atom| {
                ["*", "coordination.k8s.io"].contains(&&*atom.group)
                    && ["*", "*/*", "leases"].contains(&&*atom.resource)
            };
            let fails_closed = hook.fails_closed(hook.failure_policy);
            let here = snapshot.selects_namespace(&hook.namespace_selector, namespace) == Some(true);
            fails_closed && here && atoms_of(hook).into_iter().any(matches)
        };
        snapshot.hooks.iter().any(|hook| guards(hook)).then(|| {
            Reason::Hazard(format!(
                "it judges the leases by which replicas agree: while it is down, it could not be given back; leave the \
                 namespace {namespace} out of its namespaceSelector"
            ))
        })
    };
    let never_sent = own.never_sent.as_deref().unwrap_or_default();
    // In namespaces that are never sent, the apiserver goes on calling the webhook.
    let uncovered = || own.uncovered(&snapshot, never_sent);
    let renumbers = || own.segmented(kind.hook_type(), isolates);
    let mut conditions = (0..).map_while(|index| snapshot.origin(index)).flat_map(|origin| origin.conditions.iter());
    let uses_authorizer = conditions.any(Condition::uses_authorizer);
    let unsent = own.leaves_unsent(&snapshot, never_sent);
    let reason_not_to_adopt = deadlock().or_else(judges_our_leases).or_else(renumbers).or_else(uncovered);
    Verdict { reason_not_to_adopt, unsent, uses_authorizer, ..Verdict::default() }
}

//! Own: our registrations among the webhook configurations of a cluster.

use std::time::Duration;

use serde_json::{Value, json};

use super::{super::objects::Kind, Adopt};
use crate::{
    adopt::{SeenWebhook, standings},
    model::{HookType, ServedCondition},
    snapshot::coverage::{Registration, foreign_condition, selectors},
};

/// Our own registrations of one type.
pub(super) struct Own<'a> {
    pub(super) items: Vec<&'a Value>,
    /// Registrations that an apiserver still calls: those, and others that are being deleted.
    pub(super) called: Vec<&'a Value>,
    pub(super) registration: Registration,
    /// Everything that an apiserver sends still.
    pub(super) sent: Registration,
    /// Message where there are several, and the one that leads here is unknown.
    pub(super) ambiguous: Option<String>,
    /// Message where an entry of them is not relied on.
    pub(super) conditional: Option<String>,
    /// Namespaces in which the apiserver goes on calling webhooks that are taken over; `None` where that is unknown.
    pub(super) never_sent: Option<Vec<String>>,
}

impl<'a> Own<'a> {
    pub(super) fn among(items: &'a [Value], adopt: &Adopt) -> Self {
        let ours: Vec<_> = items.iter().filter(|item| adopt.is_our_own(item)).collect();
        let names: Vec<_> = ours.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        let ambiguous = (names.len() > 1).then(|| {
            format!(
                "there are several ({}), and which lead here is not known; give serve --registration NAME",
                names.join(", ")
            )
        });
        // One that is being deleted is in force still, and will not be: what it covers is given back meanwhile.
        let lasts = |item: &&Value| item["metadata"]["deletionTimestamp"].is_null();
        let items: Vec<_> = ours.iter().copied().filter(lasts).collect();
        let conditional = items.iter().find_map(|item| conditional(item));
        let read = |items: &[&Value]| Registration::read(items.iter().copied().map(relied_on)).unwrap_or_default();
        let (registration, sent) = (read(&items), read(&ours));
        let never_sent = match items[..] {
            [item] if ambiguous.is_none() => Some(never_sent(item)),
            _ => None,
        };
        Self { items, called: ours, registration, sent, ambiguous, conditional, never_sent }
    }
}

/// Namespaces that our registration leaves out on purpose, where all of it leads to a Service, as far as a condition can say
/// so. Beside an apiserver nothing has to be left out.
fn never_sent(item: &Value) -> Vec<String> {
    let entries = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    if !entries.iter().all(|entry| entry["clientConfig"]["service"].is_object()) {
        return Vec::new();
    }
    let names = selectors::never_sent(item, entries);
    let condition = ServedCondition::default().in_namespaces(names.iter().map(String::as_str));
    condition.namespaces().map(str::to_owned).collect()
}

/// Is a hook of our own configuration isolated? One more mutating webhook is then in another segment, whatever is registered
/// now: upkeep would register the segments with it, and then without it, for ever.
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

/// Copy of the registration without entries that a foreign condition may keep from sending anything, and without what an apiserver
/// adds.
fn relied_on(item: &Value) -> Value {
    let mut item = bare(item.clone());
    if let Some(entries) = item["webhooks"].as_array_mut() {
        entries.retain(|entry| foreign_condition(entry).is_none());
    }
    item
}

/// Sets for mutating webhooks the time from an apiserver's evaluation of their conditions to its call of us: it calls
/// webhooks in sequence, and first those whose configurations come before ours by name.
pub(super) fn hold_back(seen: &mut [SeenWebhook], items: &[Value], own: &Own<'_>) {
    /// No request takes longer.
    const MOST: u64 = 60;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let Some(last) = own.called.iter().map(|item| name(item)).max() else { return };
    let seconds = |entry: &Value| entry["timeoutSeconds"].as_u64().unwrap_or(10).min(30);
    let ours = own.called.iter().flat_map(|item| item["webhooks"].as_array().into_iter().flatten());
    // Of our own entries, the last one may be the one that sends it.
    let ours: u64 = ours.map(seconds).collect::<Vec<_>>().split_last().map_or(0, |(_, before)| before.iter().sum());
    let before = items.iter().filter(|item| name(item) < last && !own.called.contains(item));
    let before: u64 = before
        .flat_map(|item| standings(HookType::Mutating, item))
        .filter(|standing| !standing.carries)
        .map(|standing| seconds(&standing.entry))
        .sum();
    for seen in seen.iter_mut().filter(|seen| seen.standing.key.hook_type == HookType::Mutating) {
        let itself = !seen.standing.carries && seen.standing.key.configuration < last;
        let others = before - if itself { seconds(&seen.standing.entry) } else { 0 };
        seen.in_flight = Duration::from_secs((others + ours).min(MOST));
    }
}

/// The registration without what an apiserver adds.
pub(super) fn bare(object: Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": object["metadata"]["name"]}, "webhooks": object["webhooks"],
    })
}

//! Our registrations, and the finalizers that keep them while webhooks are taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_api::HookType;
use serde_json::Value;

use crate::{FINALIZER, Route};

/// Time for which a registration keeps its finalizer after the last read that found a webhook taken over or announced.
/// Until then, an apiserver might not have observed that it must call a webhook again.
const FINALIZER_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// A registration of ours, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRegistration {
    /// Kind of the configuration.
    pub hook_type: HookType,
    /// Name of the configuration.
    pub name: String,
    /// uid and resourceVersion, as they were read.
    pub read: (String, String),
    /// It has our finalizer.
    pub guarded: bool,
    /// It is being deleted; a finalizer keeps it.
    pub deleted: bool,
    /// Routes from apiservers to us, by its entries.
    pub routes: BTreeSet<Route>,
}

/// Change of the finalizer of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalizerChange {
    /// The registration.
    pub registration: OwnRegistration,
    /// True to add the finalizer, false to remove it.
    pub add: bool,
}

impl OwnRegistration {
    /// Parses an object; returns `None` if it has no name.
    pub fn of(hook_type: HookType, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let finalizers = metadata["finalizers"].as_array();
        let entries = object["webhooks"].as_array().into_iter().flatten();
        Some(Self {
            hook_type,
            name: metadata["name"].as_str()?.to_owned(),
            read: (text("uid"), text("resourceVersion")),
            guarded: finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER)),
            deleted: !metadata["deletionTimestamp"].is_null(),
            routes: entries.map(|entry| Route::of(&entry["clientConfig"])).collect(),
        })
    }
}

/// Times until which registrations keep their finalizer, by hook type.
#[derive(Debug, Default)]
pub(crate) struct Finalizers(BTreeMap<HookType, Duration>);

impl Finalizers {
    /// Returns the finalizers to change after a read that began at `now`. `needed` are the types of the webhooks that
    /// carry the condition, are announced, or are ending. These need the registrations of their type.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        registrations: &[OwnRegistration],
        needed: impl Iterator<Item = HookType>,
    ) -> Vec<FinalizerChange> {
        self.0.extend(needed.map(|hook_type| (hook_type, now + FINALIZER_GRACE_PERIOD)));
        let mut changes = Vec::new();
        for registration in registrations {
            // A finalizer that exists at the first turn might have been needed until now.
            let initial = if registration.guarded { now + FINALIZER_GRACE_PERIOD } else { now };
            let add = now < *self.0.entry(registration.hook_type).or_insert(initial);
            if add != registration.guarded && !(add && registration.deleted) {
                changes.push(FinalizerChange { registration: registration.clone(), add });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registered(finalizers: Value, deleted: Value) -> OwnRegistration {
        let metadata = json!({"name": "gatepost", "uid": "u", "resourceVersion": "1", "finalizers": finalizers,
            "deletionTimestamp": deleted});
        OwnRegistration::of(HookType::Validating, &json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn finalizer_stays_until_the_grace_period_after_the_last_taken_webhook() {
        let (mut finalizers, at) = (Finalizers::default(), Duration::from_secs);
        let (free, held) = (registered(json!(["x"]), Value::Null), registered(json!(["x", FINALIZER]), Value::Null));
        let mut step = |second, one: &OwnRegistration, carries, announced| {
            let found = finalizers.step(
                at(second),
                std::slice::from_ref(one),
                (carries || announced).then_some(HookType::Validating).into_iter(),
            );
            found.first().map(|change| change.add)
        };
        assert_eq!(step(0, &free, false, false), None);
        assert_eq!(step(1, &free, false, true), Some(true), "before anything is taken");
        assert_eq!(step(2, &held, true, false), None);
        assert_eq!(step(6, &held, false, false), None);
        assert_eq!(step(7, &held, false, false), Some(false));
        assert_eq!(step(8, &free, false, false), None);
        let going = registered(json!(["x"]), json!("2026-11-21T00:00:00Z"));
        assert_eq!(step(9, &going, true, false), None, "what is being deleted takes no finalizer");
        let going = registered(json!([FINALIZER]), json!("2026-11-21T00:00:00Z"));
        assert_eq!((step(10, &going, false, false), step(14, &going, false, false)), (None, Some(false)));
        let mut new = Finalizers::default();
        let mut later = |second| new.step(at(second), std::slice::from_ref(&held), std::iter::empty()).len();
        assert_eq!((later(0), later(4), later(5)), (0, 0, 1), "one that begins does not know until when it was needed");
    }
}

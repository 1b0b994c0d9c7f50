//! Guards: finalizers of our own registrations, which keep them while something is taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{GUARD, SeenWebhook, Way};
use crate::model::HookType;

/// Time for which a registration is kept after the last read that found a webhook taken over or announced: until then
/// an apiserver may not have observed that it calls a webhook again.
const KEPT: Duration = Duration::from_secs(5);

/// A registration of ours, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its kind.
    pub hook_type: HookType,
    /// Its name.
    pub name: String,
    /// Its uid and its resourceVersion.
    pub read: (String, String),
    /// It has our finalizer.
    pub guarded: bool,
    /// Somebody has deleted it; a finalizer keeps it.
    pub deleted: bool,
    /// Ways by which its entries lead to us.
    pub ways: BTreeSet<Way>,
}

/// A finalizer that is to be put on a registration, or taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The registration.
    pub registered: Registered,
    /// It is to be held.
    pub on: bool,
}

/// Times until which registrations are kept, by hook type.
#[derive(Debug, Default)]
pub(super) struct Guards(BTreeMap<HookType, Duration>);

impl Registered {
    /// Reads an object; `None` where it has no name.
    pub fn of(hook_type: HookType, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let finalizers = metadata["finalizers"].as_array();
        Some(Self {
            hook_type,
            name: metadata["name"].as_str()?.to_owned(),
            read: (text("uid"), text("resourceVersion")),
            guarded: finalizers.is_some_and(|all| all.iter().any(|one| one == GUARD)),
            deleted: !metadata["deletionTimestamp"].is_null(),
            ways: object["webhooks"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| Way::of(&one["clientConfig"]))
                .collect(),
        })
    }
}

impl Guards {
    /// Finalizers to add or remove after a read that began at `now`. A webhook that carries the condition needs the
    /// registrations of its type, and so does one that is announced (`announces`, by its index in `seen`).
    pub(super) fn step(
        &mut self,
        now: Duration,
        registered: &[Registered],
        seen: &[SeenWebhook],
        announces: impl Fn(usize) -> bool,
    ) -> Vec<Guard> {
        for (place, seen) in seen.iter().enumerate() {
            if seen.standing.carries || announces(place) {
                self.0.insert(seen.standing.key.hook_type, now + KEPT);
            }
        }
        let mut guards = Vec::new();
        for one in registered {
            // One that is guarded when we begin may have been needed until now.
            let until = *self.0.entry(one.hook_type).or_insert(if one.guarded { now + KEPT } else { now });
            let on = now < until;
            if on != one.guarded && !(on && one.deleted) {
                guards.push(Guard { registered: one.clone(), on });
            }
        }
        guards
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adopt::standings;

    fn seen(carries: bool) -> SeenWebhook {
        let mut entry = json!({"name": "w"});
        if carries {
            entry["matchConditions"] = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        }
        let object = json!({"metadata": {"name": "c"}, "webhooks": [entry]});
        SeenWebhook::sound(standings(HookType::Validating, &object).remove(0))
    }

    fn registered(finalizers: Value, deleted: Value) -> Registered {
        let metadata = json!({"name": "gatepost", "uid": "u", "resourceVersion": "1", "finalizers": finalizers,
            "deletionTimestamp": deleted});
        Registered::of(HookType::Validating, &json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_registration_is_kept_while_something_is_taken_over_and_a_while_longer() {
        let (mut guards, at) = (Guards::default(), Duration::from_secs);
        let (free, held) = (registered(json!(["x"]), Value::Null), registered(json!(["x", GUARD]), Value::Null));
        let mut step = |second, one: &Registered, carries, announced| {
            let found = guards.step(at(second), std::slice::from_ref(one), &[seen(carries)], |_| announced);
            found.first().map(|guard| guard.on)
        };
        assert_eq!(step(0, &free, false, false), None);
        assert_eq!(step(1, &free, false, true), Some(true), "before anything is taken");
        assert_eq!(step(2, &held, true, false), None);
        assert_eq!(step(6, &held, false, false), None);
        assert_eq!(step(7, &held, false, false), Some(false));
        assert_eq!(step(8, &free, false, false), None);
        let going = registered(json!(["x"]), json!("2026-11-21T00:00:00Z"));
        assert_eq!(step(9, &going, true, false), None, "what is being deleted takes no finalizer");
        let going = registered(json!([GUARD]), json!("2026-11-21T00:00:00Z"));
        assert_eq!((step(10, &going, false, false), step(14, &going, false, false)), (None, Some(false)));
        let mut new = Guards::default();
        let mut later = |second| new.step(at(second), std::slice::from_ref(&held), &[seen(false)], |_| false).len();
        assert_eq!((later(0), later(4), later(5)), (0, 0, 1), "one that begins does not know until when it was needed");
    }
}

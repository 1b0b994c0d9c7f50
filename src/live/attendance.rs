//! Attendance: instances of each initializer that a process acts for, and the objects that wait.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use super::Current;
use crate::{initialize::desk::NameState, model::FailurePolicy, telemetry::Attendance};

/// The attendance of each configured initializer with `attach`, by name.
pub fn attendance(current: &Current, now: Instant) -> Vec<Attendance> {
    let generation = current.load();
    let mut configured = BTreeMap::<&Arc<str>, FailurePolicy>::new();
    let all = generation.snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
    for one in all.filter(|one| one.attach.is_some()) {
        let policy = configured.entry(&one.name).or_insert(one.failure_policy);
        if *policy == FailurePolicy::Ignore {
            *policy = one.failure_policy;
        }
    }
    if configured.is_empty() {
        return Vec::new();
    }
    let (names, began) = (current.hub().names(), current.hub().started());
    let states: HashMap<&str, &NameState> = names.iter().map(|state| (&*state.name, state)).collect();
    let one = |(name, failure_policy): (&Arc<str>, FailurePolicy)| {
        let state = states.get(&**name);
        let since = |at: Instant| now.saturating_duration_since(at);
        Attendance {
            name: Arc::clone(name),
            failure_policy,
            instances: state.map_or(0, |state| state.instances),
            holds: state.map_or(0, |state| state.queued + state.assigned),
            oldest: state.and_then(|state| state.oldest).map(since),
            unattended: state.map_or(Some(began), |state| state.vacant_since).map(since),
            proven: state.is_none_or(|state| state.proven),
            never_attached: state.is_none_or(|state| !state.ever_attached),
        }
    };
    configured.into_iter().map(one).collect()
}

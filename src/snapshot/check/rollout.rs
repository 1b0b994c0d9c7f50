//! `rollout`: steps of bringing a hook into rotation.

use std::time::Duration;

use crate::{
    model::{FailurePolicy, OnProbeFailure, Rollout},
    snapshot::document::{
        node::{Node, UNCLEAR, given},
        problem::quoted,
        value::Value,
    },
};

/// The keys of `rollout`.
pub(crate) const KEYS: [&str; 3] = ["createAs", "probeWithin", "onProbeFailure"];

pub(crate) const ON_PROBE_FAILURE: [(&str, OnProbeFailure); 2] =
    [("Wait", OnProbeFailure::Wait), ("Enforce", OnProbeFailure::Enforce)];

/// The shortest and longest time that may be said.
const WITHIN: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Rollout of an entry: the failure policy in force meanwhile, where there is one, and the bound on probing.
pub(crate) fn check(at: &Node<'_>) -> (Option<FailurePolicy>, Rollout) {
    let mut rollout = Rollout::default();
    if !at.present() || !at.is_map_of(&KEYS) {
        return (None, rollout);
    }
    if !KEYS.iter().any(|key| at.key(key).present()) {
        at.problem(
            "is empty",
            "so it would have no effect",
            "write createAs: Ignore, probeWithin or onProbeFailure, or remove rollout",
        );
    }
    if let Some(within) = given(at.key("probeWithin")).and_then(|at| probe_within(&at)) {
        rollout.probe_within = within;
    }
    if let Some(choice) = given(at.key("onProbeFailure")).and_then(|at| at.choice(&ON_PROBE_FAILURE)) {
        rollout.on_probe_failure = choice;
    }
    let create_as = given(at.key("createAs")).and_then(|at| at.choice(&[("Ignore", FailurePolicy::Ignore)]));
    (create_as, rollout)
}

fn probe_within(at: &Node<'_>) -> Option<Duration> {
    const FIX: &str = "write a time from 1s to 24h, such as 5m";
    let Value::Text(text) = at.value else {
        at.problem(format!("is {}, not a time with its unit", at.value.kind()), UNCLEAR, FIX);
        return None;
    };
    match humantime::parse_duration(text) {
        Ok(time) if WITHIN.contains(&time) => Some(time),
        Ok(_) => {
            at.problem(format!("{} is out of range", quoted(text)), "and a rollout waits no longer than a day", FIX);
            None
        }
        Err(_) => {
            at.problem(format!("{} is not a time with its unit", quoted(text)), UNCLEAR, FIX);
            None
        }
    }
}

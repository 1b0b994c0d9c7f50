//! The page `/configz`: what is in force, how fresh it is, and what was rejected.

use std::time::{Instant, SystemTime};

use serde_json::{Value, json};

use crate::{
    live::{Current, Draining, LiveHook, Namespaces, Rejection, Rotation},
    snapshot::hazards::Finding,
};

/// The page as JSON.
pub(super) fn page(current: &Current, namespaces: Option<&Namespaces>) -> Value {
    let generation = current.load();
    let now = Instant::now();
    json!({
        "generation": {
            "number": generation.number,
            "digest": generation.digest,
            "revision": generation.revision.to_string(),
            "published": (generation.number > 0).then(|| time(generation.published)),
        },
        "freshness": {
            "ageSeconds": current.age(now).map(|age| age.as_secs_f64()),
            "stale": !current.is_fresh(now),
        },
        "namespaces": known(namespaces, now),
        "rejected": current.rejected().as_deref().map(rejection),
        "draining": current.is_draining(),
        "hooks": generation.hooks.iter().map(hook).collect::<Vec<_>>(),
        "leaving": leaving(current),
        "hazards": generation.snapshot.findings().iter().map(Finding::describe).collect::<Vec<_>>(),
        "configuration": generation.snapshot.describe(),
    })
}

/// Where the labels of namespaces are followed, how many are known and how old that is.
fn known(namespaces: Option<&Namespaces>, now: Instant) -> Value {
    json!({
        "followed": namespaces.is_some(),
        "count": namespaces.map(Namespaces::len),
        "ageSeconds": namespaces.and_then(|known| known.age(now)).map(|age| age.as_secs_f64()),
        "stale": namespaces.map(|known| !known.is_fresh(now)),
    })
}

fn hook(live: &LiveHook) -> Value {
    let rotation = match &live.rotation {
        Rotation::Probing { since, last_failure } => json!({
            "state": "Probing",
            "since": time(*since),
            "lastFailure": last_failure.as_ref().map(ToString::to_string),
        }),
        Rotation::Active { since } => json!({ "state": "Active", "since": time(*since) }),
    };
    // A hook that has moved is still asked at its old endpoint.
    let replacement = live.replacing.as_ref().map(|replacement| {
        json!({
            "endpoint": replacement.channel.endpoint().to_string(),
            "since": time(replacement.since),
            "lastFailure": replacement.last_failure.as_ref().map(ToString::to_string),
        })
    });
    json!({
        "name": &*live.hook.name,
        "endpoint": live.channel.endpoint().to_string(),
        "effectivePolicy": live.hook.failure_policy.as_str(),
        "timeoutMilliseconds": live.hook.timeout.as_millis() as u64,
        "rotation": rotation,
        "replacement": replacement,
    })
}

/// Hooks that are no longer asked, but still answer requests that began before.
fn leaving(current: &Current) -> Vec<Value> {
    let draining = |hook: &Draining| json!({ "name": &*hook.hook, "state": "Draining", "since": time(hook.since) });
    current.leaving().iter().map(draining).collect()
}

fn rejection(rejection: &Rejection) -> Value {
    let problems = rejection
        .problems
        .iter()
        .map(|problem| json!({ "file": problem.file, "path": problem.path, "what": problem.what, "fix": problem.fix }));
    json!({ "since": time(rejection.since), "problems": problems.collect::<Vec<_>>() })
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

//! The page `/configz`: the configuration in force, its age, and the problems of the rejected one.

use std::time::{Instant, SystemTime};

use serde_json::{Value, json};

use crate::{
    live::{
        Current, FailedRead, LastGoodState, LiveHook, Namespaces, Overdue, Rejection, RetiredEntry, Rotation,
        Unconfirmed, break_glass::BreakGlassState,
    },
    replicas::{PublishStatus, Replica, replica_report},
    snapshot::{Problem, describe_protocol, hazards::Finding},
};

/// The page as JSON.
pub(crate) fn page(current: &Current, replica: &Replica, namespaces: Option<&Namespaces>) -> Value {
    let generation = current.load();
    let now = Instant::now();
    json!({
        "replica": replica_report(current, replica, (Instant::now(), SystemTime::now()), usize::MAX),
        "telling": publish_status(&replica.publish_status()),
        "generation": {
            "number": generation.number,
            "digest": generation.digest,
            "revision": generation.revision.to_string(),
            "published": (generation.number > 0).then(|| time(generation.published)),
        },
        "freshness": {
            "ageSeconds": current.age(now).map(|age| age.as_secs_f64()),
            "stale": !current.is_fresh(now),
            "lastFailure": current.failed_read().as_deref().map(failed_read),
        },
        "namespaces": known(namespaces, now),
        "rejected": current.rejected().as_deref().map(rejection),
        "unconfirmed": current.unconfirmed().as_deref().map(unconfirmed),
        "lastGood": current.last_good().as_deref().map(last_good),
        "breakGlass": break_glass(current, now),
        "draining": current.is_draining(),
        "hooks": generation.hooks.iter().map(hook).collect::<Vec<_>>(),
        "leaving": leaving(current),
        "hazards": generation.snapshot.findings().iter().map(Finding::describe).collect::<Vec<_>>(),
        "configuration": generation.snapshot.describe(),
    })
}

/// Place of this replica's reports, and the progress of publishing.
fn publish_status(status: &PublishStatus) -> Value {
    json!({ "place": status.place, "told": status.published.map(time), "failure": status.failure })
}

/// Break-glass that is open, was, or will be.
fn break_glass(current: &Current, now: Instant) -> Value {
    let documents = current.break_glass().documents(now, SystemTime::now());
    let documents = documents.iter().map(|(glass, standing)| {
        json!({
            "name": &*glass.name,
            "state": match standing {
                BreakGlassState::Open => "Open",
                BreakGlassState::NotYet => "NotYet",
                BreakGlassState::Expired => "Expired",
            },
            "hooks": (!glass.is_about_all()).then_some(&glass.hooks),
            "opened": time(glass.opened),
            "until": time(glass.until()),
            "reason": &*glass.reason,
            "by": &*glass.by,
        })
    });
    json!({ "documents": documents.collect::<Vec<_>>(), "fileProblem": current.break_glass().file_problem() })
}

/// Number and age of the known namespaces, where they are followed.
fn known(namespaces: Option<&Namespaces>, now: Instant) -> Value {
    json!({
        "followed": namespaces.is_some(),
        "count": namespaces.map(Namespaces::len),
        "ageSeconds": namespaces.and_then(|known| known.age(now)).map(|age| age.as_secs_f64()),
        "stale": namespaces.map(|known| !known.is_fresh(now)),
    })
}

fn hook(live: &LiveHook) -> Value {
    let mut rotation = json!({ "state": live.rotation.as_str(), "since": time(live.rotation.since()) });
    if let Rotation::Probing { last_failure, .. } = &live.rotation {
        rotation["lastFailure"] = last_failure.as_ref().map(ToString::to_string).into();
    }
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
        "endpoint": live.target.endpoint().to_string(),
        "protocol": describe_protocol(live.target.protocol()),
        "effectivePolicy": live.effective_policy().as_str(),
        "timeoutMilliseconds": live.target.timeout().as_millis() as u64,
        "rotation": rotation,
        "replacement": replacement,
        "overdue": live.overdue.as_ref().map(overdue),
    })
}

/// A hook that has waited too long for a probe to pass.
fn overdue(overdue: &Overdue) -> Value {
    json!({
        "since": time(overdue.since),
        "probeWithin": humantime::format_duration(overdue.within).to_string(),
        "lastFailure": overdue.last_failure.as_ref().map(ToString::to_string),
    })
}

/// Configuration that waits for a second read that lets the same go.
fn unconfirmed(unconfirmed: &Unconfirmed) -> Value {
    json!({
        "since": time(unconfirmed.since),
        "revision": unconfirmed.revision.to_string(),
        "relaxations": unconfirmed.relaxations.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Hooks and initializers that are no longer asked, but still answer requests that began before.
fn leaving(current: &Current) -> Vec<Value> {
    let leaving = current.leaving();
    leaving.iter().map(draining).collect()
}

fn draining(retired: &RetiredEntry) -> Value {
    let rotation = &retired.rotation;
    json!({ "name": &*retired.name, "state": rotation.as_str(), "since": time(rotation.since()) })
}

/// Failure of the last read, and since when reads fail; nothing after a good one.
fn failed_read(failed: &FailedRead) -> Value {
    json!({ "error": failed.error, "since": time(failed.since), "count": failed.count })
}

/// The last good configuration on disk.
fn last_good(state: &LastGoodState) -> Value {
    json!({
        "path": state.path,
        "saved": state.saved.map(time),
        "failure": state.failure,
        "refused": state.refused,
        "inUse": state.in_use.as_ref().map(|it| json!({ "written": time(it.written), "why": it.why })),
    })
}

fn rejection(rejection: &Rejection) -> Value {
    let problems = rejection.problems.iter().map(|problem| {
        let Problem { file, path, what, why, fix } = problem;
        json!({ "file": file, "path": path, "what": what, "why": why, "fix": fix })
    });
    let held = rejection.held.iter().map(|held| {
        json!({
            "document": held.document,
            "inForce": if held.keeps { "last good state" } else { "nothing" },
            "since": time(held.since),
            "why": held.problem.to_string(),
            "problems": held.problems,
        })
    });
    json!({
        "since": time(rejection.since),
        "revision": rejection.revision.to_string(),
        "whole": rejection.is_whole(),
        "held": held.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    })
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

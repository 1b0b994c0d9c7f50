//! Admin address: `/livez`, `/readyz`, `/metrics`, `/configz`. HTTP/1.1, read only.

pub mod pages;
pub mod readiness;

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::{
    pages::{AdminPage, AdminPages, body, text},
    readiness::{Readiness, degradations},
};
use crate::{
    live::{
        BreakGlassDocuments, LastGoodState, LiveHook, Namespaces, Overdue, PendingConfirmation, Rejection,
        ReplicaHealth, RetiredEntry, Rotation, break_glass::BreakGlassState, replica_report,
    },
    telemetry::Metrics,
};
use gatepost_config::{Problem, describe_protocol, hazards::Finding};
use gatepost_replicas::Replica;
use gatepost_tls::ServerTls;

/// State that operators may see.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Health of this replica.
    pub health: Arc<ReplicaHealth>,
    /// Identity of this replica, and the progress of publishing its reports.
    pub replica: Arc<Replica>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Namespaces of the cluster, if they are watched.
    pub namespaces: Option<Arc<Namespaces>>,
    /// TLS for the pages, if other machines can reach them.
    pub tls: Option<Arc<ServerTls>>,
}

impl Admin {
    /// Serves on the current runtime until `shutdown`; connections still open are then closed.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let tls = self.tls.clone();
        pages::serve(self, tls, listener, shutdown).await;
    }

    /// Returns the readiness, followed by the faults that do not make the process unready.
    fn readyz_verbose(&self) -> AdminPage {
        let (readiness, degradations) = (Readiness::of(&self.health), degradations(&self.health));
        let degraded = if degradations.is_empty() { "" } else { ", degraded" };
        let lines: String = degradations.iter().map(|line| format!("[-] {line}\n")).collect();
        text(status_of(readiness), format!("{readiness}{degraded}\n{lines}"))
    }

    fn configz(&self) -> AdminPage {
        let page = configz(&self.health, &self.replica, self.namespaces.as_deref());
        body(StatusCode::OK, "application/json", format!("{page:#}\n"))
    }
}

impl AdminPages for Admin {
    const PATHS: &'static [&'static str] = &["/readyz", "/metrics", "/configz"];

    fn is_large(uri: &Uri) -> bool {
        uri.path() != "/readyz" || has(uri, "verbose")
    }

    fn page(&self, uri: &Uri) -> AdminPage {
        match uri.path() {
            "/readyz" if has(uri, "verbose") => self.readyz_verbose(),
            "/readyz" => {
                let among_replicas = has(uri, "fresh");
                let of = if among_replicas { Readiness::among_replicas } else { Readiness::of };
                let readiness = of(&self.health);
                text(status_of(readiness), format!("{readiness}\n"))
            }
            "/metrics" => pages::metrics(self.metrics.render()),
            _ => self.configz(),
        }
    }
}

fn status_of(readiness: Readiness) -> StatusCode {
    if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Returns true if the query has `key`.
fn has(uri: &Uri, key: &str) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|one| one == key))
}

/// Returns the page `/configz`: the configuration in force, its age, and the problems of a rejected one.
fn configz(health: &ReplicaHealth, replica: &Replica, namespaces: Option<&Namespaces>) -> Value {
    let current = &health.current;
    let generation = current.load();
    let now = Instant::now();
    let published = replica.publish_status();
    let failed_read = health.status.failed_read.get();
    // Hooks and initializers that get no new requests, but still answer older ones.
    let draining = health.status.draining();
    let leaving = draining.iter().map(|RetiredEntry { name, rotation, .. }| {
        json!({ "name": &**name, "state": rotation.as_str(), "since": time(rotation.since()) })
    });
    json!({
        "replica": replica_report(health, replica, (now, SystemTime::now()), usize::MAX),
        "telling": { "place": published.place, "told": published.published.map(time), "failure": published.failure },
        "generation": {
            "number": generation.number,
            "digest": generation.digest,
            "revision": generation.revision.to_string(),
            "published": (generation.number > 0).then(|| time(generation.published)),
        },
        "freshness": {
            "ageSeconds": current.freshness().age(now).map(|age| age.as_secs_f64()),
            "stale": !current.freshness().is_fresh(now),
            "lastFailure": failed_read.map(|failed| {
                json!({ "error": failed.error, "since": time(failed.since), "count": failed.count })
            }),
        },
        "namespaces": namespaces_status(namespaces, now),
        "rejected": health.status.rejected.get().as_deref().map(rejection),
        "unconfirmed": health.status.pending_confirmation.get().as_deref().map(unconfirmed),
        "lastGood": health.status.last_good.get().as_deref().map(last_good),
        "breakGlass": break_glass(&health.break_glass, now),
        "draining": health.is_stopping(),
        "hooks": generation.hooks.iter().map(hook).collect::<Vec<_>>(),
        "leaving": leaving.collect::<Vec<_>>(),
        "hazards": generation.snapshot.findings().iter().map(Finding::describe).collect::<Vec<_>>(),
        "configuration": generation.snapshot.describe(),
    })
}

/// Describes the break-glass documents: open, expired, or not yet open.
fn break_glass(break_glasses: &BreakGlassDocuments, now: Instant) -> Value {
    let documents = break_glasses.documents(now, SystemTime::now());
    let documents = documents.iter().map(|(break_glass, state)| {
        json!({
            "name": &*break_glass.name,
            "state": match state {
                BreakGlassState::Open => "Open",
                BreakGlassState::NotYet => "NotYet",
                BreakGlassState::Expired => "Expired",
            },
            "hooks": (!break_glass.applies_to_all_hooks()).then_some(&break_glass.hooks),
            "opened": time(break_glass.opened),
            "until": time(break_glass.until()),
            "reason": &*break_glass.reason,
            "by": &*break_glass.opened_by,
        })
    });
    json!({ "documents": documents.collect::<Vec<_>>(), "fileProblem": break_glasses.file_problem() })
}

/// Describes the number and age of the known namespaces, if they are watched.
fn namespaces_status(namespaces: Option<&Namespaces>, now: Instant) -> Value {
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
    // A hook that has moved is still called at its old endpoint.
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
        "protocol": describe_protocol(&live.target.entry.protocol),
        "effectivePolicy": live.shown_policy().as_str(),
        "enforcement": live.hook.enforcement.as_str(),
        "canary": live.hook.canary.as_ref().map(ToString::to_string),
        "timeoutMilliseconds": live.target.timeout().as_millis() as u64,
        "rotation": rotation,
        "replacement": replacement,
        "overdue": live.overdue.as_ref().map(overdue),
    })
}

/// Describes a hook that no probe has passed in time.
fn overdue(overdue: &Overdue) -> Value {
    json!({
        "since": time(overdue.since),
        "probeWithin": humantime::format_duration(overdue.within).to_string(),
        "lastFailure": overdue.last_failure.as_ref().map(ToString::to_string),
    })
}

/// Describes a configuration that waits for a second read with the same relaxations.
fn unconfirmed(unconfirmed: &PendingConfirmation) -> Value {
    json!({
        "since": time(unconfirmed.since),
        "revision": unconfirmed.revision.to_string(),
        "relaxations": unconfirmed.relaxations.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Describes the last good configuration on disk.
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
    let held = rejection.quarantined.iter().map(|held| {
        json!({
            "document": held.document,
            "inForce": if held.last_good_in_force { "last good state" } else { "nothing" },
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

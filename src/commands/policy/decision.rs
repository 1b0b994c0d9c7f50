//! Decisions in this process: a snapshot in force, with fixtures in place of a cluster, and without hooks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost_api::{Deadline, Enforcement, Phase};
use gatepost_config::Snapshot;

use super::cluster::FixtureCluster;
use crate::{
    live::{Authorizer, ClusterObjects, Current, Generation},
    review::{AdmissionDeps, Caller},
    telemetry::Metrics,
};

/// Time after which the configuration of a decision is stale: longer than any command runs.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Puts a snapshot in force for decisions of this process. No hook is called, and policies that read objects of a
/// cluster or check access go by their failure policies.
pub(in crate::commands) fn deps_without_cluster(snapshot: Snapshot) -> AdmissionDeps {
    deps(snapshot, None)
}

/// Puts a snapshot in force for decisions of this process, with fixtures in place of a cluster. No hook is called.
/// Every policy enforces on every request, regardless of its enforcement.
///
/// Must be called on a runtime, whose tasks answer for the cluster.
pub(super) fn deps_with_cluster(snapshot: Snapshot, cluster: FixtureCluster) -> AdmissionDeps {
    deps(snapshot.without_canaries(), Some(Arc::new(cluster)))
}

fn deps(snapshot: Snapshot, cluster: Option<Arc<FixtureCluster>>) -> AdmissionDeps {
    let metrics = Arc::new(Metrics::new(1));
    // With fixtures, policies are tested, and a test checks their decisions.
    let enforces = cluster.is_some();
    let mut generation = Generation::of(Arc::new(snapshot), &metrics);
    for live in generation.policies.iter_mut().filter(|_| enforces) {
        live.policy = Arc::new(gatepost_policy::Policy { enforcement: Enforcement::Deny, ..(*live.policy).clone() });
    }
    let current = Arc::new(Current::new(Instant::now()));
    current.publish(Arc::new(generation));
    current.freshness().stamp_awake(Instant::now() + LIFETIME);
    let cluster = cluster.map(|cluster| {
        let ((objects, reads), (authorizer, requests)) = (ClusterObjects::new(), Authorizer::new());
        tokio::spawn(Arc::clone(&cluster).serve_objects(reads));
        tokio::spawn(cluster.serve_access(requests));
        (objects, authorizer)
    });
    let (objects, authorizer) = cluster.unzip();
    AdmissionDeps { objects, authorizer, ..AdmissionDeps::new(current, metrics) }
}

/// Returns a caller that waits so long.
pub(in crate::commands) fn caller_of(phase: Phase, timeout: Duration) -> Caller {
    Caller::new(phase, Deadline::after(Instant::now(), timeout))
}

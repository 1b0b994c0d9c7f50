//! A validating hook that sees some workloads being scaled, and not others that it names.

use super::{
    finding::Found,
    mend::Mend,
    requests::{Request, listed, of},
    severity::Severity,
    view::{View, by_rules},
};
use crate::model::Operation::Update;

/// Requests that scale, by the subresource `scale`.
const SCALED: [Request; 4] = [
    of(Update, "apps", "v1", "deployments"),
    of(Update, "apps", "v1", "statefulsets"),
    of(Update, "apps", "v1", "replicasets"),
    of(Update, "", "v1", "replicationcontrollers"),
];

/// Only a hook that names one `scale` surely means the others.
pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request: Request| by_rules(seen, request, "default");
        let scale = |request: &Request| sees(request.sub("scale"));
        let missed: Vec<&Request> = SCALED.iter().filter(|request| sees(**request) && !scale(request)).collect();
        if missed.is_empty() || !SCALED.iter().any(scale) {
            continue;
        }
        let mend = Mend::updates(missed.iter().map(|request| request.sub("scale")));
        found.push(Found {
            rule: "misses-scale",
            severity: Severity::Gap,
            what: format!(
                "hook {:?} is asked when some workloads are scaled, and not when {} are",
                seen.hook.name,
                listed(missed.iter().map(|request| request.noun())),
            ),
            why: "so kubectl scale and autoscalers change these unseen".to_owned(),
            fix: None,
            outages: &["open-policy-agent/gatekeeper#1837", "kyverno/kyverno#3118"],
            mends: vec![(number, mend)],
        });
    }
}

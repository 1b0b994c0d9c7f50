//! A validating hook that sees what is made, and not what it is changed into.

use super::{
    finding::Found,
    mend::Mend,
    requests::{POD, Request, listed, of},
    severity::Severity,
    view::{View, by_rules},
};
use crate::model::Operation::{Create, Update};

/// Requests that change objects that run containers, and can be given other images afterwards.
const RUNS: [Request; 6] = [
    POD,
    of(Create, "apps", "v1", "deployments"),
    of(Create, "apps", "v1", "daemonsets"),
    of(Create, "apps", "v1", "statefulsets"),
    of(Create, "apps", "v1", "replicasets"),
    of(Create, "batch", "v1", "cronjobs"),
];

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request| by_rules(seen, request, "default");
        let missed = |request: &&Request| sees(**request) && !sees(request.with(Update));
        let missed: Vec<&Request> = RUNS.iter().filter(missed).collect();
        if missed.is_empty() {
            continue;
        }
        let mend = Mend::updates(missed.iter().map(|request| **request));
        found.push(Found {
            rule: "misses-updates",
            severity: Severity::Gap,
            what: format!(
                "hook {:?} is asked when {} are made and not when they are changed",
                seen.hook.name,
                listed(missed.iter().map(|request| request.noun())),
            ),
            why: "so another image can be put into one that has passed".to_owned(),
            fix: None,
            outages: &[
                "https://github.com/kubernetes/sig-security/tree/main/sig-security-docs/papers/admission-control",
            ],
            mends: vec![(number, mend)],
        });
    }
}

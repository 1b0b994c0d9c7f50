//! A hook, or an initializer, that its own pods must pass, or the workload that makes them.

use super::{
    finding::Found,
    mend::Mend,
    requests::{POD, WORKLOADS, listed},
    severity::Severity,
    view::{Sees, View},
};

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.closed() {
        let Some(home) = &seen.home else { continue };
        let mends = || vec![(number, Mend::namespaces([home.as_ref()]))];
        let pods = view.sees(seen, POD, home);
        if pods != Sees::No {
            found.push(Found {
                rule: "approves-own-pods",
                severity: pods.worth(Severity::Deadlock),
                what: format!(
                    "{seen} runs in namespace {home} and {} new pods there, its own among them",
                    seen.must(),
                ),
                why: format!(
                    "so once its last pod is gone, none can replace it, and nothing it is asked about can be written{}",
                    pods.unless(),
                ),
                fix: None,
                outages: &[
                    "kyverno/kyverno#16177",
                    "istio/istio#26380",
                    "confidential-containers/cloud-api-adaptor#305",
                ],
                mends: mends(),
            });
            continue;
        }
        let workloads: Vec<_> = WORKLOADS.into_iter().filter(|r| view.sees(seen, *r, home) != Sees::No).collect();
        let sees = view.sees_any(seen, &workloads, home);
        if sees != Sees::No {
            found.push(Found {
                rule: "approves-own-rollout",
                severity: sees.worth(Severity::Danger),
                what: format!(
                    "{seen} runs in namespace {home} and {} {} there",
                    seen.must(),
                    listed(workloads.iter().map(|request| request.noun())),
                ),
                why: format!(
                    "so once a version of it that does not work is rolled out, it cannot be rolled back{}",
                    sees.unless(),
                ),
                fix: None,
                outages: &["kubernetes/kubernetes#109964"],
                mends: mends(),
            });
        }
    }
}

/// An initializer over the pods of every namespace, wherever its own are.
pub(super) fn look_everywhere(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.closed().filter(|(_, seen)| seen.initializes.is_some() && seen.home.is_none()) {
        let everywhere = seen.hook.namespace_selector.is_empty() && view.sees(seen, POD, "default") != Sees::No;
        if !everywhere {
            continue;
        }
        found.push(Found {
            rule: "initializes-own-pods",
            severity: Severity::Gap,
            what: format!("{seen} must act on new pods of every namespace, its own among them if it runs in one"),
            why: "so once its last pod is gone, none can replace it, and no pod can be created".to_owned(),
            fix: Some(
                "leave out the namespace that it runs in by its namespaceSelector (kubernetes.io/metadata.name NotIn); or \
                 run it beside the apiserver, and leave out any namespace that it does not need"
                    .to_owned(),
            ),
            outages: &["kyverno/kyverno#16177", "istio/istio#26380"],
            mends: vec![(number, Mend::default())],
        });
    }
}

//! A hook that must approve its own pods, or the workload that makes them.

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
                    "hook {:?} runs in namespace {home} and must approve new pods there, its own among them",
                    seen.hook.name,
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
                    "hook {:?} runs in namespace {home} and must approve {} there",
                    seen.hook.name,
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

//! A hook that names one version of a resource, and lets those through that are written in another.

use super::{
    finding::Found,
    mend::Mend,
    requests::{Request, listed, of},
    severity::Severity,
    view::{Seen, View, by_rules},
};
use crate::model::{
    MatchPolicy,
    Operation::{self, Create},
};

/// Resources that apiservers of today serve in more than one version, or have served in another than the one they serve
/// now. Source: https://kubernetes.io/docs/reference/using-api/deprecation-guide/ and the API reference of 1.36.
const SERVED: [Request; 25] = [
    of(Create, "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    of(Create, "apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    of(Create, "apiregistration.k8s.io", "v1", "apiservices"),
    of(Create, "apps", "v1", "daemonsets"),
    of(Create, "apps", "v1", "deployments"),
    of(Create, "apps", "v1", "replicasets"),
    of(Create, "apps", "v1", "statefulsets"),
    of(Create, "autoscaling", "v1", "horizontalpodautoscalers"),
    of(Create, "autoscaling", "v2", "horizontalpodautoscalers"),
    of(Create, "batch", "v1", "cronjobs"),
    of(Create, "certificates.k8s.io", "v1", "certificatesigningrequests"),
    of(Create, "coordination.k8s.io", "v1", "leases"),
    of(Create, "discovery.k8s.io", "v1", "endpointslices"),
    of(Create, "events.k8s.io", "v1", "events"),
    of(Create, "networking.k8s.io", "v1", "ingressclasses"),
    of(Create, "networking.k8s.io", "v1", "ingresses"),
    of(Create, "node.k8s.io", "v1", "runtimeclasses"),
    of(Create, "policy", "v1", "poddisruptionbudgets"),
    of(Create, "rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    of(Create, "rbac.authorization.k8s.io", "v1", "clusterroles"),
    of(Create, "rbac.authorization.k8s.io", "v1", "rolebindings"),
    of(Create, "rbac.authorization.k8s.io", "v1", "roles"),
    of(Create, "scheduling.k8s.io", "v1", "priorityclasses"),
    of(Create, "storage.k8s.io", "v1", "csidrivers"),
    of(Create, "storage.k8s.io", "v1", "storageclasses"),
];

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    let exact = view.hooks.iter().enumerate().filter(|(_, seen)| seen.hook.match_policy == MatchPolicy::Exact);
    for (number, seen) in exact {
        let missed: Vec<&Request> = SERVED.iter().filter(|request| misses(seen, request)).collect();
        if missed.is_empty() {
            continue;
        }
        let version = |request: &&Request| format!("{}/{} {}", request.group, request.version, request.resource);
        found.push(Found {
            rule: "misses-versions",
            severity: Severity::Gap,
            what: format!("hook {:?} names other versions and has matchPolicy: Exact", seen.hook.name),
            why: format!(
                "so {} pass unseen, which apiservers serve today; with matchPolicy: Equivalent they are asked about, \
                 converted by an apiserver that has Gatepost registered by `gatepost register --config`",
                listed(missed.iter().map(version)),
            ),
            fix: None,
            outages: &[
                "https://github.com/kubernetes/sig-security/tree/main/sig-security-docs/papers/admission-control",
            ],
            mends: vec![(number, Mend { equivalent: true, ..Mend::default() })],
        });
    }
}

/// Does a rule name that very resource in other versions, and none in this one?
fn misses(seen: &Seen<'_>, request: &Request) -> bool {
    let named = |operation: Operation, namespace: &str| {
        seen.hook.rules.iter().any(|rule| {
            rule.operations.contains(&operation)
                && rule.api_groups.iter().any(|group| **group == *request.group)
                && rule.resources.iter().any(|entry| **entry == *request.resource)
        }) && !by_rules(seen, request.with(operation), namespace)
    };
    // A rule may want objects in namespaces only, or others only: it misses what it sees in neither.
    let anywhere = |operation| named(operation, "default") && named(operation, "");
    Operation::ALL.into_iter().any(anywhere)
}

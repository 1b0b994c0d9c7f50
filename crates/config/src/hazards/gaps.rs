//! Hooks that miss requests: ephemeral containers, scaling, updates, other versions, and rules that never match.

use super::{
    finding::FindingDraft,
    mend::Mend,
    severity::Severity,
    view::{HookView, POD, Request, View, by_rules, listed, of},
};
use crate::check::never_matches::dead;
use gatepost_api::{
    MatchPolicy,
    Operation::{self, Create, Update},
    ResourceInitializers,
};

/// Any namespace: rules do not compare its name.
const SOMEWHERE: &str = "default";

/// Request that adds an ephemeral container.
const EPHEMERAL_CONTAINER_REQUEST: Request = POD.with(Update).sub("ephemeralcontainers");

pub(super) fn misses_ephemeral_containers(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request| by_rules(seen, request, SOMEWHERE);
        let over_pods = sees(POD) || sees(POD.with(Update));
        if !over_pods || sees(EPHEMERAL_CONTAINER_REQUEST) {
            continue;
        }
        let mends = vec![(number, Mend::updates([EPHEMERAL_CONTAINER_REQUEST]))];
        found.push(if by_star(seen) {
            FindingDraft {
                rule: "star-without-subresources",
                severity: Severity::Gap,
                what: format!(
                    "hook {:?} sees \"*\", which is every resource and none of their subresources",
                    seen.hook.name,
                ),
                why: "so containers that kubectl debug adds to a running pod (pods/ephemeralcontainers) pass unseen, as do \
                      */scale and pods/exec; \"*/*\" would be everything"
                    .to_owned(),
                fix: None,
                outages: &["kubernetes/kubernetes#113594", "deckhouse/deckhouse#22398"],
                mends,
            }
        } else {
            FindingDraft {
                rule: "misses-ephemeral-containers",
                severity: Severity::Gap,
                what: format!(
                    "hook {:?} looks at pods and is not asked about pods/ephemeralcontainers",
                    seen.hook.name,
                ),
                why: "so containers that kubectl debug adds to a running pod pass unseen".to_owned(),
                fix: None,
                outages: &[
                    "CVE-2023-2727",
                    "CVE-2023-2728 (kubernetes/kubernetes#118640)",
                    "deckhouse/deckhouse#22398",
                ],
                mends,
            }
        });
    }
}

/// Returns true if the hook matches pods only by a wildcard.
fn by_star(seen: &HookView<'_>) -> bool {
    !seen.hook.rules.iter().any(|rule| rule.resources.iter().any(|entry| &**entry == "pods"))
}

/// Requests that change the workloads with a subresource `scale`.
const SCALED: [Request; 4] = [
    of(Update, "apps", "v1", "deployments"),
    of(Update, "apps", "v1", "statefulsets"),
    of(Update, "apps", "v1", "replicasets"),
    of(Update, "", "v1", "replicationcontrollers"),
];

/// Reports a hook that matches `scale` of some workloads and not of others. Without any `scale`, it may be intended.
pub(super) fn misses_scale(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request: Request| by_rules(seen, request, "default");
        let scale = |request: &Request| sees(request.sub("scale"));
        let missed: Vec<&Request> = SCALED.iter().filter(|request| sees(**request) && !scale(request)).collect();
        if missed.is_empty() || !SCALED.iter().any(scale) {
            continue;
        }
        let mend = Mend::updates(missed.iter().map(|request| request.sub("scale")));
        found.push(FindingDraft {
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

/// Requests that create objects with containers whose images can be changed later.
const RUNS: [Request; 6] = [
    POD,
    of(Create, "apps", "v1", "deployments"),
    of(Create, "apps", "v1", "daemonsets"),
    of(Create, "apps", "v1", "statefulsets"),
    of(Create, "apps", "v1", "replicasets"),
    of(Create, "batch", "v1", "cronjobs"),
];

pub(super) fn misses_updates(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.hooks.iter().enumerate().filter(|(_, seen)| seen.validates()) {
        let sees = |request| by_rules(seen, request, "default");
        let missed = |request: &&Request| sees(**request) && !sees(request.with(Update));
        let missed: Vec<&Request> = RUNS.iter().filter(missed).collect();
        if missed.is_empty() {
            continue;
        }
        let mend = Mend::updates(missed.iter().map(|request| **request));
        found.push(FindingDraft {
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

/// Resources that current apiservers serve in several versions, or have served in other versions than now. Source:
/// https://kubernetes.io/docs/reference/using-api/deprecation-guide/ and the API reference of 1.36.
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

pub(super) fn misses_versions(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let exact = view.hooks.iter().enumerate().filter(|(_, seen)| seen.hook.match_policy == MatchPolicy::Exact);
    for (number, seen) in exact {
        let missed: Vec<&Request> = SERVED.iter().filter(|request| misses(seen, request)).collect();
        if missed.is_empty() {
            continue;
        }
        let version = |request: &&Request| format!("{}/{} {}", request.group, request.version, request.resource);
        found.push(FindingDraft {
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

/// Returns true if a rule names this resource in other versions, and no rule matches it in this version.
fn misses(seen: &HookView<'_>, request: &Request) -> bool {
    let named = |operation: Operation, namespace: &str| {
        seen.hook.rules.iter().any(|rule| {
            rule.operations.contains(&operation)
                && rule.api_groups.iter().any(|group| **group == *request.group)
                && rule.resources.iter().any(|entry| **entry == *request.resource)
        }) && !by_rules(seen, request.with(operation), namespace)
    };
    // A rule may be limited by scope: the hook misses only what it matches in neither scope.
    let anywhere = |operation| named(operation, "default") && named(operation, "");
    Operation::ALL.into_iter().any(anywhere)
}

/// Maximum number of entries of one hook that are reported.
const MAX_REPORTED_ENTRIES: usize = 8;

pub(super) fn never_matches(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let mut former = None;
    for (number, seen) in view.hooks.iter().enumerate() {
        let resource = seen.initializes.map(ResourceInitializers::noun);
        if resource.is_some() && resource == former {
            continue;
        }
        former = resource;
        let rules = (0..).zip(&seen.hook.rules);
        let dead = rules.flat_map(|(rule, it)| dead(it).into_iter().map(move |dead| (rule, dead)));
        found.extend(dead.take(MAX_REPORTED_ENTRIES).map(|(rule, dead)| FindingDraft {
            rule: "never-matches",
            severity: Severity::Gap,
            what: match seen.initializes {
                None => format!("{seen}, rules[{rule}].{}[{}]: {}", dead.key, dead.entry, dead.what),
                Some(_) => format!("{seen}: {}", dead.what),
            },
            why: dead.why.to_owned(),
            fix: Some(dead.fix),
            outages: &[],
            mends: vec![(number, Mend::default())],
        }));
    }
}

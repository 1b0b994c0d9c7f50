//! Hooks and initializers that block their own pods, each other's pods, or objects that the cluster needs to run.

use super::{
    finding::FindingDraft,
    levels::groups,
    mend::Mend,
    severity::Severity,
    view::{HookView, POD, Request, Sees, View, WORKLOADS, listed, of},
};
use gatepost_api::Operation::{Create, Update};

pub(super) fn blocks_own_pods(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.fail_closed_hooks() {
        let Some(home) = &seen.home else { continue };
        let mends = || vec![(number, Mend::namespaces([home.as_ref()]))];
        let pods = view.sees(seen, POD, home);
        if pods != Sees::No {
            found.push(FindingDraft {
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
            found.push(FindingDraft {
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

/// Reports an initializer over the pods of every namespace, if its own namespace is unknown.
pub(super) fn initializes_own_pods(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.fail_closed_hooks().filter(|(_, seen)| seen.initializes.is_some() && seen.home.is_none())
    {
        let everywhere = seen.hook.namespace_selector.is_empty() && view.sees(seen, POD, "default") != Sees::No;
        if !everywhere {
            continue;
        }
        found.push(FindingDraft {
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

/// Reports hooks that must approve each other's pods, by namespace: what blocks one of its pods blocks all.
pub(super) fn need_each_other(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let homes = view.homes();
    let names: Vec<&str> = homes.keys().copied().collect();
    // Most hooks do not match pods; the number of pairs of the others may be quadratic.
    let over_pods: Vec<Vec<&HookView<'_>>> = names.iter().map(|home| view.over_pods(&homes[home])).collect();
    let approves = |other: usize, at: &str| over_pods[other].iter().map(|seen| view.selects(seen, POD, at)).max();
    let edges = |least: Sees| -> Vec<Vec<usize>> {
        let needs = |at: &&str| -> Vec<usize> {
            let others = (0..names.len()).filter(|other| names[*other] != *at);
            others.filter(|other| approves(*other, at).is_some_and(|sees| sees >= least)).collect()
        };
        names.iter().map(needs).collect()
    };
    let sure = groups(&edges(Sees::Yes));
    for group in groups(&edges(Sees::Perhaps)).into_iter().filter(|group| group.len() > 1) {
        let parts: Vec<_> = sure.iter().filter(|part| part.len() > 1 && group.contains(&part[0])).collect();
        match parts.is_empty() {
            true => found.extend(mutual_finding(view, &group, &names, Sees::Perhaps)),
            false => found.extend(parts.into_iter().flat_map(|part| mutual_finding(view, part, &names, Sees::Yes))),
        }
    }
}

fn mutual_finding(view: &View<'_>, group: &[usize], names: &[&str], sure: Sees) -> Option<FindingDraft> {
    let homes: Vec<&str> = group.iter().map(|place| names[*place]).collect();
    let asked_elsewhere = |number: &usize| {
        let seen = &view.hooks[*number];
        let elsewhere = homes.iter().filter(|home| Some(**home) != seen.home.as_deref());
        let mut sees = elsewhere.map(|home| view.sees(seen, POD, home));
        sees.any(|sees| sees >= sure)
    };
    let by_home = view.homes();
    let mut hooks: Vec<usize> = homes.iter().flat_map(|home| &by_home[home]).copied().filter(asked_elsewhere).collect();
    hooks.sort_unstable();
    let named = |number: &usize| format!("{:?}", view.hooks[*number].hook.name);
    let nouns = match hooks.iter().any(|number| view.hooks[*number].initializes.is_some()) {
        true => "hooks and initializers",
        false => "hooks",
    };
    Some(FindingDraft {
        rule: "approve-each-others-pods",
        severity: sure.worth(Severity::Deadlock),
        what: format!(
            "{nouns} {} run in the namespaces {} and must approve each other's new pods",
            listed(hooks.iter().map(named)),
            listed(homes.iter().map(ToString::to_string)),
        ),
        why: format!(
            "so once all of them are down, as after a power cut, none can start before another has{}",
            sure.unless(),
        ),
        fix: None,
        outages: &["defenseunicorns/uds-core#1795", "kubernetes/website#46798"],
        mends: hooks.into_iter().map(|number| (number, Mend::namespaces(homes.iter().copied()))).collect(),
    })
}

/// Namespace of the cluster's own pods.
const NAMESPACE: &str = "kube-system";

/// Requests that components make without a person, or cannot start without.
pub(super) const SYSTEM_REQUESTS: [Request; 9] = [
    POD,
    WORKLOADS[0],
    WORKLOADS[1],
    WORKLOADS[3],
    of(Update, "", "v1", "configmaps"),
    of(Create, "", "v1", "secrets"),
    of(Create, "", "v1", "serviceaccounts"),
    of(Create, "", "v1", "serviceaccounts").sub("token"),
    of(Update, "", "v1", "services"),
];

pub(super) fn over_system_pods(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.fail_closed_hooks() {
        let written: Vec<_> =
            SYSTEM_REQUESTS.into_iter().filter(|r| view.sees(seen, *r, NAMESPACE) != Sees::No).collect();
        let sees = view.sees_any(seen, &written, NAMESPACE);
        if sees == Sees::No {
            continue;
        }
        found.push(FindingDraft {
            rule: "guards-kube-system",
            severity: sees.worth(Severity::Danger),
            what: format!("{seen} {} {} in {NAMESPACE}", seen.must(), listed(written.iter().map(Request::noun)),),
            why: format!(
                "so while it does not answer, the cluster's own parts (network, DNS, controllers) cannot start or be \
                 replaced, on which the hook itself may rest{}",
                sees.unless(),
            ),
            fix: None,
            outages: &[
                "https://blog.jetstack.io/blog/gke-webhook-outage/",
                "topolvm/topolvm#57",
                "kyverno/kyverno#16177",
            ],
            mends: vec![(number, Mend::namespaces([NAMESPACE]))],
        });
    }
}

/// A resource that a vital component writes, and the consequence of rejecting it.
struct Vital {
    rule: &'static str,
    severity: Severity,
    requests: &'static [Request],
    /// Namespaces in which the resource is vital; "" for cluster-scoped objects. With `at_home`, also the hook's own
    /// namespace.
    namespaces: &'static [&'static str],
    at_home: bool,
    then: &'static str,
    outages: &'static [&'static str],
}

const VITAL: [Vital; 5] = [
    Vital {
        rule: "guards-leases",
        severity: Severity::Danger,
        requests: &[
            of(Update, "coordination.k8s.io", "v1", "leases"),
            of(Create, "coordination.k8s.io", "v1", "leases"),
        ],
        namespaces: &["kube-node-lease", "kube-system"],
        at_home: false,
        then: "every node's heartbeat and the controllers' election of a leader are refused: nodes are taken for dead \
               after 40 s, and no controller works that could start the hook again",
        outages: &[
            "open-policy-agent/gatekeeper#3829",
            "gardener/gardener#7625",
            "https://blog.jetstack.io/blog/gke-webhook-outage/",
        ],
    },
    Vital {
        rule: "guards-nodes",
        severity: Severity::Danger,
        requests: &[
            of(Create, "", "v1", "nodes"),
            of(Update, "", "v1", "nodes"),
            of(Update, "", "v1", "nodes").sub("status"),
        ],
        namespaces: &[""],
        at_home: false,
        then: "no node can join, and none can report itself ready: where the hook waits for a node, it waits for ever",
        outages: &["projectcapsule/capsule#642", "kubernetes/kubernetes#103274"],
    },
    Vital {
        rule: "guards-endpoints",
        severity: Severity::Danger,
        requests: &[
            of(Update, "discovery.k8s.io", "v1", "endpointslices"),
            of(Create, "discovery.k8s.io", "v1", "endpointslices"),
            of(Update, "", "v1", "endpoints"),
            of(Create, "", "v1", "endpoints"),
        ],
        namespaces: &["kube-system"],
        at_home: true,
        then: "Services keep leading to pods that are gone, DNS and the hook's own Service among them: its new pods are \
               never found",
        outages: &["kubernetes/kubernetes#90217", "tektoncd/operator#592"],
    },
    Vital {
        rule: "guards-certificate-requests",
        severity: Severity::Danger,
        requests: &[
            of(Create, "certificates.k8s.io", "v1", "certificatesigningrequests"),
            of(Update, "certificates.k8s.io", "v1", "certificatesigningrequests").sub("approval"),
            of(Update, "certificates.k8s.io", "v1", "certificatesigningrequests").sub("status"),
        ],
        namespaces: &[""],
        at_home: false,
        then: "kubelets get no certificate: new nodes cannot join, and old ones drop out when theirs expires",
        outages: &["https://cloud.google.com/kubernetes-engine/docs/how-to/optimize-webhooks"],
    },
    Vital {
        rule: "guards-events",
        severity: Severity::Gap,
        requests: &[of(Create, "events.k8s.io", "v1", "events"), of(Create, "", "v1", "events")],
        namespaces: &["kube-system"],
        at_home: true,
        then: "events are lost, those that would explain the outage among them; and every component's events wait for it \
               at all times",
        outages: &["openshift/enhancements#908"],
    },
];

pub(super) fn over_vital_objects(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.fail_closed_hooks() {
        for vital in &VITAL {
            let home = seen.home.as_deref().filter(|home| vital.at_home && !vital.namespaces.contains(home));
            let mut asked = Vec::new();
            let mut surest = Sees::No;
            let mut namespaces = Vec::new();
            for namespace in vital.namespaces.iter().copied().chain(home) {
                let sees = view.sees_any(seen, vital.requests, namespace);
                if sees == Sees::No {
                    continue;
                }
                surest = surest.max(sees);
                namespaces.push(namespace);
                asked.extend(vital.requests.iter().filter(|r| view.sees(seen, **r, namespace) != Sees::No));
            }
            // A gap is a finding only if a rule names the resource: a wildcard may match it by its breadth alone.
            if surest == Sees::No || vital.severity == Severity::Gap && !names(seen.hook, &asked) {
                continue;
            }
            let mut mend = Mend::default();
            for request in &asked {
                mend.join(Mend::away_from(seen.hook, request, &namespaces));
            }
            mend.namespaces.remove("");
            let mut nouns: Vec<String> = asked.iter().map(|request| request.noun()).collect();
            nouns.sort_unstable();
            found.push(FindingDraft {
                rule: vital.rule,
                severity: surest.worth(vital.severity),
                what: format!("{seen} {} {}", seen.must(), listed(nouns)),
                why: format!("so while it does not answer, {}{}", vital.then, surest.unless()),
                fix: None,
                outages: vital.outages,
                mends: vec![(number, mend)],
            });
        }
    }
}

/// Returns true if the hook names one of these resources, not only by a wildcard.
fn names(hook: &gatepost_api::Hook, requests: &[&Request]) -> bool {
    let named = |entry: &str| requests.iter().any(|request| entry.split('/').next() == Some(request.resource));
    hook.rules.iter().any(|rule| rule.resources.iter().any(|entry| named(entry)))
}

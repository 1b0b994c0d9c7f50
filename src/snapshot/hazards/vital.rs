//! A hook over what keeps a cluster alive: heartbeats, nodes, where Services lead, certificates, events.

use super::{
    finding::Found,
    mend::Mend,
    requests::{Request, of},
    severity::Severity,
    view::{Sees, View},
};
use crate::model::Operation::{Create, Update};

/// A resource that something vital writes, and what comes of it when it cannot.
struct Vital {
    rule: &'static str,
    severity: Severity,
    requests: &'static [Request],
    /// Namespaces where it is vital; "" for objects outside of any namespace. The hook's own namespace where `at_home`
    /// says so.
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

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.closed() {
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
            // A rule with a star loses this request by its breadth alone; a named one is intended.
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
            found.push(Found {
                rule: vital.rule,
                severity: surest.worth(vital.severity),
                what: format!("{seen} {} {}", seen.must(), super::requests::listed(nouns)),
                why: format!("so while it does not answer, {}{}", vital.then, surest.unless()),
                fix: None,
                outages: vital.outages,
                mends: vec![(number, mend)],
            });
        }
    }
}

/// Does the hook name one of these resources itself?
fn names(hook: &crate::model::Hook, requests: &[&Request]) -> bool {
    let named = |entry: &str| requests.iter().any(|request| entry.split('/').next() == Some(request.resource));
    hook.rules.iter().any(|rule| rule.resources.iter().any(|entry| named(entry)))
}

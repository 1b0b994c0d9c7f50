//! A hook that what the cluster itself is made of must pass.

use super::{
    finding::Found,
    mend::Mend,
    requests::{POD, Request, WORKLOADS, listed, of},
    severity::Severity,
    view::{Sees, View},
};
use crate::model::Operation::{Create, Update};

/// Namespace of the cluster's own pods.
const NAMESPACE: &str = "kube-system";

/// Requests that components make, or cannot start without, with no person looking on.
pub(super) const WRITTEN: [Request; 9] = [
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

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.closed() {
        let written: Vec<_> = WRITTEN.into_iter().filter(|r| view.sees(seen, *r, NAMESPACE) != Sees::No).collect();
        let sees = view.sees_any(seen, &written, NAMESPACE);
        if sees == Sees::No {
            continue;
        }
        found.push(Found {
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

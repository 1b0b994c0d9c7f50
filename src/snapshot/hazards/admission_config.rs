//! A hook over the configuration of admission itself.

use super::{
    finding::Found,
    mend::Mend,
    requests::{Request, listed, of},
    severity::Severity,
    view::{Seen, Sees, View, by_rules},
};
use crate::model::{
    Hook,
    Operation::{Delete, Update},
};

/// Requests by which a person gets rid of a hook that does not answer, where the apiserver holds it.
const UPSTREAM: [Request; 2] = [
    of(Update, "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    of(Update, "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
];
/// The same, where it is an object of our own kind: no hook is ever asked about it.
const OURS: Request = of(Update, "gatepost.dev", "v1alpha1", "admissioncontrolconfigurations");

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.closed().filter(|(_, seen)| seen.hook.sees_admission_config) {
        let sees = |request: &&Request| view.sees(seen, **request, "").max(view.sees(seen, request.with(Delete), ""));
        let asked: Vec<&Request> = UPSTREAM.iter().filter(|request| sees(request) != Sees::No).collect();
        let Some(surest) = asked.iter().map(sees).max() else { continue };
        found.push(Found {
            rule: "guards-admission-configuration",
            severity: surest.worth(Severity::Danger),
            what: format!(
                "hook {:?} must approve changes of {}",
                seen.hook.name,
                listed(asked.iter().map(|request| request.noun())),
            ),
            why: format!(
                "so while it does not answer, the change that would mend or remove a webhook, it among them, is refused \
                 as well{}",
                surest.unless(),
            ),
            fix: None,
            outages: &["kubernetes/kubernetes#59840"],
            mends: vec![(number, away_from(seen.hook, &asked))],
        });
    }
    unasked(view, found);
}

/// A hook that names what it is never asked about.
fn unasked(view: &View<'_>, found: &mut Vec<Found>) {
    let named = |seen: &Seen<'_>, request: &Request| {
        let mut entries = seen.hook.rules.iter().flat_map(|rule| &rule.resources);
        by_rules(seen, *request, "") && entries.any(|entry| **entry == *request.resource)
    };
    for (number, seen) in view.hooks.iter().enumerate() {
        let upstream = UPSTREAM.iter().filter(|_| !seen.hook.sees_admission_config);
        let named: Vec<&Request> = upstream.chain([&OURS]).filter(|request| named(seen, request)).collect();
        if named.is_empty() {
            continue;
        }
        found.push(Found {
            rule: "admission-configuration-unseen",
            severity: Severity::Gap,
            what: format!(
                "{seen} names {}",
                listed(named.iter().map(|request| request.noun())),
            ),
            why: "which passes it unseen: only hooks of a configuration whose name ends in .static.k8s.io are asked about \
                  webhook configurations, and none about Gatepost's own"
                .to_owned(),
            fix: None,
            outages: &["kubernetes/kubernetes#59840"],
            mends: vec![(number, away_from(seen.hook, &named))],
        });
    }
}

fn away_from(hook: &Hook, requests: &[&Request]) -> Mend {
    let mut mend = Mend::default();
    requests.iter().for_each(|request| mend.join(Mend::away_from(hook, request, &[])));
    mend
}

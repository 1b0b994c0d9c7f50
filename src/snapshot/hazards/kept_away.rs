//! A hook that names reviews of tokens and access. Gatepost asks no hook about them; older apiservers do.

use super::{
    finding::Found,
    mend::Mend,
    requests::{Request, listed, of},
    severity::Severity,
    view::{View, by_rules},
};
use crate::model::Operation::Create;

const REVIEWS: [Request; 6] = [
    of(Create, "authentication.k8s.io", "v1", "tokenreviews"),
    of(Create, "authentication.k8s.io", "v1", "selfsubjectreviews"),
    of(Create, "authorization.k8s.io", "v1", "subjectaccessreviews"),
    of(Create, "authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
    of(Create, "authorization.k8s.io", "v1", "selfsubjectrulesreviews"),
    of(Create, "authorization.k8s.io", "v1", "localsubjectaccessreviews"),
];

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate() {
        let named = |request: &Request| {
            let mut entries = seen.hook.rules.iter().flat_map(|rule| &rule.resources);
            entries.any(|entry| **entry == *request.resource)
        };
        let local = |request: &Request| if request.resource.starts_with("local") { "default" } else { "" };
        let asked = |request: &&Request| by_rules(seen, **request, local(request)) && named(request);
        let named: Vec<&Request> = REVIEWS.iter().filter(asked).collect();
        if named.is_empty() {
            continue;
        }
        let mut mend = Mend::default();
        for request in &named {
            mend.resources.insert((request.group, request.resource));
        }
        found.push(Found {
            rule: "names-reviews-of-access",
            severity: Severity::Gap,
            what: format!(
                "{seen} names {}",
                listed(named.iter().map(|request| request.noun())),
            ),
            why: "which Gatepost asks no hook about; registered with an apiserver older than 1.37, it would be asked each \
                  time somebody logs in or is authorized, itself among them"
                .to_owned(),
            fix: None,
            outages: &["kubernetes/kubernetes#122205"],
            mends: vec![(number, mend)],
        });
    }
}

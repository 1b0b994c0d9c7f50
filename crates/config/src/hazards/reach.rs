//! Findings on hooks that match admission configuration or access reviews, and on hooks that are never called.

use super::{
    finding::FindingDraft,
    mend::Mend,
    severity::Severity,
    view::{HookView, Request, Sees, View, by_rules, listed, of},
};
use gatepost_api::{
    AdoptionCondition, Hook,
    Operation::{Create, Delete, Update},
    registration::SERVED,
};

/// Updates of the apiserver's webhook configurations, which may repair a hook that does not answer. Deletions are
/// derived from them.
const UPSTREAM: [Request; 2] = [
    of(Update, "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    of(Update, "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
];

/// Request that changes a configuration of our own kind. No hook is ever called for it.
const OURS: Request = of(Update, "gatepost.dev", "v1alpha1", "admissioncontrolconfigurations");

pub(super) fn over_admission_config(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.fail_closed_hooks().filter(|(_, seen)| seen.hook.sees_admission_config) {
        let sees = |request: &&Request| view.sees(seen, **request, "").max(view.sees(seen, request.with(Delete), ""));
        let asked: Vec<&Request> = UPSTREAM.iter().filter(|request| sees(request) != Sees::No).collect();
        let Some(surest) = asked.iter().map(sees).max() else { continue };
        found.push(FindingDraft {
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
    names_unreviewed_resources(view, found);
}

/// Reports a hook that names resources for which it is never called.
fn names_unreviewed_resources(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let named = |seen: &HookView<'_>, request: &Request| {
        let mut entries = seen.hook.rules.iter().flat_map(|rule| &rule.resources);
        by_rules(seen, *request, "") && entries.any(|entry| **entry == *request.resource)
    };
    for (number, seen) in view.hooks.iter().enumerate() {
        let upstream = UPSTREAM.iter().filter(|_| !seen.hook.sees_admission_config);
        let named: Vec<&Request> = upstream.chain([&OURS]).filter(|request| named(seen, request)).collect();
        if named.is_empty() {
            continue;
        }
        found.push(FindingDraft {
            rule: "admission-configuration-unseen",
            severity: Severity::Gap,
            what: format!("{seen} names {}", listed(named.iter().map(|request| request.noun())),),
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

pub(super) fn called_by_nobody(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    for (number, seen) in view.hooks.iter().enumerate() {
        let (name, _) = SERVED;
        let is_ours = |condition: &gatepost_cel::Condition| {
            AdoptionCondition::of(&condition.name, &condition.expression).is_some()
        };
        let named = |condition: &&gatepost_cel::Condition| &*condition.name == name;
        let Some(condition) = seen.origin.conditions.iter().find(named) else { continue };
        let hook = &seen.hook.name;
        let (what, why, fix) = if is_ours(condition) {
            (
                format!(
                    "hook {hook:?} has the match condition {name}, by which a Gatepost with --adopt keeps the apiserver \
                     from calling it"
                ),
                "so this entry is never called",
                "remove the condition here, or run gatepost release and copy the entry again",
            )
        } else {
            (
                format!(
                    "hook {hook:?} has a match condition {name}, a name of Gatepost's, that Gatepost has not written"
                ),
                "so requests that the condition excludes may reach no hook, and Gatepost does not adopt the webhook",
                "remove the condition, or give it another name",
            )
        };
        found.push(FindingDraft {
            rule: "called-by-nobody",
            severity: Severity::Gap,
            what,
            why: why.to_owned(),
            fix: Some(fix.to_owned()),
            outages: &[],
            mends: vec![(number, Mend::default())],
        });
    }
}

const REVIEWS: [Request; 6] = [
    of(Create, "authentication.k8s.io", "v1", "tokenreviews"),
    of(Create, "authentication.k8s.io", "v1", "selfsubjectreviews"),
    of(Create, "authorization.k8s.io", "v1", "subjectaccessreviews"),
    of(Create, "authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
    of(Create, "authorization.k8s.io", "v1", "selfsubjectrulesreviews"),
    of(Create, "authorization.k8s.io", "v1", "localsubjectaccessreviews"),
];

pub(super) fn over_reviews_of_access(view: &View<'_>, found: &mut Vec<FindingDraft>) {
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
        found.push(FindingDraft {
            rule: "names-reviews-of-access",
            severity: Severity::Gap,
            what: format!("{seen} names {}", listed(named.iter().map(|request| request.noun())),),
            why: "which Gatepost asks no hook about; registered with an apiserver older than 1.37, it would be asked each \
                  time somebody logs in or is authorized, itself among them"
                .to_owned(),
            fix: None,
            outages: &["kubernetes/kubernetes#122205"],
            mends: vec![(number, mend)],
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::json;

    use crate::{SourceFile, load};

    #[test]
    fn our_condition_and_one_of_our_name_are_told_apart() {
        let webhook = |name: &str, condition: &str, expression: &str| {
            json!({"name": name, "clientConfig": {"url": "https://127.0.0.1:9001/"}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "matchConditions": [{"name": condition, "expression": expression}],
                "rules": [{"operations": ["CREATE"], "apiGroups": ["shop.example.com"], "apiVersions": ["v1"],
                    "resources": ["orders"]}]})
        };
        let document = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "c"}, "webhooks": [
            webhook("ours.x.y", "gatepost.dev/served", "false"),
            webhook("odd.x.y", "gatepost.dev/served", "1 == 2"),
            webhook("own.x.y", "own", "1 == 2"),
        ]});
        let file = SourceFile { name: "c".to_owned(), bytes: document.to_string().into() };
        let snapshot = load(&[file], &|_| Err(io::ErrorKind::NotFound.into())).unwrap();
        let findings = snapshot.hazards().into_iter().filter(|finding| finding.rule == "called-by-nobody");
        let told: Vec<_> = findings.map(|finding| finding.sentence()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("this entry is never called"), "{told:?}");
        assert!(told[1].contains("that Gatepost has not written"), "{told:?}");
    }
}

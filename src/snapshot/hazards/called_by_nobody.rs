//! Our own mark on a hook that is served from a copy: its apiserver does not call it, and its condition keeps Gatepost from
//! calling it, too.

use super::{finding::Found, mend::Mend, severity::Severity, view::View};
use crate::model::{ServedCondition, registration::SERVED};

pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    for (number, seen) in view.hooks.iter().enumerate() {
        let (name, _) = SERVED;
        let is_ours =
            |condition: &crate::cel::Condition| ServedCondition::of(&condition.name, &condition.expression).is_some();
        let named = |condition: &&crate::cel::Condition| &*condition.name == name;
        let Some(condition) = seen.origin.conditions.iter().find(named) else { continue };
        let hook = &seen.hook.name;
        let (what, why, fix) = if is_ours(condition) {
            (
                format!(
                    "hook {hook:?} has the match condition {name}, by which a Gatepost with --adopt keeps the apiserver \
                     from calling it"
                ),
                "so nobody calls it by this entry",
                "remove the condition here, or run gatepost release and copy the entry again",
            )
        } else {
            (
                format!(
                    "hook {hook:?} has a match condition {name}, a name of Gatepost's, that Gatepost has not written"
                ),
                "so nobody may call it for what the condition holds back, and Gatepost does not take it over",
                "remove the condition, or give it another name",
            )
        };
        found.push(Found {
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

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::json;

    use crate::snapshot::{SourceFile, load};

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
        assert!(told[0].contains("nobody calls it by this entry"), "{told:?}");
        assert!(told[1].contains("that Gatepost has not written"), "{told:?}");
    }
}

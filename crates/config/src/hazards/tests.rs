#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use super::*;
use crate::{SourceFile, load};

const HEAD: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\nexternalAdmissionHooks:\n";

fn snapshot(text: &str) -> Snapshot {
    let file = SourceFile { name: "a.yaml".into(), bytes: text.to_owned().into() };
    load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// A hook of that name in a namespace of that name, over every pod, with further keys.
fn over_pods(name: &str, more: &str) -> String {
    format!(
        "- {{name: {name}, clientConfig: {{service: {{namespace: {name}, name: hook}}}}, {more}, rules: [{{operations: \
         [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}}]}}\n"
    )
}

fn not_in(namespaces: &str) -> String {
    format!(
        "namespaceSelector: {{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: NotIn, values: \
         [{namespaces}]}}]}}"
    )
}

fn rules(text: &str) -> Vec<(Severity, &'static str)> {
    snapshot(&format!("{HEAD}{text}")).hazards().iter().map(|finding| (finding.severity, finding.rule)).collect()
}

#[test]
fn what_fails_open_holds_nobody_up() {
    assert_eq!(rules(&over_pods("a", "failurePolicy: Ignore")), []);
    let both = [(Severity::Deadlock, "approves-own-pods"), (Severity::Danger, "guards-kube-system")];
    assert_eq!(rules(&over_pods("a", "failurePolicy: Fail")), both);
    assert_eq!(rules(&over_pods("a", "failurePolicy: Retry, sideEffects: None")), both);
    assert_eq!(rules(&over_pods("a", "rollout: {createAs: Ignore}")), both, "it will not stay open");
}

#[test]
fn mutating_hooks_are_held_to_the_same() {
    let both = [(Severity::Deadlock, "approves-own-pods"), (Severity::Danger, "guards-kube-system")];
    assert_eq!(rules(&over_pods("a", "type: Mutating, failurePolicy: Fail")), both);
    assert_eq!(rules(&over_pods("a", "type: Mutating, failurePolicy: Ignore")), []);
    // One of each type wait for each other just as well.
    let text = over_pods("a", &format!("type: Mutating, {}", not_in("kube-system, a")))
        + &over_pods("b", &not_in("kube-system, b"));
    assert_eq!(rules(&text), [(Severity::Deadlock, "approve-each-others-pods")]);
}

#[test]
fn an_object_selector_to_opt_in_by_leaves_system_objects_alone_and_one_to_opt_out_by_may() {
    assert_eq!(rules(&over_pods("a", "objectSelector: {matchLabels: {look: here}}")), []);
    let out = "objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}";
    let both = [(Severity::Gap, "approves-own-pods"), (Severity::Gap, "guards-kube-system")];
    assert_eq!(rules(&over_pods("a", out)), both);
}

#[test]
fn three_hooks_may_wait_for_each_other_in_a_ring_and_a_chain_is_no_ring() {
    let ring = [("a", "kube-system, a, c"), ("b", "kube-system, b, a"), ("c", "kube-system, c, b")];
    let text: String = ring.iter().map(|(name, not)| over_pods(name, &not_in(not))).collect();
    assert_eq!(rules(&text), [(Severity::Deadlock, "approve-each-others-pods")]);
    let found = snapshot(&format!("{HEAD}{text}")).hazards();
    assert_eq!(found[0].hooks.len(), 3);
    let chain = [("a", "kube-system, a"), ("b", "kube-system, a, b"), ("c", "kube-system, a, b, c")];
    let text: String = chain.iter().map(|(name, not)| over_pods(name, &not_in(not))).collect();
    assert_eq!(rules(&text), []);
}

#[test]
fn levels_follow_who_must_approve_whose_pods() {
    let chain = [("a", "a"), ("b", "a, b"), ("c", "a, b, c")];
    let text: String = chain.iter().map(|(name, not)| over_pods(name, &not_in(not))).collect();
    let snapshot = snapshot(&format!("{HEAD}{text}"));
    let of = |stated: &dyn Fn(&str) -> Option<u32>| -> Vec<(String, u32)> {
        levels(&snapshot, stated).0.into_iter().collect()
    };
    let named = |levels: [u32; 3]| -> Vec<(String, u32)> {
        ["a", "b", "c"].iter().zip(levels).map(|(name, level)| ((*name).to_owned(), level)).collect()
    };
    // a sees b and c, and b sees c.
    assert_eq!(of(&|_| None), named([2, 3, 4]));
    assert_eq!(of(&|name| (name == "a").then_some(7)), named([7, 8, 9]), "what is stated counts for those above it");
    assert_eq!(of(&|name| (name == "b").then_some(0)), named([2, 0, 3]));
    let advice = levels(&snapshot, &|_| None).1;
    assert_eq!((&*advice[1].hook, advice[1].level), ("b", 3));
    let label = &advice[1].selector["matchExpressions"][1];
    assert_eq!((&label["key"], &label["values"]), (&LABEL.into(), &serde_json::json!(["0", "1", "2", "3"])));
}

#[test]
fn hooks_that_wait_for_each_other_share_a_level() {
    let text = over_pods("a", &not_in("a")) + &over_pods("b", &not_in("b"));
    let levels = levels(&snapshot(&format!("{HEAD}{text}")), &|_| None).0;
    assert_eq!(levels.into_values().collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn a_rule_for_objects_outside_of_namespaces_is_not_turned_into_its_opposite() {
    let text = format!(
        "{HEAD}- {{name: a, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: [{{apiGroups: ['*'], apiVersions: \
         ['*'], resources: ['*/*'], scope: Cluster}}]}}\n"
    );
    let found = snapshot(&text).hazards();
    assert!(found.iter().any(|finding| finding.rule == "guards-nodes"), "{found:#?}");
    assert_eq!(found[0].hooks[0].patch, serde_json::json!({"failurePolicy": "Ignore"}));
}

#[test]
fn a_bypass_keeps_a_hook_away_as_well() {
    let hooks = over_pods("a", "failurePolicy: Fail");
    let with = |who: &str| {
        let bypass = format!("bypass: [{{name: b, reason: r, namespaces: [a, kube-system]{who}}}]\n");
        rules(&format!("{hooks}{bypass}"))
    };
    assert_eq!(with(""), []);
    let both = [(Severity::Gap, "approves-own-pods"), (Severity::Gap, "guards-kube-system")];
    assert_eq!(with(", groups: ['system:nodes']"), both, "for some only");
    assert_eq!(with(", hooks: [a]"), []);
}

#[test]
fn a_hook_that_does_not_enforce_locks_up_nothing_and_gets_its_requests() {
    use crate::coverage::rule_index::RuleIndex;
    let text = |enforcement: &str| over_pods("a", &format!("failurePolicy: Fail, enforcement: {enforcement}"));
    let index = |enforcement: &str| RuleIndex::new(&snapshot(&format!("{HEAD}{}", text(enforcement))));
    assert_ne!(rules(&text("Deny")), []);
    for enforcement in ["Warn", "Audit", "Shadow"] {
        assert_eq!(rules(&text(enforcement)), [], "{enforcement}");
        assert_eq!(index(enforcement), index("Deny"), "{enforcement}");
    }
}

#[test]
fn a_pause_is_made_after_each_look() {
    let pauses = std::cell::Cell::new(0);
    let snapshot = snapshot(&format!("{HEAD}{}", over_pods("a", "failurePolicy: Fail")));
    assert_eq!(snapshot.hazards_with(&|| pauses.set(pauses.get() + 1)), snapshot.hazards());
    assert!(pauses.get() > 11, "{}", pauses.get());
}

//! Admission policies beside hooks: order, bypass, bounds, and what one policy at fault does to others. What a policy
//! itself decides is in `tests/policies`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::time::Duration;

use crate::support::{
    gate::{ask, ask_within, document, gate, hook},
    mutating::{LONG, entry, judging, labels, patched},
    reviews::create_pod,
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::Reasons;
use serde_json::json;

/// A validating policy for Pods with one validation, and its binding.
fn validating(name: &str, failure_policy: &str, expression: &str) -> String {
    policy(
        "Validating",
        name,
        &format!("failurePolicy: {failure_policy}\n  validations: [{{expression: {expression:?}}}]"),
    ) + &binding("Validating", name, "\n  validationActions: [Deny]")
}

/// A mutating policy for Pods with one JSON patch, and its binding.
fn mutating(name: &str, reinvocation: &str, expression: &str) -> String {
    let patch = format!("[{{patchType: JSONPatch, jsonPatch: {{expression: {expression:?}}}}}]");
    policy("Mutating", name, &format!("reinvocationPolicy: {reinvocation}\n  mutations: {patch}"))
        + &binding("Mutating", name, "")
}

fn policy(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}AdmissionPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         matchConstraints:\n    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}}]\n  \
         {spec}\n"
    )
}

fn binding(kind: &str, name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}AdmissionPolicyBinding\nmetadata: {{name: {name}}}\n\
         spec:\n  policyName: {name}{more}\n"
    )
}

#[tokio::test]
async fn a_denial_by_a_policy_calls_no_validating_hook() {
    let yes = ScriptedHook::start(Script::Allow).await;
    let hooks = document(&[hook("a.example.com", &yes.url(), "")]);
    let gate = gate(&(hooks + &validating("no-pods", "Fail", "false")), Reasons::First);
    let refusal = ask(&gate, create_pod("1", 0)).await.refusal.unwrap();
    assert_eq!(
        refusal.message,
        "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'no-pods' with binding 'no-pods' denied request: failed \
         expression: false"
    );
    assert_eq!((refusal.code, &*refusal.reason), (422, "Invalid"));
    assert_eq!(yes.seen().len(), 0, "the hook is not called");
}

#[tokio::test]
async fn a_policy_with_a_bypass_or_break_glass_does_not_decide() {
    for (rules, allowed) in [
        ("- {name: x, reason: y, hooks: [no-pods], namespaces: [shop]}", true),
        ("- {name: x, reason: y, hooks: [no-pods], namespaces: [other]}", false),
        ("- {name: x, reason: y, namespaces: [shop]}", true),
    ] {
        let text = document(&[]) + "bypass:\n" + rules + "\n" + &validating("no-pods", "Fail", "false");
        let gate = gate(&text, Reasons::First);
        assert_eq!(ask(&gate, create_pod("1", 0)).await.allowed(), allowed, "{rules}");
    }
}

#[tokio::test]
async fn under_a_bypass_that_fails_open_only_a_denial_rejects() {
    let bypass = |names: &str| {
        document(&[]) + "bypass:\n- {name: x, reason: y, effect: FailOpen, namespaces: [shop]" + names + "}\n"
    };
    let identity = "[JSONPatch{op: 'replace', path: '/kind', value: 'Other'}]";
    for (policies, names, allowed) in [
        (validating("broken", "Fail", "object.spec.absent == 1"), "", true),
        (validating("broken", "Fail", "object.spec.absent == 1"), ", hooks: [broken]", true),
        (validating("broken", "Fail", "object.spec.absent == 1"), ", hooks: [other]", false),
        (validating("strict", "Fail", "false"), "", false),
        (mutating("broken", "Never", "[JSONPatch{op: 'remove', path: '/absent'}]"), "", true),
        (mutating("broken", "Never", identity), "", true),
    ] {
        let verdict = ask(&gate(&(bypass(names) + &policies), Reasons::First), create_pod("1", 0)).await;
        assert_eq!(verdict.allowed(), allowed, "{names} {policies} {:?}", verdict.refusal);
    }
}

#[tokio::test]
async fn a_denial_counts_however_late_a_policy_on_trial_is() {
    let audit = "metadata: {name: b-endless}";
    let endless = validating("b-endless", "Fail", ENDLESS)
        .replace(audit, "metadata: {name: b-endless, annotations: {gatepost.dev/enforcement: Audit}}");
    assert!(endless.contains("enforcement: Audit"));
    let gate = gate(&(validating("a-strict", "Ignore", "false") + &endless), Reasons::First);
    let verdict = ask_within(&gate, create_pod("1", 0), Duration::from_millis(500)).await;
    assert!(verdict.refusal.unwrap().message.contains("'a-strict'"));
}

#[tokio::test]
async fn policies_decide_about_objects_too_large_for_the_worker() {
    let expression = "object.metadata.annotations.pad.size() < 1000";
    let gate = gate(&validating("small", "Fail", expression), Reasons::First);
    assert!(ask(&gate, create_pod("1", 0)).await.allowed());
    let verdict = ask_within(&gate, create_pod("2", 400 << 10), LONG).await;
    assert!(verdict.refusal.unwrap().message.contains("denied request: failed expression"));
}

#[tokio::test]
async fn failing_policy_follows_its_failure_policy() {
    let absent = "object.spec.absent == 1";
    let named = |failure_policy| validating("broken", failure_policy, absent) + &validating("good", "Fail", "true");
    let ignored = gate(&named("Ignore"), Reasons::First);
    assert!(ask(&ignored, create_pod("1", 0)).await.allowed());
    let refusal = ask(&gate(&named("Fail"), Reasons::First), create_pod("1", 0)).await.refusal.unwrap();
    assert!(refusal.message.contains("'broken' with binding 'broken' denied request: expression 'object.spec.absent == 1' resulted in error: no such key: absent"), "{}", refusal.message);
    let others = validating("broken", "Ignore", absent) + &validating("strict", "Fail", "false");
    let refusal = ask(&gate(&others, Reasons::First), create_pod("1", 0)).await.refusal.unwrap();
    assert!(refusal.message.contains("'strict'"), "{}", refusal.message);
}

/// An expression that runs for as many steps as any may.
const ENDLESS: &str = "['a','b','c','d','e','f','g','h'].all(a, ['a','b','c','d','e','f','g','h'].all(b, \
                       ['a','b','c','d','e','f','g','h'].all(c, ['a','b','c','d','e','f','g','h'].all(d, \
                       ['a','b','c','d','e','f','g','h'].all(e, ['a','b','c','d','e','f','g','h'].all(f, \
                       ['a','b','c','d','e','f','g','h'].all(g, true)))))))";

#[tokio::test]
async fn an_expensive_policy_is_ended_and_others_still_decide() {
    let both =
        validating("endless", "Ignore", ENDLESS) + &validating("strict", "Fail", "object.metadata.name == 'other'");
    let gate = gate(&both, Reasons::First);
    let refusal = ask_within(&gate, create_pod("1", 0), LONG).await.refusal.unwrap();
    assert!(refusal.message.contains("'strict' with binding 'strict' denied request"), "{}", refusal.message);
}

/// An expression of this many nested loops.
pub(crate) fn loops(depth: usize) -> String {
    let letters = "['a','b','c','d','e','f','g','h']";
    (0..depth).fold("true".to_owned(), |inner, depth| format!("{letters}.all(x{depth}, {inner})"))
}

/// Each binding needs a million steps: together more than the policy may take. What the first ones deny stays denied.
#[tokio::test]
async fn denial_stands_if_later_bindings_are_not_evaluated() {
    let spec =
        format!("failurePolicy: Ignore\n  validations: [{{expression: 'false'}}, {{expression: {:?}}}]", loops(6));
    let bindings: String = (10..50)
        .map(|n| {
            binding("Validating", "slow", "\n  validationActions: [Deny]")
                .replace("{name: slow}", &format!("{{name: b{n}}}"))
        })
        .collect();
    let gate = gate(&(policy("Validating", "slow", &spec) + &bindings), Reasons::First);
    let refusal = ask_within(&gate, create_pod("1", 0), LONG).await.refusal.expect("the first binding denies");
    assert!(refusal.message.contains("with binding 'b10' denied request"), "{}", refusal.message);
}

/// Each of these policies needs a million steps: together more than one may.
#[tokio::test]
async fn a_policy_fails_only_by_steps_of_its_own() {
    let (slow, patch) = (loops(6), "[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]");
    for is_mutating in [false, true] {
        let policies = (0..33).map(|number| match is_mutating {
            false => validating(&format!("slow-{number}"), "Fail", &slow),
            true => mutating(&format!("slow-{number}"), "Never", &format!("{slow} ? {patch} : {patch}")),
        });
        let gate = gate(&policies.collect::<String>(), Reasons::First);
        let verdict = ask_within(&gate, create_pod("1", 0), LONG).await;
        assert!(verdict.allowed(), "{:?}", verdict.refusal);
    }
}

#[tokio::test]
async fn the_deadline_ends_an_evaluation() {
    let both: String = (0..40).map(|number| validating(&format!("endless-{number}"), "Ignore", ENDLESS)).collect();
    let refused = gate(&both, Reasons::First);
    let refusal = ask_within(&refused, create_pod("1", 0), Duration::from_millis(50)).await.refusal.unwrap();
    assert_eq!(refusal.code, 504, "{}", refusal.message);
    let bypass = document(&[]) + "bypass: [{name: x, reason: y, effect: FailOpen, namespaces: [shop]}]\n";
    let opened = gate(&(bypass + &both), Reasons::First);
    let verdict = ask_within(&opened, create_pod("1", 0), Duration::from_millis(50)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
}

#[tokio::test]
async fn with_all_reasons_each_policy_that_denies_is_named() {
    let both = validating("a", "Fail", "false") + &validating("b", "Fail", "1 == 2");
    for (reasons, named) in [(Reasons::First, 1), (Reasons::All, 2)] {
        let refusal = ask(&gate(&both, reasons), create_pod("1", 0)).await.refusal.unwrap();
        assert_eq!(refusal.message.matches("denied request").count(), named, "{}", refusal.message);
    }
}

#[tokio::test]
async fn hooks_see_changes_of_mutating_policies() {
    let hook = judging(|request| match labels(request)["team"].as_str() {
        Some("a") => json!({"allowed": true}),
        other => json!({"allowed": false, "status": {"message": format!("{other:?}")}}),
    })
    .await;
    let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/team', value: 'a'}]";
    let text = document(&[entry("sees", "Validating", &hook, "")]) + &mutating("team", "Never", patch);
    let verdict = ask(&gate(&text, Reasons::First), create_pod("1", 0)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    assert_eq!(patched(&verdict)["metadata"]["labels"], json!({"app": "web", "team": "a"}));
}

#[tokio::test]
async fn mutating_policy_is_reinvoked_if_a_hook_changes_the_object() {
    let add = json!([{"op": "add", "path": "/metadata/labels/hook", "value": "x"}]);
    let hook = judging(move |_| crate::support::mutating::patch(add.clone())).await;
    let count = "[JSONPatch{op: 'add', path: '/metadata/labels/seen', \
                 value: has(object.metadata.labels.hook) ? 'hook' : 'alone'}]";
    for (reinvocation, seen) in [("IfNeeded", "hook"), ("Never", "alone")] {
        let text = document(&[entry("adds", "Mutating", &hook, "")]) + &mutating("counts", reinvocation, count);
        let verdict = ask(&gate(&text, Reasons::First), create_pod("1", 0)).await;
        assert_eq!(patched(&verdict)["metadata"]["labels"]["seen"], seen, "{reinvocation}");
    }
}

/// As in upstream, which dispatches anew: to policies that were applied, and whose selectors and conditions still
/// match.
#[tokio::test]
async fn reinvocation_requires_that_the_policy_applied_and_applies() {
    let add = json!([{"op": "add", "path": "/metadata/labels/hook", "value": "x"}]);
    let hook = judging(move |_| crate::support::mutating::patch(add.clone())).await;
    let count = "[JSONPatch{op: 'add', path: '/metadata/labels/seen', \
                 value: has(object.metadata.labels.hook) ? 'hook' : 'alone'}]";
    let absent = "    objectSelector: {matchExpressions: [{key: hook, operator: DoesNotExist}]}\n";
    let rules = "  matchConstraints:\n";
    for (more, seen) in [
        ((rules, format!("{rules}{absent}")), Some("alone")),
        (
            (
                rules,
                format!("  matchConditions: [{{name: a, expression: '!has(object.metadata.labels.hook)'}}]\n{rules}"),
            ),
            Some("alone"),
        ),
        (
            (
                rules,
                format!("  matchConditions: [{{name: a, expression: 'has(object.metadata.labels.hook)'}}]\n{rules}"),
            ),
            None,
        ),
        (("  policyName: counts", format!("  policyName: counts\n  matchResources:\n{absent}")), Some("alone")),
    ] {
        let policy = mutating("counts", "IfNeeded", count).replace(more.0, &more.1);
        let text = document(&[entry("adds", "Mutating", &hook, "")]) + &policy;
        let verdict = ask(&gate(&text, Reasons::First), create_pod("1", 0)).await;
        assert_eq!(patched(&verdict)["metadata"]["labels"]["seen"].as_str(), seen, "{policy}");
    }
}

#[tokio::test]
async fn large_objects_are_mutated_beside_the_worker() {
    let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/team', value: 'a'}]";
    let gate = gate(&mutating("team", "Never", patch), Reasons::First);
    let verdict = ask_within(&gate, create_pod("1", 400 << 10), LONG).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    let operations: serde_json::Value = serde_json::from_slice(&verdict.patch.unwrap()).unwrap();
    assert_eq!(operations, json!([{"op": "add", "path": "/metadata/labels/team", "value": "a"}]));
}

/// A suspended evaluation goes on behind the binding that has denied; the denial must not be lost.
#[tokio::test]
async fn offloaded_mutating_policy_keeps_its_denials() {
    for value in ["'a'".to_owned(), format!("{} ? 'a' : 'b'", loops(5))] {
        let patch = format!("[JSONPatch{{op: 'add', path: '/metadata/labels/team', value: {value}}}]");
        let spec = format!(
            "paramKind: {{apiVersion: v1, kind: ConfigMap}}\n  reinvocationPolicy: Never\n  \
             mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: {patch:?}}}}}]"
        );
        let param = "\n  paramRef: {name: absent, parameterNotFoundAction: Deny}";
        let bindings =
            binding("Mutating", "team", param) + &binding("Mutating", "team", "").replace("{name: team}", "{name: z}");
        let gate = gate(&(policy("Mutating", "team", &spec) + &bindings), Reasons::First);
        let verdict = ask_within(&gate, create_pod("1", 0), LONG).await;
        let refusal = verdict.refusal.expect("the first binding denies");
        assert!(refusal.message.contains("policy 'team' with binding 'team' denied request"), "{}", refusal.message);
    }
}

/// Also of those policies that are evaluated after another was moved beside the worker.
#[tokio::test]
async fn the_rejection_by_mutating_policies_names_the_denials_of_all() {
    let broken = "[JSONPatch{op: 'remove', path: '/absent'}]";
    let slow = format!("{ENDLESS} ? [JSONPatch{{op: 'remove', path: '/absent'}}] : []");
    let text = mutating("a", "Never", broken) + &mutating("b", "Never", &slow) + &mutating("c", "Never", broken);
    let refusal = ask_within(&gate(&text, Reasons::First), create_pod("1", 0), LONG).await.refusal.unwrap();
    let named: Vec<_> = refusal.causes.iter().filter_map(|cause| cause.message.split('\'').nth(1)).collect();
    assert_eq!(named, ["a", "b", "c"], "{:?}", refusal.causes);
}

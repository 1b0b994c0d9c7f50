//! Two hooks that want two versions of one resource: the verdict on a review in one of them, and where the caller asks
//! about each version in a review of its own (`/validate/one-version`).
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use crate::support::{
    gate::{ask as ask_as_made, caller, document, gate, revision},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::review::{AdmissionDeps, Caller, ListedVersions, OtherVersions, Reasons, decide};
use gatepost_api::{Gvr, Rope, Verdict, verdict::OTHER_VERSIONS_ANNOTATION};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{api::admission::v1::AdmissionRequest, apimachinery::pkg::apis::meta::v1::GroupVersionResource},
};

fn hook_for(version: &str, hook: &ScriptedHook, more: &str) -> String {
    format!(
        "- name: {version}.example.com\n  clientConfig: {{url: \"{}\"}}\n  rules: [{{operations: [CREATE], apiGroups: \
         [x.io], apiVersions: [{version}], resources: [things]}}]\n{more}",
        hook.url()
    )
}

/// A review in this version of a request that was made in that.
async fn ask(gate: &AdmissionDeps, sent: &str, made: &str, other_versions: OtherVersions) -> Verdict {
    let resource = |version: &str| {
        let text = |text: &str| Some(text.to_owned());
        Some(GroupVersionResource { group: text("x.io"), version: text(version), resource: text("things") })
    };
    let request = AdmissionRequest { resource: resource(sent), request_resource: resource(made), ..create_pod("u", 0) };
    let review = view(Rope::new([message(request)])).expect("a review");
    decide(gate, &review, &Caller { other_versions, ..caller(Duration::from_secs(5)) }).await
}

#[tokio::test]
async fn hook_for_another_version_fails_or_is_called_separately() {
    let (one, two) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let gate = gate(&document(&[hook_for("v1", &one, ""), hook_for("v2", &two, "")]), Reasons::First);
    for made in ["v1", "v2"] {
        for sent in ["v1", "v2"] {
            let verdict = ask(&gate, sent, made, OtherVersions::Fail).await;
            let refusal = verdict.refusal.expect("one of both cannot be asked");
            assert_eq!(refusal.code, 500, "{sent} {made}");
            assert!(refusal.message.contains("only the caller can convert"), "{}", refusal.message);

            let (before_one, before_two) = (one.seen().len(), two.seen().len());
            assert!(ask(&gate, sent, made, OtherVersions::ReviewedSeparately).await.allowed(), "{sent} {made}");
            let asked = (one.seen().len() - before_one, two.seen().len() - before_two);
            assert_eq!(asked, if sent == "v1" { (1, 0) } else { (0, 1) }, "{sent} {made}");
        }
    }
}

/// As hooks: another review of the request has the version that the policy wants.
#[tokio::test]
async fn policy_for_another_version_fails_or_runs_separately() {
    let policy = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
                  metadata: {name: no}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [x.io], \
                  apiVersions: [v1], operations: ['*'], resources: [things]}]}\n  validations: [{expression: 'false'}]\n\
                  ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                  metadata: {name: no}\nspec: {policyName: no, validationActions: [Deny]}\n";
    let gate = gate(policy, Reasons::First);
    for (sent, made, other_versions, why) in [
        ("v1", "v1", OtherVersions::ReviewedSeparately, Some("failed expression: false")),
        ("v1", "v2", OtherVersions::ReviewedSeparately, Some("failed expression: false")),
        ("v2", "v2", OtherVersions::ReviewedSeparately, None),
        ("v2", "v1", OtherVersions::ReviewedSeparately, None),
        ("v2", "v2", OtherVersions::Fail, Some("only the caller can convert")),
    ] {
        let refusal = ask(&gate, sent, made, other_versions).await.refusal;
        let message = refusal.map(|refusal| refusal.message);
        assert_eq!(message.is_some(), why.is_some(), "{sent} {made} {message:?}");
        assert!(message.unwrap_or_default().contains(why.unwrap_or_default()), "{sent} {made}");
    }
}

#[tokio::test]
async fn separate_version_calls_count_other_failures() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let gate = gate(&document(&[hook_for("v1", &no, "  failurePolicy: Ignore\n")]), Reasons::First);
    let noted = ask(&gate, "v2", "v2", OtherVersions::Fail).await;
    assert!(noted.allowed() && noted.audit_annotations.len() == 2, "{noted:?}");
    let apart = ask(&gate, "v2", "v2", OtherVersions::ReviewedSeparately).await;
    assert!(apart.allowed() && apart.audit_annotations == [revision()], "{apart:?}");
    assert!(!ask(&gate, "v1", "v2", OtherVersions::ReviewedSeparately).await.allowed());
}

/// A rule for Pods in `v9`, of which `check` says that it never matches, leaves the writing of Pods alone; what no
/// table knows may be served in any version, and is not passed over.
#[tokio::test]
async fn unserved_version_fails_no_write_of_a_known_resource() {
    let no = ScriptedHook::start(Script::Deny("seen")).await;
    let ninth = |group: &str, resource: &str| {
        let rule = "[x.io], apiVersions: [v9], resources: [things]";
        assert!(hook_for("v9", &no, "").contains(rule));
        hook_for("v9", &no, "").replace(rule, &format!("['{group}'], apiVersions: [v9], resources: [{resource}]"))
    };
    let gate_for = |group: &str, resource: &str| gate(&document(&[ninth(group, resource)]), Reasons::First);
    let verdict = ask_as_made(&gate_for("", "pods"), create_pod("u", 0)).await;
    assert!(verdict.allowed(), "{verdict:?}");
    let verdict = ask(&gate_for("x.io", "things"), "v1", "v1", OtherVersions::Fail).await;
    assert_eq!(verdict.refusal.expect("it may be served in v9").code, 500);
    assert!(no.seen().is_empty());
}

/// Beside a hook of one version stands one that takes any: the entry that sends the request as its client made it asks
/// the second, and the one that sends it converted must not ask it again.
#[tokio::test]
async fn hook_for_the_requested_version_is_called_once() {
    let (one, any) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let all = hook_for("v9", &any, "").replace("apiVersions: [v9]", "apiVersions: ['*']");
    let gate = gate(&document(&[hook_for("v1", &one, ""), all]), Reasons::First);
    for (made, sent, asked) in [("v1", "v1", (1, 1)), ("v2", "v2", (0, 1)), ("v2", "v1", (1, 0))] {
        let before = (one.seen().len(), any.seen().len());
        assert!(ask(&gate, sent, made, OtherVersions::ReviewedSeparately).await.allowed(), "{sent} {made}");
        assert_eq!((one.seen().len() - before.0, any.seen().len() - before.1), asked, "made in {made}, sent in {sent}");
    }
}

/// The versions of `things` that the caller can send, and what is wanted besides the client's.
fn listed(versions: &[&str]) -> OtherVersions {
    let things = |version: &&str| Gvr { group: "x.io".into(), version: (*version).into(), resource: "things".into() };
    OtherVersions::Listed(Arc::new(ListedVersions::new(versions.iter().map(things).collect())))
}

fn wanted(verdict: &Verdict) -> Option<&str> {
    verdict.audit_annotations.iter().find(|(key, _)| key == OTHER_VERSIONS_ANNOTATION).map(|(_, value)| &**value)
}

/// A caller that lists its versions has each hook called once, in the version that an apiserver would choose, and none
/// that wants a version which is not listed.
#[tokio::test]
async fn listed_versions_call_each_hook_once() {
    let hooks = [(); 4].map(|()| ScriptedHook::start(Script::Allow));
    let [one, two, either, ninth] = &futures_util::future::join_all(hooks).await[..] else { panic!("four hooks") };
    let either_of = hook_for("v0", either, "").replace("[v0]", "[v3, v2, v1]");
    let gate = gate(
        &document(&[hook_for("v1", one, ""), hook_for("v2", two, ""), either_of, hook_for("v9", ninth, "")]),
        Reasons::First,
    );
    for (made, sent, asked, names) in [
        // The third hook takes v1 as it was made.
        ("v1", "v1", [1, 0, 1], Some("x.io/v2/things")),
        ("v1", "v2", [0, 1, 0], None),
        // Of the versions in one rule the caller's order decides.
        ("v4", "v4", [0, 0, 0], Some("x.io/v1/things,x.io/v2/things")),
        ("v4", "v1", [1, 0, 1], None),
        ("v4", "v2", [0, 1, 0], None),
        ("v4", "v3", [0, 0, 0], None),
    ] {
        let seen = || [one, two, either].map(|hook| hook.seen().len());
        let before = seen();
        let verdict = ask(&gate, sent, made, listed(&["v4", "v1", "v2", "v3"])).await;
        assert!(verdict.allowed(), "{made} {sent} {verdict:?}");
        let after = seen();
        assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), asked, "made in {made}, sent in {sent}");
        assert_eq!(wanted(&verdict), names, "made in {made}, sent in {sent}");
    }
    assert!(ninth.seen().is_empty());
}

/// A conversion that fails must not reject a request for the sake of a hook that decides after it.
#[tokio::test]
async fn listed_versions_that_only_a_shadow_wants_are_not_named() {
    let hook = ScriptedHook::start(Script::Allow).await;
    for (more, names) in [("", Some("x.io/v2/things")), ("  enforcement: Shadow\n", None)] {
        let gate = gate(&document(&[hook_for("v2", &hook, more)]), Reasons::First);
        let verdict = ask(&gate, "v1", "v1", listed(&["v1", "v2"])).await;
        assert_eq!((verdict.allowed(), wanted(&verdict)), (true, names));
    }
}

/// The first rule decides before the caller's order does; `matchPolicy: Exact` wants no other version.
#[tokio::test]
async fn listed_versions_are_chosen_by_the_first_rule() {
    let (rules, exact) = (ScriptedHook::start(Script::Allow).await, ScriptedHook::start(Script::Allow).await);
    let rule = |version: &str| {
        format!("{{operations: [CREATE], apiGroups: [x.io], apiVersions: [{version}], resources: [things]}}")
    };
    let ordered = hook_for("v3", &rules, "").replace(&rule("v3"), &format!("{}, {}", rule("v3"), rule("v1")));
    let gate = gate(&document(&[ordered, hook_for("v2", &exact, "  matchPolicy: Exact\n")]), Reasons::First);
    let versions = || listed(&["v4", "v1", "v2", "v3"]);
    assert_eq!(wanted(&ask(&gate, "v4", "v4", versions()).await), Some("x.io/v3/things"));
    for (sent, asked) in [("v1", 0), ("v2", 0), ("v3", 1)] {
        let before = rules.seen().len();
        assert!(ask(&gate, sent, "v4", versions()).await.allowed());
        assert_eq!(rules.seen().len() - before, asked, "{sent}");
    }
    assert!(exact.seen().is_empty());
}

/// Policies, too, by the rules that take the name of the object; and what is denied in the client's version wants no
/// other.
#[tokio::test]
async fn listed_versions_evaluate_a_policy_once() {
    let policy = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
                  metadata: {name: no}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [x.io], \
                  apiVersions: [v1], operations: ['*'], resources: [things], resourceNames: [nobody]}, {apiGroups: \
                  [x.io], apiVersions: [v2], operations: ['*'], resources: [things]}]}\n  \
                  validations: [{expression: 'false'}]\n\
                  ---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                  metadata: {name: no}\nspec: {policyName: no, validationActions: [Deny]}\n";
    let gate = gate(policy, Reasons::First);
    let as_made = ask(&gate, "v1", "v1", listed(&["v1", "v2"])).await;
    assert!(as_made.allowed());
    assert_eq!(wanted(&as_made), Some("x.io/v2/things"));
    assert!(!ask(&gate, "v2", "v1", listed(&["v1", "v2"])).await.allowed());
    let denied = ask(&gate, "v2", "v2", listed(&["v1", "v2"])).await;
    assert!(!denied.allowed() && wanted(&denied).is_none());
}

/// Initializers act in the review of the client's version alone.
#[tokio::test]
async fn listed_versions_initialize_an_object_once() {
    let initializers = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: i}\n\
                        resourceInitializers:\n- apiGroup: x.io\n  resource: things\n  initializers:\n  \
                        - {name: team.example.com, builtIn: {labels: {team: red}}}\n";
    let gate = gate(initializers, Reasons::First);
    for (sent, other_versions, acts) in [
        ("v1", listed(&["v1", "v2"]), true),
        ("v2", listed(&["v1", "v2"]), false),
        ("v2", OtherVersions::ReviewedSeparately, true),
    ] {
        let verdict = ask(&gate, sent, "v1", other_versions).await;
        assert!(verdict.allowed(), "{verdict:?}");
        assert_eq!(verdict.patch.is_some(), acts, "{sent}");
    }
}

/// The caller knows its versions better than the table of Kubernetes' own resources does.
#[tokio::test]
async fn listed_versions_may_be_newer_than_the_table() {
    let hook = ScriptedHook::start(Script::Allow).await;
    let rule = hook_for("v9", &hook, "").replace("[x.io]", "['']").replace("[things]", "[pods]");
    let gate = gate(&document(&[rule]), Reasons::First);
    let pods = |version: &str| Gvr { group: "".into(), version: version.into(), resource: "pods".into() };
    for (versions, names) in [(vec!["v1", "v9"], Some("/v9/pods")), (vec!["v1", "v8"], None)] {
        let listed = ListedVersions::new(versions.into_iter().map(pods).collect());
        let caller =
            Caller { other_versions: OtherVersions::Listed(Arc::new(listed)), ..caller(Duration::from_secs(5)) };
        let review = view(Rope::new([message(create_pod("u", 0))])).expect("a review");
        let verdict = decide(&gate, &review, &caller).await;
        assert!(verdict.allowed(), "{verdict:?}");
        assert_eq!(wanted(&verdict), names);
    }
    assert!(hook.seen().is_empty());
}

use gatepost_api::{Gvk, Gvr, MatchPolicy, Review, Served};

use super::*;

fn review((group, version, resource): (&str, &str, &str), sub_resource: &str) -> Review {
    let resource = Gvr { group: group.into(), version: version.into(), resource: resource.into() };
    Review {
        name: "name".into(),
        namespace: "ns".into(),
        sub_resource: sub_resource.into(),
        ..Review::bare(Operation::Create, Gvk::default(), resource)
    }
}

fn served() -> Served {
    let mut served = Served::default();
    for (group, version) in [("extensions", "v1beta1"), ("apps", "v1"), ("apps", "v1beta1"), ("apps", "v1alpha1")] {
        served.add(group, version, "deployments");
    }
    served
}

fn resources(rules: Vec<NamedRule>, match_policy: MatchPolicy) -> MatchResources {
    MatchResources { rules, match_policy, ..MatchResources::default() }
}

/// `matching/matching_test.go`, TestMatcher, without its selectors. A policy without a `matchPolicy` is Exact there.
#[test]
fn rules_match_as_upstream() {
    use MatchPolicy::{Equivalent, Exact};
    const APPS: (&str, &str, &str) = ("apps", "v1", "deployments");
    const EXTENSIONS: (&str, &str, &str) = ("extensions", "v1beta1", "deployments");
    let named = |name: &str, rule: NamedRule| NamedRule { resource_names: vec![name.into()], ..rule };
    let deployments = |group, version| rule(&[group], &[version], &["deployments"]);
    let scaled = |group, version| rule(&[group], &[version], &["deployments", "deployments/scale"]);
    let miss = || vec![deployments("extensions", "v1beta1"), deployments("apps", "v1beta1")];
    let scaled_miss = || vec![scaled("extensions", "v1beta1"), scaled("apps", "v1beta1")];
    let nothing = NamedRule { rule: Rule { operations: vec![], ..rule(&[], &[], &[]).rule }, resource_names: vec![] };
    let served = served();
    for (name, rules, policy, target, sub_resource, wanted) in [
        ("wildcard rule, match as requested", vec![rule(&["*"], &["*"], &["*"])], Exact, APPS, "", true),
        (
            "specific rules, prefer exact match",
            vec![deployments("extensions", "v1"), deployments("apps", "v1beta1"), deployments("apps", "v1")],
            Exact,
            APPS,
            "",
            true,
        ),
        ("specific rules, match miss", miss(), Exact, APPS, "", false),
        ("specific rules, equivalent match", miss(), Equivalent, APPS, "", true),
        (
            "specific rules, subresource prefer exact match",
            vec![scaled("extensions", "v1beta1"), scaled("apps", "v1")],
            Exact,
            APPS,
            "scale",
            true,
        ),
        ("specific rules, subresource match miss", scaled_miss(), Exact, APPS, "scale", false),
        ("specific rules, subresource equivalent match", scaled_miss(), Equivalent, APPS, "scale", true),
        ("no rule for the subresource", miss(), Equivalent, APPS, "scale", false),
        ("name match", vec![named("name", deployments("apps", "v1"))], Exact, APPS, "", true),
        ("name match miss", vec![named("wrong-name", deployments("apps", "v1"))], Exact, APPS, "", false),
        ("equivalent, name match", vec![named("name", scaled("apps", "v1"))], Equivalent, EXTENSIONS, "scale", true),
        (
            "equivalent, name match miss",
            vec![named("wrong-name", scaled("apps", "v1"))],
            Equivalent,
            EXTENSIONS,
            "scale",
            false,
        ),
        ("treat empty ResourceRules as match", vec![], Exact, APPS, "", true),
        ("treat non-empty ResourceRules as no match", vec![nothing], Exact, APPS, "", false),
    ] {
        let resources = resources(rules, policy);
        assert_eq!(resources.matches_rules(&review(target, sub_resource), Some(&served)), wanted, "{name}");
    }
}

/// The rules that exclude in the same table.
#[test]
fn excluded_rules_win() {
    let of = |match_policy| MatchResources {
        excluded: vec![rule(&["extensions"], &["v1beta1"], &["deployments"])],
        ..resources(vec![rule(&["*"], &["*"], &["*"])], match_policy)
    };
    let (apps, extensions) =
        (review(("apps", "v1", "deployments"), ""), review(("extensions", "v1beta1", "deployments"), ""));
    let served = served();
    assert!(of(MatchPolicy::Exact).matches_rules(&apps, Some(&served)));
    assert!(!of(MatchPolicy::Exact).matches_rules(&extensions, Some(&served)));
    assert!(!of(MatchPolicy::Equivalent).matches_rules(&apps, Some(&served)));
    let others = MatchResources { rules: Vec::new(), ..of(MatchPolicy::Exact) };
    assert!(others.matches_rules(&apps, Some(&served)) && !others.matches_rules(&extensions, Some(&served)));
}

#[test]
fn resource_of_unknown_versions_matches_and_is_not_excluded_in_another_version() {
    let widgets = || vec![rule(&["example.com"], &["v1"], &["widgets"])];
    let made = review(("example.com", "v2", "widgets"), "");
    assert!(resources(widgets(), MatchPolicy::Equivalent).matches_rules(&made, None));
    assert!(!resources(widgets(), MatchPolicy::Exact).matches_rules(&made, None));
    let excluding = MatchResources { excluded: widgets(), ..MatchResources::default() };
    assert!(excluding.matches_rules(&made, None));
    let mut served = Served::default();
    served.add("example.com", "v1", "widgets");
    served.add("example.com", "v2", "widgets");
    assert!(!excluding.matches_rules(&made, Some(&served)));
}

#[test]
fn version_of_the_converted_object_matches_under_equivalent_only() {
    let converted = Review {
        request_resource: Some(Gvr { group: "apps".into(), version: "v1beta1".into(), resource: "deployments".into() }),
        ..review(("apps", "v1", "deployments"), "")
    };
    let of = |policy| resources(vec![rule(&["apps"], &["v1"], &["deployments"])], policy);
    let served = served();
    assert!(of(MatchPolicy::Equivalent).matches_rules(&converted, Some(&served)));
    assert!(!of(MatchPolicy::Exact).matches_rules(&converted, Some(&served)));
}

#[test]
fn policies_see_configurations_of_webhooks_but_no_policies() {
    const GROUP: &str = "admissionregistration.k8s.io";
    let any = resources(vec![rule(&["*"], &["*"], &["*"])], MatchPolicy::Equivalent);
    let about = |resource: &str, kind: &str| Review {
        kind: Gvk { group: GROUP.into(), version: "v1".into(), kind: kind.into() },
        ..review((GROUP, "v1", resource), "")
    };
    for (resource, kind, wanted) in [
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", false),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false),
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", false),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", false),
        ("validatingadmissionpolicies", "Pod", true),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", true),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", true),
    ] {
        assert_eq!(any.matches_rules(&about(resource, kind), None), wanted, "{resource} {kind}");
    }
}

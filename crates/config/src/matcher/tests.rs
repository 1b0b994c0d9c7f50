use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{MatchKind, WantedVersion};
use gatepost_api::{
    Endpoint, FailurePolicy, Gvk, Gvr, HookType, MatchPolicy, Operation, Protocol, Reinvocation, Rule, RuleTarget,
    Scope, Selector, Served, SideEffects, Transport, hook::Address,
};

fn hook_of(rules: Vec<Rule>, match_policy: MatchPolicy, sees_admission_config: bool) -> Arc<Hook> {
    Arc::new(Hook {
        name: "hook".into(),
        hook_type: HookType::Validating,
        id: "c/hook/0".into(),
        rules,
        match_policy,
        sees_admission_config,
        endpoint: Endpoint {
            address: Address::Unix("/x".into()),
            tls: None,
            transport: Transport::Grpc,
            authorization: None,
        },
        protocol: Protocol::Grpc,
        takes_protobuf: false,
        failure_policy: FailurePolicy::Fail,
        timeout: std::time::Duration::from_secs(1),
        side_effects: SideEffects::None,
        reinvocation: Reinvocation::Never,
        dispatch: None,
        enforcement: Default::default(),
        canary: None,
        after: Box::default(),
        is_transactional: false,
        isolated: false,
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    })
}

fn hook(rules: Vec<Rule>) -> Arc<Hook> {
    hook_of(rules, MatchPolicy::Exact, false)
}

fn review(operation: Operation, group: &str, version: &str, resource: &str, sub: &str, namespace: &str) -> Review {
    let resource = Gvr { group: group.into(), version: version.into(), resource: resource.into() };
    let bare = Review::bare(operation, Gvk::default(), resource);
    Review { sub_resource: sub.into(), namespace: namespace.into(), ..bare }
}

fn words(from: &'static [&'static str]) -> impl Strategy<Value = Vec<Box<str>>> {
    vec(select(from).prop_map(Box::from), 0..4)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (
        vec(select(&Operation::ALL[..]), 0..4),
        words(&["", "apps", "events.k8s.io", "*"]),
        words(&["v1", "v2", "*"]),
        words(&[
            "*",
            "pods",
            "events",
            "events/status",
            "namespaces",
            "pods/status",
            "pods/*",
            "*/status",
            "*/*",
            "namespaces/status",
            "pods/",
        ]),
        select(&[Scope::Any, Scope::Namespaced, Scope::Cluster][..]),
    )
        .prop_map(|(operations, api_groups, api_versions, resources, scope)| Rule {
            operations,
            api_groups,
            api_versions,
            resources,
            scope,
        })
}

fn any_resource() -> impl Strategy<Value = (Gvr, &'static str)> {
    (
        select(&["", "apps", "other", "*", "events.k8s.io", "admissionregistration.k8s.io"][..]),
        select(&["v1", "v2", "v3"][..]),
        select(&["pods", "events", "namespaces", "nodes", "validatingadmissionpolicies"][..]),
        select(&["", "status", "scale"][..]),
    )
        .prop_map(|(group, version, resource, sub)| {
            (Gvr { group: group.into(), version: version.into(), resource: resource.into() }, sub)
        })
}

pub(crate) fn any_review() -> impl Strategy<Value = Review> {
    let kinds = [
        Gvk::default(),
        kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        kind("example.com", "ValidatingAdmissionPolicy"),
    ];
    (
        select(&Operation::ALL[..]),
        any_resource(),
        proptest::option::of(any_resource()),
        select(&["", "ns"][..]),
        select(kinds.to_vec()),
    )
        .prop_map(|(operation, (sent, sub), made, namespace, kind)| Review {
            kind,
            request_sub_resource: made.as_ref().map_or("", |(_, sub)| sub).into(),
            request_resource: made.map(|(made, _)| made),
            ..review(operation, &sent.group, &sent.version, &sent.resource, sub, namespace)
        })
}

fn kind(group: &str, kind: &str) -> Gvk {
    Gvk { group: group.into(), version: "v1".into(), kind: kind.into() }
}

pub(crate) fn any_hooks() -> impl Strategy<Value = Vec<Arc<Hook>>> {
    let policies = vec![MatchPolicy::Exact, MatchPolicy::Equivalent];
    let one = (vec(any_rule(), 0..4), select(policies), any::<bool>());
    vec(one.prop_map(|(rules, policy, sees)| hook_of(rules, policy, sees)), 0..12)
}

/// Oracle for the index: every rule of every hook, one after the other, as the words of [`How`] say it.
fn one_after_the_other(hooks: &[Arc<Hook>], review: &Review) -> Vec<Match> {
    let (made, sent) = (RuleTarget::as_made(review), RuleTarget::as_sent(review));
    let about_admission = gatepost_api::exempt::is_admission_config(review);
    let how = |hook: &Hook| {
        let sees = |target: &RuleTarget<'_>| hook.rules.iter().any(|rule| rule.matches(target));
        let equivalent = hook.match_policy == MatchPolicy::Equivalent;
        let means = |rule: &Rule| rule.matches_equivalent(&made, None) || rule.matches_equivalent(&sent, None);
        if about_admission && !hook.sees_admission_config {
            None
        } else if sees(&made) && made == sent {
            Some(MatchKind::AsMade)
        } else if sees(&sent)
            && (equivalent || hook.rules.iter().any(|rule| rule.matches(&made) && rule.matches(&sent)))
        {
            Some(MatchKind::AsSent)
        } else if sees(&made) {
            Some(MatchKind::OtherVersion(WantedVersion::AsMade))
        } else {
            let near = hook.rules.iter().position(means).filter(|_| equivalent)?;
            Some(MatchKind::OtherVersion(WantedVersion::OfRule(near as u32)))
        }
    };
    (0..).zip(hooks).filter_map(|(hook, one)| Some(Match { index: hook, how: how(one)? })).collect()
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_finds(hooks in any_hooks(), reviews in vec(any_review(), 1..12)) {
        let matcher = Matcher::new(&hooks);
        let mut found = MatchSet::new();
        for review in reviews {
            matcher.matching(&hooks, &review, None, &mut found);
            prop_assert_eq!(&found[..], &one_after_the_other(&hooks, &review)[..]);
        }
    }

    #[test]
    fn an_index_carried_over_is_the_one_made_anew(
        hooks in vec(any_hooks().prop_filter("some", |hooks| !hooks.is_empty()), 1..12),
        changes in vec((any::<prop::sample::Index>(), any_hooks()), 0..4),
    ) {
        let before: Vec<_> = hooks.concat();
        let mut after = before.clone();
        for (place, changed) in changes {
            if after.is_empty() {
                break;
            }
            let place = place.index(after.len());
            after.splice(place..=place, changed.into_iter().take(1));
        }
        let carried_over = Index::new(&before).carried_over(&before, &after);
        if let Some(index) = carried_over {
            prop_assert_eq!(index, Index::new(&after));
        }
    }

    #[test]
    fn a_rule_filed_coarsely_is_still_found(rule in any_rule(), reviews in vec(any_review(), 1..12), limit in 1usize..4) {
        prop_assert!(index::keys(&rule, limit).len() <= limit);
        let hooks = [hook_of(vec![rule; 1], MatchPolicy::Equivalent, false)];
        let matcher = Matcher { index: Arc::new(Index::within(&hooks, limit)) };
        let mut found = MatchSet::new();
        for review in reviews {
            matcher.matching(&hooks, &review, None, &mut found);
            prop_assert_eq!(&found[..], &one_after_the_other(&hooks, &review)[..]);
        }
    }
}

#[test]
fn an_index_is_carried_over_where_little_has_changed() {
    let about = |resource: &str| {
        let rule = Rule {
            operations: vec![Operation::Create],
            api_groups: vec!["g".into()],
            api_versions: vec!["v1".into()],
            resources: vec![resource.into()],
            scope: Scope::Any,
        };
        hook(vec![rule])
    };
    let before: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "*"].map(about).into();
    let mut after = before.clone();
    (after[0], after[9]) = (about("b"), about("k"));
    let index = Index::new(&before).carried_over(&before, &after).expect("carried over");
    assert_eq!(index, Index::new(&after));
    assert_ne!(index, Index::new(&before));
    after.pop();
    assert!(Index::new(&before).carried_over(&before, &after).is_none(), "every number may have changed");
}

/// Way in which a hook with one rule for `things` in these versions matches a request made in one version and sent in
/// another.
fn how(policy: MatchPolicy, versions: &[&str], made: &str, sent: &str) -> Option<MatchKind> {
    let rule = Rule {
        operations: vec![Operation::Create],
        api_groups: vec!["g".into()],
        api_versions: versions.iter().map(|version| (*version).into()).collect(),
        resources: vec!["things".into()],
        scope: Scope::Any,
    };
    let hooks = [hook_of(vec![rule], policy, false)];
    let mut review = review(Operation::Create, "g", sent, "things", "", "ns");
    review.request_resource = Some(Gvr { version: made.into(), ..review.resource.clone() });
    let mut found = MatchSet::new();
    Matcher::new(&hooks).matching(&hooks, &review, None, &mut found);
    assert!(found.len() <= 1);
    found.first().map(|matched| matched.how)
}

#[test]
fn a_hook_is_asked_in_a_version_it_takes_or_named() {
    use MatchPolicy::{Equivalent, Exact};
    let (of_rule, as_made) =
        (MatchKind::OtherVersion(WantedVersion::OfRule(0)), MatchKind::OtherVersion(WantedVersion::AsMade));
    for (policy, versions, made, sent, expected) in [
        (Exact, &["v1"][..], "v1", "v1", Some(MatchKind::AsMade)),
        (Exact, &["v1"], "v2", "v2", None),
        (Exact, &["v1"], "v2", "v1", None),
        (Exact, &["v1"], "v1", "v2", Some(as_made)),
        (Exact, &["v1", "v2"], "v1", "v2", Some(MatchKind::AsSent)),
        (Equivalent, &["v1"], "v1", "v1", Some(MatchKind::AsMade)),
        (Equivalent, &["v1"], "v2", "v2", Some(of_rule)),
        (Equivalent, &["v1"], "v2", "v1", Some(MatchKind::AsSent)),
        (Equivalent, &["v1"], "v1", "v2", Some(as_made)),
        (Equivalent, &["v1", "v2"], "v1", "v2", Some(MatchKind::AsSent)),
        (Equivalent, &["v1"], "v2", "v3", Some(of_rule)),
        (Equivalent, &["*"], "v2", "v3", Some(MatchKind::AsSent)),
    ] {
        assert_eq!(how(policy, versions, made, sent), expected, "{policy:?} {versions:?} {made} {sent}");
    }
}

/// Is a request made for this resource seen by a rule for these, and in which version would it be?
fn elsewhere(rule: (&str, &str, &str), made: (&str, &str, &str), served: Option<&Served>) -> Option<String> {
    let (group, version, resource) = rule;
    let rule = Rule {
        operations: vec![Operation::Create],
        api_groups: vec![group.into()],
        api_versions: vec![version.into()],
        resources: vec![resource.into()],
        scope: Scope::Any,
    };
    let (resource, sub) = made.2.split_once('/').unwrap_or((made.2, ""));
    let request = review(Operation::Create, made.0, made.1, resource, sub, "ns");
    let mut found = MatchSet::new();
    for policy in [MatchPolicy::Exact, MatchPolicy::Equivalent] {
        let hooks = [hook_of(vec![rule.clone()], policy, false)];
        Matcher::new(&hooks).matching(&hooks, &request, served, &mut found);
        match (policy, found.first().map(|matched| matched.how)) {
            (_, None) => {}
            (MatchPolicy::Equivalent, Some(MatchKind::OtherVersion(wanted))) => {
                return Some(wanted.resource(&*hooks[0], &request, served).to_string());
            }
            other => panic!("{rule:?} {made:?}: {other:?}"),
        }
    }
    None
}

/// Upstream converts what is served in a version that the rule names, by whatever words it does.
#[test]
fn a_rule_means_what_is_served_in_its_versions_too() {
    for (rule, made, wanted) in [
        (("autoscaling", "v1", "*"), ("autoscaling", "v2", "horizontalpodautoscalers"), Some("autoscaling/v1")),
        (("*", "v1", "*"), ("autoscaling", "v2", "horizontalpodautoscalers"), Some("autoscaling/v1")),
        (("*", "v1", "*/*"), ("autoscaling", "v2", "horizontalpodautoscalers/status"), Some("autoscaling/v1")),
        (("autoscaling", "v1", "*"), ("autoscaling", "v2", "horizontalpodautoscalers/status"), None),
        (("apps", "v1", "*/scale"), ("apps", "v1beta1", "deployments/scale"), Some("apps/v1")),
        (("*", "v1", "pods"), ("autoscaling", "v2", "horizontalpodautoscalers"), None),
        (("batch", "v1", "*"), ("autoscaling", "v2", "horizontalpodautoscalers"), None),
        // Kubernetes has these in v1 alone.
        (("*", "v2", "*"), ("", "v1", "pods"), None),
        (("apps", "v2", "*"), ("apps", "v1", "deployments"), None),
        // A hook that names it fails no call either: `check` reports that it never matches.
        (("apps", "v2", "deployments"), ("apps", "v1", "deployments"), None),
        (("", "v9", "pods"), ("", "v1", "pods"), None),
        (("", "v2", "pods/status"), ("", "v1", "pods/status"), None),
        (("apps", "v1beta9", "deployments"), ("apps", "v1", "deployments"), None),
        (("apps", "apps/v1", "deployments"), ("apps", "v1", "deployments"), None),
        (
            ("autoscaling", "v2beta3", "horizontalpodautoscalers"),
            ("autoscaling", "v1", "horizontalpodautoscalers"),
            None,
        ),
        // Stored as one, whichever group they are asked for in.
        (("", "v1", "events"), ("events.k8s.io", "v1", "events"), Some("/v1")),
        (("", "v1", "*"), ("events.k8s.io", "v1beta1", "events"), Some("/v1")),
        (("events.k8s.io", "v1", "events"), ("", "v1", "events"), Some("events.k8s.io/v1")),
        (("events.k8s.io", "*", "*/*"), ("", "v1", "events"), Some("events.k8s.io/v1")),
        (("extensions", "v1beta1", "ingresses"), ("networking.k8s.io", "v1", "ingresses"), Some("extensions/v1beta1")),
        (("apps", "v1", "deployments/scale"), ("extensions", "v1beta1", "deployments/scale"), Some("apps/v1")),
        (("events.k8s.io", "v7", "*"), ("", "v1", "events"), None),
        (("events.k8s.io", "v1", "*"), ("", "v1", "pods"), None),
    ] {
        let resource = made.2.split('/').next().unwrap_or_default();
        let wanted = wanted.map(|wanted| format!("{wanted}, Resource={resource}"));
        assert_eq!(elsewhere(rule, made, None), wanted, "{rule:?} {made:?}");
    }
}

/// An unknown resource may be served in the rule's version: then the rule is not passed over.
#[test]
fn a_rule_with_a_star_means_an_unknown_resource_in_any_version() {
    let made = ("example.com", "v2", "widgets");
    let seen = |group, resource| elsewhere((group, "v1", resource), made, None).is_some();
    for (group, resource) in
        [("example.com", "*"), ("*", "*"), ("*", "*/*"), ("*", "widgets"), ("example.com", "widgets")]
    {
        assert!(seen(group, resource), "{group} {resource}");
    }
    for (group, resource) in [("example.org", "*"), ("*", "gadgets"), ("example.com", "*/status")] {
        assert!(!seen(group, resource), "{group} {resource}");
    }
}

#[test]
fn what_an_apiserver_serves_decides_where_it_is_known() {
    let mut served = Served::default();
    for (group, version, resource) in [
        ("", "v1", "events"),
        ("example.com", "v1", "widgets"),
        ("example.com", "v2", "widgets"),
        ("example.com", "v2", "gadgets"),
        ("networking.k8s.io", "v1", "ingresses"),
        ("apps", "v1", "deployments"),
    ] {
        served.add(group, version, resource);
    }
    for (rule, made, means) in [
        (("example.com", "v1", "*"), ("example.com", "v2", "widgets"), true),
        (("example.com", "v1", "*"), ("example.com", "v2", "gadgets"), false),
        (("*", "v1", "*"), ("example.com", "v2", "gadgets"), false),
        (("example.com", "v1", "gadgets"), ("example.com", "v2", "gadgets"), false),
        (("apps", "v2", "deployments"), ("apps", "v1", "deployments"), false),
        // Newer than what is known.
        (("example.com", "v1", "*"), ("example.com", "v2", "sprockets"), true),
        (("new.example.com", "v1", "*"), ("new.example.com", "v2", "widgets"), true),
        // No longer served at all.
        (("extensions", "v1beta1", "ingresses"), ("networking.k8s.io", "v1", "ingresses"), false),
        (("apps", "v1beta1", "*"), ("apps", "v1", "deployments"), false),
        (("events.k8s.io", "v1", "events"), ("", "v1", "events"), false),
    ] {
        assert_eq!(elsewhere(rule, made, Some(&served)).is_some(), means, "{rule:?} {made:?}");
    }
}

#[test]
fn what_is_wanted_is_named_as_upstream_names_it() {
    let rule = |group: &str, version: &str| Rule {
        operations: vec![Operation::Create],
        api_groups: vec![group.into()],
        api_versions: vec![version.into()],
        resources: vec!["deployments".into()],
        scope: Scope::Any,
    };
    let hook = hook(vec![rule("apps", "v1"), rule("extensions", "v2")]);
    let mut review = review(Operation::Create, "extensions", "v1beta1", "deployments", "", "ns");
    review.request_resource =
        Some(Gvr { group: "apps".into(), version: "v1beta2".into(), resource: "deployments".into() });
    let named = |wanted: WantedVersion| wanted.resource(&*hook, &review, None).to_string();
    assert_eq!(named(WantedVersion::AsMade), "apps/v1beta2, Resource=deployments");
    assert_eq!(named(WantedVersion::OfRule(0)), "apps/v1, Resource=deployments");
    assert_eq!(named(WantedVersion::OfRule(1)), "extensions/v2, Resource=deployments");
}

#[test]
fn the_configuration_of_admission_is_seen_by_those_alone_who_may() {
    let everything = || Rule {
        operations: Operation::ALL.into(),
        api_groups: vec!["*".into()],
        api_versions: vec!["*".into()],
        resources: vec!["*/*".into()],
        scope: Scope::Any,
    };
    let hooks = [false, true].map(|sees| hook_of(vec![everything()], MatchPolicy::Exact, sees));
    let matcher = Matcher::new(&hooks);
    let seen = |group: &str, resource: &str, of_kind: &str| {
        let review = Review { kind: kind(group, of_kind), ..review(Operation::Update, group, "v1", resource, "", "") };
        let mut found = MatchSet::new();
        matcher.matching(&hooks, &review, None, &mut found);
        found.iter().map(|matched| matched.index).collect::<Vec<_>>()
    };
    let (registration, resource) = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    assert_eq!(seen(registration, resource, "ValidatingWebhookConfiguration"), [1]);
    assert_eq!(seen(registration, resource, "Pod"), [0, 1]);
    assert_eq!(seen(registration, "others", "ValidatingWebhookConfiguration"), [0, 1]);
    assert!(seen("authentication.k8s.io", "tokenreviews", "TokenReview").is_empty());
    assert!(seen("gatepost.dev", "breakglasses", "BreakGlass").is_empty());
    assert_eq!(seen("gatepost.dev", "widgets", "Widget"), [0, 1]);
}

#[test]
fn a_huge_rule_takes_bounded_room() {
    let many = |prefix: &str| (0..300).map(|n| format!("{prefix}{n}").into()).collect::<Vec<Box<str>>>();
    let rule = Rule {
        operations: Operation::ALL.into(),
        api_groups: many("g"),
        api_versions: many("v"),
        resources: many("r"),
        scope: Scope::Any,
    };
    assert!(index::keys(&rule, index::MAX_KEYS_PER_RULE).len() <= index::MAX_KEYS_PER_RULE);
    let hooks = [hook(vec![rule])];
    let matcher = Matcher::new(&hooks);
    let mut found = MatchSet::new();
    matcher.matching(&hooks, &review(Operation::Create, "g7", "v8", "r9", "", "ns"), None, &mut found);
    assert_eq!(found[..], [Match { index: 0, how: MatchKind::AsMade }]);
    matcher.matching(&hooks, &review(Operation::Create, "g7", "v8", "s9", "", "ns"), None, &mut found);
    assert!(found.is_empty());
}

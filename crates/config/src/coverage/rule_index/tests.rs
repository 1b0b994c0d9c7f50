use proptest::prelude::*;

use super::*;
use crate::{
    SourceFile,
    matcher::{
        Matcher,
        tests::{any_hooks, any_review},
    },
};
use gatepost_api::{Gvk, Gvr, Review, RuleTarget};

fn index_of(lists: &str) -> RuleIndex {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: default}}\n{lists}"
    );
    let file = SourceFile { name: "x.yaml".into(), bytes: text.into() };
    let snapshot = crate::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("a valid configuration");
    RuleIndex::new(&snapshot)
}

/// `OPERATION group/version resource[/sub] [namespace]`, for example `CREATE /v1 pods shop`.
fn review(text: &str) -> Review {
    let parts: Vec<_> = text.split(' ').collect();
    let operation = Operation::ALL.into_iter().find(|one| one.as_str() == parts[0]).expect("an operation");
    let (group, version) = parts[1].split_once('/').expect("a group and a version");
    let (resource, sub) = parts[2].split_once('/').unwrap_or((parts[2], ""));
    let resource = Gvr { group: group.into(), version: version.into(), resource: resource.into() };
    let namespace = parts.get(3).copied().unwrap_or_default().into();
    Review { sub_resource: sub.into(), namespace, ..Review::bare(operation, Gvk::default(), resource) }
}

fn holds(rules: &PhaseRules, review: &Review) -> bool {
    match rules {
        PhaseRules::All => true,
        PhaseRules::Rules(rules) => rules.iter().any(|rule| rule.matches(&RuleTarget::as_made(review))),
    }
}

fn assert_held(rules: &PhaseRules, held: &[&str], missed: &[&str]) {
    for (texts, expected) in [(held, true), (missed, false)] {
        for text in texts {
            assert_eq!(holds(rules, &review(text)), expected, "{text} in {rules:?}");
        }
    }
}

proptest! {
    #[test]
    fn index_holds_every_request_that_a_hook_matches(hooks in any_hooks(), review in any_review()) {
        // A plugin sends the object as its client wrote it.
        let review = Review { request_resource: None, request_sub_resource: "".into(), ..review };
        let mut matching = crate::MatchSet::new();
        Matcher::new(&hooks).matching(&hooks, &review, None, &mut matching);
        let mut phase = PhaseUnion::default();
        for hook in &hooks {
            let equivalent = hook.match_policy == MatchPolicy::Equivalent;
            hook.rules.iter().for_each(|rule| phase.add(rule, equivalent, &[], false));
        }
        prop_assert!(matching.is_empty() || holds(&phase.into_rules(), &review));
    }
}

#[test]
fn index_is_all_only_if_a_rule_matches_everything_or_rules_are_too_many() {
    let hook = |rules: &str| {
        let hook = "{name: a.example.com, clientConfig: {url: 'grpc://127.0.0.1:1'}, failurePolicy: Ignore, rules: [";
        index_of(&format!("externalAdmissionHooks:\n- {hook}{rules}]}}\n"))
    };
    let all = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
    assert_eq!(hook(all).validating, PhaseRules::All);
    assert_ne!(hook(all).mutating, PhaseRules::All, "the other phase has rules of its own");
    let creates = hook("{operations: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}");
    assert_held(&creates.validating, &["CREATE /v1 pods/status shop"], &["UPDATE /v1 pods shop"]);
    let many = |count: usize| {
        let groups: Vec<_> = (0..count).map(|n| format!("g{n}.example.com")).collect();
        let groups = groups.join(", ");
        hook(&format!("{{operations: [CREATE], apiGroups: [{groups}], apiVersions: [v1], resources: [things]}}"))
    };
    assert_ne!(many(1000).validating, PhaseRules::All);
    assert_eq!(many(MAX_INDEX_RESOURCES + 1).validating, PhaseRules::All);
}

#[test]
fn index_joins_rules_and_is_equal_for_equal_requests() {
    let hooks = |rules: &[&str]| {
        let hook = |(n, rule): (usize, &&str)| {
            format!(
                "- {{name: h{n}.example.com, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, failurePolicy: Ignore, \
                 rules: [{rule}]}}\n"
            )
        };
        let hooks: String = rules.iter().enumerate().map(hook).collect();
        index_of(&format!("externalAdmissionHooks:\n{hooks}"))
    };
    let one = hooks(&[
        "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}",
        "{operations: [UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, services]}",
        "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [services]}",
    ]);
    let other =
        hooks(&["{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [services, pods]}"]);
    assert_eq!(one, other);
    let PhaseRules::Rules(rules) = &one.validating else { panic!("{one:?}") };
    assert_eq!(rules.iter().filter(|rule| rule.groups == ["".into()]).count(), 1, "{rules:?}");
}

#[test]
fn index_holds_equivalent_resources_of_hooks_that_take_them() {
    let index = |policy: &str, group: &str, resources: &str| {
        let hook = "name: a.example.com, clientConfig: {url: 'grpc://127.0.0.1:1'}, failurePolicy: Ignore";
        let rule = format!("operations: [CREATE], apiGroups: [{group}], apiVersions: [v1], resources: {resources}");
        let index =
            index_of(&format!("externalAdmissionHooks:\n- {{{hook}, matchPolicy: {policy}, rules: [{{{rule}}}]}}\n"));
        index.validating
    };
    let [own, other, elsewhere] = [
        "CREATE apps/v1 deployments/scale shop",
        "CREATE apps/v1beta2 deployments/scale shop",
        "CREATE extensions/v1beta1 deployments/scale shop",
    ];
    assert_held(&index("Exact", "apps", "['deployments/*']"), &[own], &[other, elsewhere]);
    for resources in ["['deployments/*']", "['*/scale']"] {
        assert_held(&index("Equivalent", "apps", resources), &[own, other, elsewhere], &[]);
    }
    assert_held(&index("Equivalent", "apps", "['*']"), &["CREATE extensions/v1beta1 deployments shop"], &[elsewhere]);
    let events = index("Equivalent", "''", "[events]");
    assert_held(&events, &["CREATE events.k8s.io/v1 events shop"], &["CREATE events.k8s.io/v1 pods shop"]);
}

#[test]
fn index_holds_resources_with_initializers_whatever_acts_on_them() {
    let index = index_of(
        "resourceInitializers:\n\
         - {resource: pods, initializers: [{name: a.example.com}]}\n",
    );
    let missed = ["UPDATE /v1 pods shop", "CREATE /v1 pods/eviction shop", "CREATE /v1 services shop"];
    assert_held(&index.mutating, &["CREATE /v1 pods shop", "CREATE /v9 pods shop"], &missed);
    assert_held(&index.validating, &[], &["CREATE /v1 pods shop"]);
    let index = index_of(
        "resourceInitializers:\n\
         - {resource: pods, stored: Label, initializers: [{name: a.example.com, changes: Metadata}]}\n",
    );
    for rules in [&index.mutating, &index.validating] {
        let held = ["CREATE /v1 pods shop", "UPDATE /v1 pods shop", "UPDATE /v1 pods/status shop"];
        assert_held(rules, &held, &["DELETE /v1 pods shop", "UPDATE apps/v1 pods shop"]);
    }
}

#[test]
fn index_holds_requests_that_a_bypass_rule_annotates() {
    let index = index_of(
        "bypass:\n\
         - {name: system, reason: r, effect: Skip, namespaces: [kube-system]}\n\
         - {name: leases, reason: r, effect: Skip, resources: [{operations: ['*'], apiGroups: [coordination.k8s.io], \
         apiVersions: ['*'], resources: [leases]}], users: [x]}\n",
    );
    for rules in [&index.mutating, &index.validating] {
        let held = ["CREATE /v1 pods kube-system", "UPDATE coordination.k8s.io/v1 leases shop"];
        let missed = ["CREATE /v1 pods shop", "UPDATE /v1 nodes", "CREATE /v1 namespaces kube-system"];
        assert_held(rules, &held, &missed);
    }
    let everyone = index_of("bypass:\n- {name: admins, reason: r, effect: FailOpen, groups: [admins]}\n");
    for rules in [&everyone.mutating, &everyone.validating] {
        assert_held(
            rules,
            &["CREATE /v1 pods shop", "UPDATE /v1 nodes", "DELETE apps/v1 deployments/status shop"],
            &[],
        );
    }
}

#[test]
fn index_holds_gateposts_own_configuration() {
    let index = index_of("externalAdmissionHooks: []\n");
    for rules in [&index.mutating, &index.validating] {
        let held = ["UPDATE gatepost.dev/v1alpha1 breakglasses", "UPDATE gatepost.dev/v9 breakglasses/status"];
        assert_held(rules, &held, &["CREATE /v1 pods shop", "CREATE gatepost.dev/v1 widgets shop"]);
    }
}

#[test]
fn index_says_which_objects_may_be_in_protobuf() {
    let hook = |name: &str, resource: &str, more: &str| {
        format!(
            "- {{name: {name}.example.com, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, failurePolicy: Ignore, {more} \
             rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: ['{resource}']}}]}}\n"
        )
    };
    const TAKES: &str = "objectEncoding: Protobuf,";
    let condition = |text: &str| format!("{TAKES} matchConditions: [{{name: c, expression: \"{text}\"}}],");
    let lists = [
        "externalAdmissionHooks:\n",
        &hook("a", "pods", TAKES),
        &hook("b", "pods", ""),
        &hook("c", "pods", &format!("{TAKES} enforcement: Shadow,")),
        &hook("d", "secrets", TAKES),
        &hook("e", "services", &condition("object.a == 'b'")),
        &hook("f", "endpoints", &condition("request.name == 'a'")),
        "bypass:\n- {name: n, reason: r, effect: Skip, users: [ann]}\n",
        "resourceInitializers:\n- {resource: configmaps, stored: Label, initializers: [{name: i.example.com, changes: Metadata}]}\n",
    ];
    let index = index_of(&lists.concat());
    let PhaseRules::Rules(rules) = &index.validating else { panic!("{index:?}") };
    let said = |resource: &str| -> BTreeSet<bool> {
        let rules = rules.iter().filter(|rule| rule.resources.contains(&resource.into()));
        rules.map(|rule| rule.protobuf_objects).collect()
    };
    assert_eq!(said("pods"), BTreeSet::from([false, true]), "both, as a plugin takes the rules together");
    assert_eq!(said("secrets"), BTreeSet::from([true]));
    assert_eq!(said("services"), BTreeSet::from([false]));
    assert_eq!(said("endpoints"), BTreeSet::from([true]));
    assert_eq!(said("configmaps"), BTreeSet::from([false]));
    assert_eq!(said("*/*"), BTreeSet::from([true]), "a bypass reads no object");
}

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::model::{
    Encoding, Endpoint, FailurePolicy, Gvk, Gvr, HookType, MatchPolicy, Protocol, Rope, Selector, SideEffects,
    Transport, hook::Address,
};

fn hook(rules: Vec<Rule>) -> Arc<Hook> {
    Arc::new(Hook {
        name: "hook".into(),
        hook_type: HookType::Validating,
        id: "c/hook/0".into(),
        rules,
        match_policy: MatchPolicy::Exact,
        sees_admission_config: false,
        endpoint: Endpoint { address: Address::Unix("/x".into()), tls: None, transport: Transport::Grpc },
        protocol: Protocol::Grpc,
        failure_policy: FailurePolicy::Fail,
        timeout: std::time::Duration::from_secs(1),
        side_effects: SideEffects::None,
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
    })
}

fn review(operation: Operation, group: &str, version: &str, resource: &str, sub: &str, namespace: &str) -> Review {
    Review {
        uid: "".into(),
        kind: Gvk::default(),
        resource: Gvr { group: group.into(), version: version.into(), resource: resource.into() },
        sub_resource: sub.into(),
        request_kind: None,
        request_resource: None,
        request_sub_resource: "".into(),
        name: "".into(),
        namespace: namespace.into(),
        operation,
        username: "".into(),
        dry_run: false,
        user: None,
        object: None,
        old_object: None,
        options: None,
        encoding: Encoding::Grpc,
        message: 0..0,
        bytes: Rope::new(Vec::new()),
    }
}

fn words(from: &'static [&'static str]) -> impl Strategy<Value = Vec<Box<str>>> {
    vec(select(from).prop_map(Box::from), 0..4)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (
        vec(select(&Operation::ALL[..]), 0..4),
        words(&["", "apps", "*"]),
        words(&["v1", "v2", "*"]),
        words(&["*", "pods", "namespaces", "pods/status", "pods/*", "*/status", "*/*", "namespaces/status", "pods/"]),
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

fn any_review() -> impl Strategy<Value = Review> {
    (
        select(&Operation::ALL[..]),
        select(&["", "apps", "other", "*"][..]),
        select(&["v1", "v2", "v3"][..]),
        select(&["pods", "namespaces", "nodes"][..]),
        select(&["", "status", "scale"][..]),
        select(&["", "ns"][..]),
    )
        .prop_map(|(operation, group, version, resource, sub, namespace)| {
            review(operation, group, version, resource, sub, namespace)
        })
}

/// What the index must agree with: every rule of every hook, one after the other.
fn one_after_the_other(hooks: &[Arc<Hook>], review: &Review) -> Vec<u32> {
    (0..)
        .zip(hooks)
        .filter(|(_, hook)| hook.rules.iter().any(|rule| rule.matches(review)))
        .map(|(index, _)| index)
        .collect()
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_finds(
        rules in vec(vec(any_rule(), 0..4), 0..12),
        reviews in vec(any_review(), 1..12),
    ) {
        let hooks: Vec<_> = rules.into_iter().map(hook).collect();
        let matcher = Matcher::new(&hooks);
        let mut found = HookSet::new();
        for review in reviews {
            matcher.matching(&hooks, &review, &mut found);
            prop_assert_eq!(&found[..], &one_after_the_other(&hooks, &review)[..]);
        }
    }

    #[test]
    fn a_rule_filed_coarsely_is_still_found(rule in any_rule(), reviews in vec(any_review(), 1..12), limit in 1usize..4) {
        for parts in keys(&rule, limit) {
            prop_assert!(keys(&rule, limit).len() <= limit, "{parts:?}");
        }
        let hooks = [hook(vec![rule; 1])];
        let mut patterns = 0;
        let filed: Vec<_> = keys(&hooks[0].rules[0], limit)
            .iter()
            .map(|parts| {
                patterns |= 1 << pattern_of(parts);
                (key_of(parts), 0, 0)
            })
            .collect();
        let matcher = Matcher { tables: std::array::from_fn(|_| Table::new(filed.clone(), patterns)) };
        let mut found = HookSet::new();
        for review in reviews {
            matcher.matching(&hooks, &review, &mut found);
            prop_assert_eq!(&found[..], &one_after_the_other(&hooks, &review)[..]);
        }
    }
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
    assert!(keys(&rule, MOST_KEYS).len() <= MOST_KEYS);
    let hooks = [hook(vec![rule])];
    let matcher = Matcher::new(&hooks);
    let mut found = HookSet::new();
    matcher.matching(&hooks, &review(Operation::Create, "g7", "v8", "r9", "", "ns"), &mut found);
    assert_eq!(found[..], [0]);
    matcher.matching(&hooks, &review(Operation::Create, "g7", "v8", "s9", "", "ns"), &mut found);
    assert!(found.is_empty());
}

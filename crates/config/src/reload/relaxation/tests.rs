use super::*;
use crate::{SourceFile, load};

fn snapshot(text: &str) -> Snapshot {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: c}}\n{text}"
    );
    let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
    load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// One hook with these further keys.
fn hook(more: &str) -> Snapshot {
    snapshot(&format!(
        "externalAdmissionHooks:\n- {{name: h.x, clientConfig: {{url: 'http://127.0.0.1:1/a'}}, rules: [], {more}}}\n"
    ))
}

fn ruled(rules: &str) -> Snapshot {
    snapshot(&format!(
        "externalAdmissionHooks:\n- {{name: h.x, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: [{rules}]}}\n"
    ))
}

fn bypass(more: &str) -> Snapshot {
    snapshot(&format!("bypass:\n- {{name: b, reason: r, {more}}}\n"))
}

/// Each of these is enforced less by the second than by the first, and not the other way round.
#[track_caller]
fn narrows(wide: &Snapshot, narrow: &Snapshot) {
    assert_eq!(narrow.relaxes(wide).len(), 1);
    assert_eq!(wide.relaxes(narrow), []);
    assert_eq!(wide.relaxes(wide), []);
}

#[test]
fn a_condition_that_was_not_there_is_a_relaxation() {
    let one = hook("matchConditions: [{name: a, expression: 'true'}]");
    let two = hook("matchConditions: [{name: a, expression: 'true'}, {name: b, expression: 'request.dryRun'}]");
    narrows(&hook(""), &one);
    narrows(&one, &two);
    assert_eq!(hook("matchConditions: [{name: renamed, expression: 'true'}]").relaxes(&one), []);
    assert_eq!(hook("matchConditions: [{name: a, expression: '!false'}]").relaxes(&one).len(), 1);
}

#[test]
fn a_hook_that_goes_or_is_heeded_less_is_a_relaxation() {
    let one = hook("");
    let none = snapshot("externalAdmissionHooks: []\n");
    assert_eq!(none.relaxes(&one), [Relaxation::Gone("h.x".into())]);
    assert_eq!(one.relaxes(&none), []);
    narrows(&one, &hook("failurePolicy: Ignore"));
    narrows(&one, &hook("rollout: {createAs: Ignore}"));
    narrows(&one, &hook("matchPolicy: Exact"));
    for [strict, lax] in [["Deny", "Warn"], ["Warn", "Audit"], ["Audit", "Shadow"], ["Deny", "Shadow"]] {
        narrows(&hook(&format!("enforcement: {strict}")), &hook(&format!("enforcement: {lax}")));
    }
    assert_eq!(hook("enforcement: Deny").relaxes(&one), [], "the default");
    narrows(&hook("rollout: {onProbeFailure: Enforce}"), &one);
    narrows(&hook("rollout: {onProbeFailure: Enforce, probeWithin: 1m}"), &hook("rollout: {onProbeFailure: Enforce}"));
    narrows(&hook("failurePolicy: Ignore, timeout: 2s"), &hook("failurePolicy: Ignore, timeout: 1s"));
    for same in ["timeout: 1s", "sideEffects: None", "protocol: legacy", "sideEffects: None, failurePolicy: Retry"] {
        assert_eq!((hook(same).relaxes(&one), one.relaxes(&hook(same))), (vec![], vec![]), "{same}");
    }
}

#[test]
fn a_path_that_is_cut_short_is_a_relaxation() {
    let at = |path: &str| {
        snapshot(&format!(
            "externalAdmissionHooks:\n- {{name: h.x, clientConfig: {{url: 'http://127.0.0.1:1{path}'}}, rules: []}}\n"
        ))
    };
    for cut in ["/a/stri", "/a/", "/a", "/"] {
        narrows(&at("/a/strict"), &at(cut));
    }
    assert_eq!(at("/b").relaxes(&at("/a/strict")), [], "another path is meant");
}

#[test]
fn a_rule_that_is_cut_short_is_a_relaxation() {
    const PODS: &str =
        "{operations: [CREATE, UPDATE], apiGroups: ['', apps], apiVersions: [v1], resources: [pods, pods/log]}";
    let pods = ruled(PODS);
    narrows(&ruled(&format!("{PODS}, {{apiGroups: [x], apiVersions: [v1], resources: [y]}}")), &pods);
    for cut in [
        ("CREATE, UPDATE", "CREATE"),
        ("'', apps", "''"),
        ("pods, pods/log", "pods"),
        ("pods/log]", "pods/log], scope: Namespaced"),
    ] {
        narrows(&pods, &ruled(&PODS.replace(cut.0, cut.1)));
    }
    for wider in [("'', apps", "'*'"), ("v1", "'*'"), ("pods, pods/log", "'*/*'"), ("CREATE, UPDATE", "'*'")] {
        narrows(&ruled(&PODS.replace(wider.0, wider.1)), &pods);
    }
    let other = "{apiGroups: [x], apiVersions: [v1], resources: [y]}";
    let (one, turned) = (ruled(&format!("{PODS}, {other}")), ruled(&format!("{other}, {PODS}")));
    assert_eq!(turned.relaxes(&one), [], "their order says nothing");
}

#[test]
fn a_selector_that_asks_for_more_is_a_relaxation() {
    let selected = |selector: &str| hook(&format!("objectSelector: {selector}"));
    let two = selected("{matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d, e]}]}");
    narrows(&hook(""), &two);
    narrows(&selected("{matchLabels: {a: b}}"), &two);
    let cut = selected("{matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}");
    assert_eq!(cut.relaxes(&two).len(), 1);
}

#[test]
fn a_bypass_that_is_new_or_lets_past_more_is_a_relaxation() {
    const ALL: &str = "effect: FailOpen, hooks: [h.x], namespaces: [n, m], users: [u, v], \
                       resources: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]";
    let all = bypass(ALL);
    narrows(&snapshot("externalAdmissionHooks: []\n"), &all);
    for (key, wider) in [
        ("effect: FailOpen, ", ""),
        ("hooks: [h.x], ", ""),
        ("[h.x]", "[h.x, i.x]"),
        ("namespaces: [n, m], ", ""),
        ("[n, m]", "[n, m, o]"),
        ("users: [u, v], ", ""),
        ("users: [u, v], ", "users: [u, v], groups: [g], "),
        (", resources: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]", ""),
        ("resources: [pods]", "resources: [pods, secrets]"),
    ] {
        assert!(ALL.contains(key), "{key}");
        narrows(&all, &bypass(&ALL.replace(key, wider)));
    }
}

#[test]
fn an_initializer_that_goes_or_acts_on_less_is_a_relaxation() {
    let of = |resource: &str, entries: &str| {
        snapshot(&format!("resourceInitializers:\n- {{resource: {resource}, initializers: [{entries}]}}\n"))
    };
    let wide = of("pods", "{name: a.x, failurePolicy: Fail, builtIn: {labels: {a: b}}}, {name: b.x}");
    for narrow in [
        of("pods", "{name: b.x}"),
        of("configmaps", "{name: a.x, failurePolicy: Fail, builtIn: {labels: {a: b}}}, {name: b.x}"),
        of("pods", "{name: a.x, builtIn: {labels: {a: b}}}, {name: b.x}"),
        of("pods", "{name: a.x, failurePolicy: Fail}, {name: b.x}"),
        of(
            "pods",
            "{name: a.x, failurePolicy: Fail, builtIn: {labels: {a: b}}, objectSelector: {matchLabels: {a: b}}}, \
             {name: b.x}",
        ),
    ] {
        assert!(matches!(&*narrow.relaxes(&wide), [Relaxation::Initializer(name), ..] if &**name == "a.x"));
    }
    let more = of("pods", "{name: new.x}, {name: b.x}, {name: a.x, failurePolicy: Fail, builtIn: {labels: {b: c}}}");
    assert_eq!(more.relaxes(&wide), []);
}

#[test]
fn other_labels_of_a_namespace_are_a_relaxation_where_a_selector_looks_at_them() {
    let with = |selector: &str, labels: &str| {
        snapshot(&format!(
            "externalAdmissionHooks:\n- {{name: h.x, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: [], \
             namespaceSelector: {selector}}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: n, labels: {labels}}}\n"
        ))
    };
    let (selecting, all) = ("{matchLabels: {a: b}}", "{}");
    let cut = with(selecting, "{}").relaxes(&with(selecting, "{a: b}"));
    assert_eq!(cut, [Relaxation::Namespace("n".into())]);
    assert_eq!(with(all, "{}").relaxes(&with(all, "{a: b}")), []);
}

#[test]
fn long_lists_are_compared_without_all_pairs() {
    let names = |count: u32| (0..count).map(|n| format!("r{n}").into()).collect::<Vec<Box<str>>>();
    let rule = |n: u32| Rule {
        operations: Vec::new(),
        api_groups: vec![format!("g{n}").into()],
        api_versions: vec!["v1".into()],
        resources: vec!["pods".into()],
        scope: Scope::Any,
    };
    assert!(subset(&names(100_000), &names(99_999)) && !subset(&names(99_999), &names(100_000)));
    let rules: Vec<_> = (0..100_000).map(rule).collect();
    assert!(covered(&rules[..99_999], &rules) && !covered(&rules, &rules[..99_999]));
}

/// Policies of this name with this annotation, bound twice: `a` without an annotation, `b` with this one.
fn policy(of_policy: &str, of_b: &str) -> Snapshot {
    let annotated = |word: &str| match word {
        "" => String::new(),
        word => format!(", annotations: {{gatepost.dev/enforcement: {word}}}"),
    };
    let api = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy";
    let binding = |name: &str, more: &str| {
        format!("{api}Binding\nmetadata: {{name: {name}{more}}}\nspec: {{policyName: p, validationActions: [Deny]}}\n")
    };
    let text = format!(
        "{api}\nmetadata: {{name: p{}}}\nspec:\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], \
         operations: ['*'], resources: [pods]}}]}}\n  validations: [{{expression: 'true'}}]\n{}{}",
        annotated(of_policy),
        binding("a", ""),
        binding("b", &annotated(of_b)),
    );
    let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
    load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn a_policy_is_one_for_each_enforcement_of_its_bindings_and_each_lax_one_is_noted() {
    for (of_policy, of_b, wanted) in [
        ("", "", &["Deny a b"][..]),
        ("Warn", "", &["Warn a b"]),
        ("", "Shadow", &["Deny a", "Shadow b"]),
        ("Shadow", "Deny", &["Deny b", "Shadow a"]),
        ("Warn", "Audit", &["Warn a", "Audit b"]),
    ] {
        let snapshot = policy(of_policy, of_b);
        let name = |policy: &Arc<Policy>| {
            let bindings = policy.bindings.iter().map(|binding| format!(" {}", binding.name));
            policy.enforcement.as_str().to_owned() + &bindings.collect::<String>()
        };
        assert_eq!(snapshot.policies().iter().map(name).collect::<Vec<_>>(), wanted);
        let lax = wanted.iter().filter(|one| !one.starts_with("Deny"));
        let wanted: Vec<_> = lax.map(|one| one.split(' ').next().unwrap_or_default()).collect();
        let noted =
            snapshot.notes().iter().filter_map(|note| note.what.strip_prefix("policy \"p\" has the enforcement "));
        assert_eq!(noted.collect::<Vec<_>>(), wanted);
        assert_eq!(snapshot.has_shadows(), wanted.contains(&"Shadow"));
        let described = snapshot.describe();
        assert_eq!(described["policies"].as_array().unwrap().len(), snapshot.policies().len());
    }
    assert_eq!(policy("", "Warn").relaxes(&policy("", "")).len(), 1);
    assert_eq!(policy("Shadow", "").relaxes(&policy("", "")).len(), 1);
}

#[test]
fn a_canary_beside_what_was_in_force_is_a_relaxation() {
    let hooks = |entries: &[(&str, &str)]| {
        let entry = |(name, more): &(&str, &str)| {
            format!("- {{name: {name}, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: [], {more}}}\n")
        };
        snapshot(&format!("externalAdmissionHooks:\n{}", entries.iter().map(entry).collect::<String>()))
    };
    let (old, new) = (("old", ""), ("new", "canary: 5% of old"));
    let pair = hooks(&[old, new]);
    let narrowed = [Relaxation::Narrowed("old".into())];
    assert_eq!(pair.relaxes(&hooks(&[old])), narrowed);
    assert_eq!(pair.relaxes(&hooks(&[new])), narrowed, "it decided every request");
    assert_eq!(pair.relaxes(&hooks(&[old, ("new", "")])), narrowed);
    assert_eq!(hooks(&[old, ("new", "canary: 6% of old")]).relaxes(&pair), narrowed);
    assert_eq!(pair.relaxes(&pair), []);
    assert_eq!(pair.relaxes(&snapshot("externalAdmissionHooks: []\n")), []);
    assert_eq!(hooks(&[old, ("new", "")]).relaxes(&pair), [], "both decide every request");
    assert_eq!(hooks(&[old]).relaxes(&pair), [Relaxation::Gone("new".into())]);
}

use proptest::prelude::*;

use super::*;
use gatepost_api::{
    FailurePolicy, Gvr, Labels, MatchPolicy, Operation, Rule, RuleTarget, Scope, builtin, selector::Requirement,
};
use gatepost_config::{
    NAME_LABEL, SourceFile,
    coverage::rule_index::{PhaseRules, RuleIndex},
};

/// Hooks a, b, c …: `policy | operations | groups | versions | resources | selector`.
fn hooks(lines: &[&str]) -> Vec<Wanted> {
    let mut text = String::from(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: default}\nexternalAdmissionHooks:\n",
    );
    for (line, name) in lines.iter().zip('a'..) {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let [policy, operations, groups, versions, resources, ref selector @ ..] = parts[..] else { panic!("{line}") };
        text += &format!(
            "- name: {name}.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  failurePolicy: {policy}\n  rules: \
             [{{operations: [{operations}], apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}]}}]\n"
        );
        if let Some(selector) = selector.first() {
            text += &format!("  namespaceSelector: {{matchExpressions: [{{key: {NAME_LABEL}, {selector}}}]}}\n");
        }
    }
    let file = SourceFile { name: "x.yaml".into(), bytes: text.into() };
    let snapshot = gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    snapshot.hooks.iter().map(|hook| Wanted { hook: hook.clone(), closed: closed(hook) }).collect()
}

fn closed(hook: &Hook) -> bool {
    hook.failure_policy != FailurePolicy::Ignore
}

#[test]
fn registration_of_hooks_that_fail_open_fails_open() {
    let plan = plan(&hooks(&["Ignore | '*' | '*' | '*' | '*/*'"]), &[]);
    assert_eq!(plan.entries.iter().map(|entry| entry.closed).collect::<Vec<_>>(), [false]);
}

#[test]
fn registration_calls_a_hook_for_everything_once() {
    let plan = plan(&hooks(&["Ignore | '*' | '*' | '*' | '*/*'", "Fail | CREATE | '' | v1 | pods"]), &[]);
    assert_eq!(plan.entries.iter().map(|entry| entry.closed).collect::<Vec<_>>(), [true, false]);
    let left: Vec<_> = plan.entries[1].left.iter().map(SentAlready::expression).collect();
    assert_eq!(
        left,
        ["request.requestResource.group == '' && request.requestResource.resource == 'pods' && \
          (!has(request.subResource) || request.subResource == '') && request.operation == 'CREATE'"]
    );
    assert!(plan.twice.is_empty() && !plan.one_version, "{plan:?}");
}

#[test]
fn registration_omits_redundant_entries() {
    let plan = plan(&hooks(&["Ignore | CREATE | '' | v1 | pods", "Fail | '*' | '*' | '*' | '*/*'"]), &[]);
    assert_eq!(plan.entries.len(), 1, "{plan:?}");
}

/// As was found in a trial: `*/*`, a resource in a fixed version, and core events.
#[test]
fn registration_converts_events_for_any_failure_policy() {
    for everything in ["Fail", "Ignore"] {
        for events in ["Fail", "Ignore"] {
            let all = format!("{everything} | '*' | '*' | '*' | '*/*'");
            let own = format!("{events} | CREATE | '' | v1 | events");
            let plan = plan(&hooks(&[&all, "Fail | CREATE | x.io | v1 | things", &own]), &[]);
            let converts = |atom: &Atom| atom.group.is_empty() && &*atom.resource == "events";
            assert!(plan.entries.iter().any(|entry| entry.atoms.iter().any(converts)), "{plan:#?}");
            assert!(plan.one_version, "each entry asks only hooks that take what it sends: {plan:#?}");
        }
    }
}

#[test]
fn registration_entries_exclude_the_namespaces_of_their_hooks() {
    let lines = [
        "Fail | CREATE | '' | v1 | pods | 'operator': NotIn, values: [kube-system, a]",
        "Fail | CREATE | apps | v1 | deployments | 'operator': NotIn, values: [kube-system, b]",
    ];
    let plan = plan(&hooks(&lines), &["extra".to_owned()]);
    let left_out: Vec<_> = plan.entries.iter().map(|entry| entry.namespaces.to_string()).collect();
    assert_eq!(
        left_out,
        [
            "kubernetes.io/metadata.name notin (a,extra,kube-system)",
            "kubernetes.io/metadata.name notin (b,extra,kube-system)"
        ]
    );
    assert!(plan.entries.iter().all(|entry| entry.left.is_empty()) && plan.twice.is_empty());
}

#[test]
fn registration_merges_entries_with_many_selectors() {
    let lines: Vec<String> = (0..20)
        .map(|n| format!("Fail | CREATE | '' | v1 | pods | 'operator': NotIn, values: [kube-system, n{n}]"))
        .collect();
    let plan = plan(&hooks(&lines.iter().map(String::as_str).collect::<Vec<_>>()), &[]);
    assert_eq!(plan.entries.len(), 1);
    assert_eq!(plan.entries[0].namespaces.to_string(), "kubernetes.io/metadata.name notin (kube-system)");
}

/// A deadlock or danger that `check` finds in the registration, it finds in the hooks as well.
#[test]
fn registration_adds_no_hazard_to_those_of_its_hooks() {
    let ks = "'operator': NotIn, values: [kube-system]";
    let lines = [
        "Ignore | '*' | '*' | '*' | '*/*'".to_owned(),
        format!("Fail | CREATE, UPDATE | '' | v1 | pods, pods/ephemeralcontainers | {ks}"),
        "Fail | CREATE | apps | v1 | deployments | 'operator': In, values: [shop]".to_owned(),
    ];
    let wanted = hooks(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let plan = plan(&wanted, &[]);
    let webhook = |(entry, number): (&WebhookEntry, usize)| {
        json!({"name": format!("g{number}.entries.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9440/validate"}, "failurePolicy": if entry.closed { "Fail" } else { "Ignore" },
            "rules": rules(&entry.atoms),
            "namespaceSelector": gatepost_config::hazards::written_selector(&entry.namespaces.0)})
    };
    let webhooks: Vec<_> = plan.entries.iter().zip(1..).map(webhook).collect();
    let text = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "g"}, "webhooks": webhooks})
    .to_string();
    let file = SourceFile { name: "g.json".into(), bytes: text.into() };
    let registration = gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let bad: Vec<_> = registration
        .hazards()
        .into_iter()
        .filter(|finding| finding.severity < gatepost_config::hazards::Severity::Gap)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(plan.entries.iter().filter(|entry| entry.closed).count(), 2);
}

/// Versions that this apiserver serves, in the order in which it looks for equivalent ones.
const SERVED: [(&str, &str, &[&str]); 3] =
    [("", "pods", &["v1"]), ("x.io", "things", &["v1", "v2", "v3"]), ("x.io", "others", &["v2", "v1"])];
/// Namespaces and a label of theirs; "" is none.
const NAMESPACES: [(&str, &str); 4] = [("", ""), ("kube-system", ""), ("shop", "1"), ("play", "2")];

fn labels(namespace: (&'static str, &'static str)) -> Labels {
    [(NAME_LABEL, namespace.0), ("t", namespace.1)].into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The version in which an apiserver sends a request by these rules, where it does.
fn sent(rules: &[Rule], made: &RuleTarget<'_>, served: &[&str], equivalent: bool) -> Option<String> {
    if rules.iter().any(|rule| rule.matches(made)) {
        return Some(made.resource.version.to_string());
    }
    let others = || served.iter().filter(|version| made.resource.version != **version);
    rules.iter().filter(|_| equivalent).find_map(|rule| {
        others().find_map(|version| {
            let resource = Gvr { version: (*version).into(), ..made.resource.clone() };
            rule.matches(&RuleTarget { resource: &resource, ..*made }).then(|| (*version).to_owned())
        })
    })
}

/// The rules of an entry, as they are printed and read again.
fn printed(entry: &WebhookEntry) -> Vec<Rule> {
    let words = |value: &Value| -> Vec<Box<str>> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().into()).collect()
    };
    let rule = |rule: &Value| Rule {
        operations: Operation::ALL
            .into_iter()
            .filter(|o| words(&rule["operations"]).contains(&o.as_str().into()))
            .collect(),
        api_groups: words(&rule["apiGroups"]),
        api_versions: words(&rule["apiVersions"]),
        resources: words(&rule["resources"]),
        scope: [Scope::Any, Scope::Namespaced, Scope::Cluster]
            .into_iter()
            .find(|s| s.as_str() == rule["scope"])
            .unwrap(),
    };
    rules(&entry.atoms).iter().map(rule).collect()
}

/// Number of times that Gatepost asks a hook about a review that was made and sent so, and that it matches or not;
/// `None` where its call fails.
fn asks(hook: &Hook, made: &RuleTarget<'_>, sent: &str, one_version: bool, means: bool) -> Option<usize> {
    let resource = Gvr { version: sent.into(), ..made.resource.clone() };
    let matches = |target: &RuleTarget<'_>| hook.rules.iter().any(|rule| rule.matches(target));
    let (takes_made, takes_sent) = (matches(made), matches(&RuleTarget { resource: &resource, ..*made }));
    match (takes_made, takes_sent, *made.resource.version == *sent) {
        (true, _, true) => Some(1),
        (true, true, false) if one_version => Some(0),
        (_, true, _) => Some(1),
        _ if one_version || !means => Some(0),
        _ => None,
    }
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    let words = |all: &'static [&'static str]| prop::sample::subsequence(all, 1..=all.len());
    let one = |all: &'static [&'static str]| prop::sample::select(all).prop_map(|word| vec![word]);
    let groups = prop_oneof![words(&["", "x.io"]), one(&["*"])];
    let versions = prop_oneof![words(&["v1", "v2"]), one(&["*", "v1", "v2"])];
    let resources = prop_oneof![words(&["pods", "things", "others"]), one(&["*", "*/*", "things/*"])];
    let operations = words(&["CREATE", "UPDATE"]);
    let selector = prop::sample::select(vec!["", "ks", "ks+play", "t", "t=1"]);
    (any::<bool>(), groups, versions, resources, operations, selector).prop_map(
        |(closed, groups, versions, resources, operations, selector)| {
            let boxed = |words: Vec<&str>| words.into_iter().map(Box::from).collect::<Vec<Box<str>>>();
            let mut hook = (*hooks(&["Fail | CREATE | '' | v1 | pods"])[0].hook).clone();
            hook.rules = vec![Rule {
                operations: Operation::ALL.into_iter().filter(|o| operations.contains(&o.as_str())).collect(),
                api_groups: boxed(groups),
                api_versions: boxed(versions),
                resources: boxed(resources),
                scope: Scope::Any,
            }];
            let not = |names: &[&str]| Requirement::NotIn(NAME_LABEL.into(), boxed(names.to_vec()));
            hook.namespace_selector = Selector(match selector {
                "ks" => vec![not(&["kube-system"])],
                "ks+play" => vec![not(&["kube-system", "play"])],
                "t" => vec![Requirement::Exists("t".into())],
                "t=1" => vec![Requirement::Is("t".into(), "1".into())],
                _ => vec![],
            });
            Wanted { hook: Arc::new(hook), closed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Against an apiserver in miniature: each hook is asked about what it would be asked about directly, and once.
    #[test]
    fn registration_sends_each_hook_its_requests_once(wanted in prop::collection::vec(any_wanted(), 1..5)) {
        let wanted: Vec<Wanted> = wanted.into_iter().zip('a'..).map(|(it, name)| {
            let hook = Hook { name: format!("{name}.example.com").into(), ..(*it.hook).clone() };
            Wanted { hook: Arc::new(hook), ..it }
        }).collect();
        let plan = plan(&wanted, &[]);
        for (group, resource, versions) in SERVED {
            for (version, namespace) in versions.iter().flat_map(|version| NAMESPACES.map(move |it| (version, it))) {
                for (operation, sub) in [(Operation::Create, ""), (Operation::Update, ""), (Operation::Update, "status")] {
                    let gvr = Gvr { group: group.into(), version: (*version).into(), resource: resource.into() };
                    let made = RuleTarget { operation, resource: &gvr, sub_resource: sub, namespace: namespace.0 };
                    let selects = |selector: &Selector| namespace.0.is_empty() || selector.matches(&labels(namespace));
                    let reviews: Vec<String> = plan.entries.iter().filter(|entry| {
                        selects(&entry.namespaces) && !entry.left.iter().any(|left| left.holds(&made))
                    }).filter_map(|entry| sent(&printed(entry), &made, versions, true)).collect();
                    for Wanted { hook, .. } in &wanted {
                        let equivalent = hook.match_policy == MatchPolicy::Equivalent;
                        let direct = selects(&hook.namespace_selector) && sent(&hook.rules, &made, versions, equivalent).is_some();
                        let asked = reviews.iter().map(|sent| asks(hook, &made, sent, plan.one_version, direct));
                        let asked = if selects(&hook.namespace_selector) { asked.sum::<Option<usize>>() } else { Some(0) };
                        let may_be_twice = plan.twice.contains(&hook.name);
                        let message = || format!("{} {made:?} sent {reviews:?} by {plan:#?}", hook.name);
                        match (direct, asked) {
                            (_, None) => prop_assert!(false, "its call fails: {}", message()),
                            (true, Some(times)) => prop_assert!(times == 1 || may_be_twice && times > 1, "{times} {}", message()),
                            (false, Some(times)) => prop_assert_eq!(times, 0, "{}", message()),
                        }
                    }
                }
            }
        }
    }
}

impl SentAlready {
    /// As an apiserver evaluates the expression.
    fn holds(&self, made: &RuleTarget<'_>) -> bool {
        let is = |word: &str, value: &str| word == "*" || word == value;
        let about_namespaces = made.resource.resource == "namespaces";
        let scope = match self.scope {
            "Namespaced" => !made.namespace.is_empty() && !about_namespaces,
            "Cluster" => made.namespace.is_empty(),
            _ => true,
        };
        is(&self.group, &made.resource.group)
            && is(&self.resource, &made.resource.resource)
            && is(&self.sub_resource, made.sub_resource)
            && self.versions.as_ref().is_none_or(|all| all.iter().any(|version| **version == *made.resource.version))
            && self.operations.contains(made.operation.as_str())
            && scope
            && (self.left_out.is_empty()
                || !about_namespaces && !self.left_out.iter().any(|name| **name == *made.namespace))
    }
}

/// Hooks a, b, c … with these rules each: `operations | groups | versions | resources`.
fn hooks_of(rules: &[&[&str]]) -> Vec<Arc<Hook>> {
    let mut text = String::from(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: default}\nexternalAdmissionHooks:\n",
    );
    for (rules, name) in rules.iter().zip('a'..) {
        text += &format!("- name: {name}.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  rules:\n");
        for rule in *rules {
            let parts: Vec<_> = rule.split('|').map(str::trim).collect();
            let [operations, groups, versions, resources] = parts[..] else { panic!("{rule}") };
            text += &format!(
                "  - {{operations: [{operations}], apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}]}}\n"
            );
        }
    }
    let file = SourceFile { name: "x.yaml".into(), bytes: text.into() };
    gatepost_config::load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap().hooks
}

/// The entries, each rule in the form above.
fn union_of(hooks: &[&[&str]]) -> (Vec<Vec<String>>, Vec<String>) {
    let union = union(&hooks_of(hooks));
    let words = |value: &Value| -> String {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(",")
    };
    let rule =
        |rule: &Value| ["operations", "apiGroups", "apiVersions", "resources"].map(|key| words(&rule[key])).join("|");
    let entries = union.entries.iter().map(|entry| rules(entry).iter().map(rule).collect()).collect();
    (entries, union.twice.iter().map(|name| name.to_string()).collect())
}

fn one_entry(rules: &[&[&str]], wanted: &[&str]) {
    let (entries, twice) = union_of(rules);
    assert_eq!((entries, twice), (vec![wanted.iter().map(|&rule| rule.to_owned()).collect()], vec![]), "{rules:?}");
}

#[test]
fn registration_merges_equal_rules() {
    one_entry(
        &[&["CREATE, UPDATE | '' | v1 | pods"], &["CREATE, UPDATE | '' | v1 | pods"]],
        &["CREATE,UPDATE||v1|pods"],
    );
}

#[test]
fn registration_merges_resources_and_groups() {
    one_entry(
        &[&["CREATE | '' | v1 | pods"], &["CREATE | '' | v1 | services, pods/exec"]],
        &["CREATE||v1|pods,pods/exec,services"],
    );
    one_entry(&[&["CREATE | a.b | v1 | xs"], &["CREATE | c.d | v1 | xs"]], &["CREATE|a.b,c.d|v1|xs"]);
}

#[test]
fn registration_drops_rules_that_another_rule_covers() {
    one_entry(
        &[&["'*' | '*' | '*' | '*/*'"], &["CREATE | '' | v1 | pods"], &["DELETE | apps | v1 | deployments/scale"]],
        &["CREATE,UPDATE,DELETE,CONNECT|*|*|*/*"],
    );
    one_entry(
        &[&["CREATE | '' | v1 | '*'"], &["CREATE | '' | v1 | pods"], &["CREATE | '' | v1 | pods/exec"]],
        &["CREATE||v1|*,pods/exec"],
    );
    one_entry(&[&["CREATE | '' | v1 | pods/*"], &["CREATE | '' | v1 | pods"]], &["CREATE||v1|pods/*"]);
}

#[test]
fn registration_shares_entries_for_groups_with_one_version() {
    one_entry(
        &[&["CREATE | apps | '*' | deployments"], &["CREATE | apps | v1, v1beta1 | deployments"]],
        &["CREATE|apps|v1|deployments"],
    );
}

#[test]
fn registration_has_an_entry_for_each_version_of_a_resource() {
    let (entries, twice) = union_of(&[&["CREATE | x.io | v1 | things"], &["CREATE | x.io | v1beta1 | things"]]);
    assert_eq!(entries, [["CREATE|x.io|v1|things"], ["CREATE|x.io|v1beta1|things"]]);
    assert!(twice.is_empty(), "each sees its own version only: {twice:?}");
    one_entry(
        &[&["CREATE | x.io | v1 | things"], &["CREATE | x.io | v1beta1 | others"]],
        &["CREATE|x.io|v1beta1|others", "CREATE|x.io|v1|things"],
    );
    one_entry(
        &[&["CREATE | x.io | v1 | things"], &["DELETE | x.io | v1beta1 | things"]],
        &["CREATE|x.io|v1|things", "DELETE|x.io|v1beta1|things"],
    );
}

#[test]
fn registration_names_hooks_that_may_be_called_twice() {
    let (entries, twice) = union_of(&[
        &["CREATE | x.io | v1 | things"],
        &["CREATE | x.io | v1, v1beta1 | things"],
        &["CREATE | y.io | v2 | things"],
    ]);
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(twice, ["a.example.com", "b.example.com"]);
    // A request in v1 is left to the first entry, and in any other version the second hook is asked by its own alone.
    let (entries, twice) = union_of(&[&["CREATE | x.io | v1 | things"], &["CREATE | '*' | '*' | '*'"]]);
    assert_eq!((entries.len(), twice.len()), (2, 0), "{entries:?}");
}

#[test]
fn registration_does_not_depend_on_the_order_of_hooks() {
    let rules: [&[&str]; 3] = [
        &["CREATE | x.io | v1 | things", "UPDATE | '' | v1 | pods"],
        &["CREATE | x.io | v2 | things"],
        &["CREATE | '*' | '*' | '*/scale'"],
    ];
    let all = hooks_of(&rules);
    let turned: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(union(&all), union(&turned));
}

/// Sent by way of one group, a hook that takes the other alone would not be asked.
#[test]
fn registration_sends_events_in_the_group_that_a_hook_takes() {
    let (entries, twice) = union_of(&[&["CREATE | '' | v1 | events"], &["CREATE | events.k8s.io | v1 | events"]]);
    assert_eq!(entries, [["CREATE||v1|events"], ["CREATE|events.k8s.io|v1|events"]]);
    assert!(twice.is_empty(), "{twice:?}");
    // A hook that takes both is asked once where it stands alone.
    one_entry(&[&["CREATE | '', events.k8s.io | v1 | events"]], &["CREATE|,events.k8s.io|v1|events"]);
    let (entries, twice) = union_of(&[&["CREATE | '', events.k8s.io | v1 | events"], &["CREATE | '' | v1 | events"]]);
    assert_eq!((entries.len(), twice.len()), (2, 0), "the one that takes both is asked as the client has made it");
    one_entry(
        &[&["CREATE | '' | v1 | pods"], &["CREATE | events.k8s.io | v1 | events"]],
        &["CREATE||v1|pods", "CREATE|events.k8s.io|v1|events"],
    );
}

/// Beside a hook for everything, which is sent them as they were made.
#[test]
fn shared_groups_are_converted_beside_a_wildcard_hook() {
    for (resource, groups) in builtin::SHARED {
        let served = !groups.contains(&builtin::UNSERVED_GROUP);
        for group in groups.iter().filter(|group| **group != builtin::UNSERVED_GROUP) {
            let version = builtin(group, resource).unwrap().versions[0];
            let own = format!("CREATE | '{group}' | {version} | {resource}");
            for all in
                ["'*' | '*' | '*' | '*/*'", "CREATE | '*' | '*' | '*'", &format!("CREATE | '*' | '*' | {resource}")]
            {
                let (entries, _) = union_of(&[&[all], &[&own]]);
                let converts = entries.iter().flatten().any(|rule| rule.contains(&format!("|{group}|{version}|")));
                // Where the versions differ there is an entry in any case.
                assert!(converts || !served, "{all} {own}: {entries:?}");
                let own = format!("CREATE | '{group}' | '*' | {resource}");
                let (entries, _) = union_of(&[&[all, &own]]);
                assert_eq!(entries.len(), 1, "{all} {own}: a hook that takes every group needs no conversion");
            }
        }
    }
}

#[test]
fn registration_sends_new_objects_to_initializers_once() {
    let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                resourceInitializers:\n\
                - resource: pods\n  \
                  initializers: [{name: a, builtIn: {labels: {a: b}}}, {name: b, failurePolicy: Fail, attach: {commonNames: [b]}}]\n\
                - {apiGroup: apps, resource: deployments, initializers: [{name: c, failurePolicy: Fail}, {name: a, builtIn: {labels: {a: b}}}]}\n\
                - {resource: configmaps, mayInitialize: {users: [ann]}, initializers: []}\n\
                - {resource: secrets, initializers: [{name: c, failurePolicy: Fail}]}\n\
                - {resource: services, initializers: []}\n";
    let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
    let snapshot = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let plan = plan_of(&snapshot, HookType::Mutating, &[]).unwrap();
    let entries: Vec<_> = plan.entries.iter().map(|entry| (entry.closed, rules(&entry.atoms))).collect();
    let rules = |group: &str, resource: &str| {
        json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
            "scope": "*"})
    };
    assert!(wanted(&snapshot, HookType::Validating).is_empty());
    // Names that nobody acts for need nothing, and close nothing.
    let open = vec![rules("", "configmaps"), rules("apps", "deployments")];
    assert_eq!(entries, [(true, vec![rules("", "pods")]), (false, open)]);
    assert!(plan.twice.is_empty() && !plan.one_version);
}
#[test]
fn registration_sends_updates_of_objects_stored_by_label() {
    let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                resourceInitializers:\n\
                - {resource: configmaps, stored: Label, initializers: [{name: a, failurePolicy: Fail}]}\n";
    let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
    let snapshot = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    for hook_type in [HookType::Mutating, HookType::Validating] {
        let plan = plan_of(&snapshot, hook_type, &[]).unwrap();
        let entries: Vec<_> = plan.entries.iter().map(|entry| (entry.closed, rules(&entry.atoms))).collect();
        let sent = |operation: &str, resource: &str| {
            entries.iter().any(|(closed, rules)| {
                let has =
                    |list: &Value, text: &str| list.as_array().is_some_and(|list| list.iter().any(|one| one == text));
                let covers = |rule: &Value| has(&rule["operations"], operation) && has(&rule["resources"], resource);
                *closed && rules.iter().any(covers)
            })
        };
        assert!(sent("CREATE", "configmaps") && !sent("CREATE", "configmaps/*"), "{entries:?}");
        // It names the objects themselves as well.
        assert!(sent("UPDATE", "configmaps/*"), "{entries:?}");
    }
}

/// A plugin asks about no less than a webhook of a registration sends.
#[test]
fn registration_sends_nothing_that_the_rule_index_lacks() {
    let hook = |name: &str, kind: &str, policy: &str, rule: &str| {
        format!(
            "- name: {name}.example.com\n  type: {kind}\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  \
             failurePolicy: Ignore\n  matchPolicy: {policy}\n  rules: [{rule}]\n"
        )
    };
    let hooks = [
        hook(
            "a",
            "Validating",
            "Exact",
            "{operations: ['*'], apiGroups: [''], apiVersions: ['*'], resources: ['pods/*']}",
        ),
        hook(
            "b",
            "Mutating",
            "Equivalent",
            "{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: ['*']}",
        ),
        hook(
            "c",
            "Validating",
            "Equivalent",
            "{operations: [DELETE], apiGroups: ['*'], apiVersions: [v2], resources: [x]}",
        ),
    ];
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
         externalAdmissionHooks:\n{}resourceInitializers:\n\
         - {{resource: configmaps, stored: Label, initializers: [{{name: a, failurePolicy: Fail}}]}}\n\
         - {{resource: pods, initializers: [{{name: b, builtIn: {{labels: {{a: b}}}}}}]}}\n",
        hooks.concat()
    );
    let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
    let snapshot = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let index = RuleIndex::new(&snapshot);
    for (hook_type, phase) in [(HookType::Mutating, &index.mutating), (HookType::Validating, &index.validating)] {
        let PhaseRules::Rules(rules) = phase else { panic!("{index:?}") };
        let held: Vec<_> = rules
            .iter()
            .flat_map(|rule| rule.groups.iter().flat_map(move |g| rule.resources.iter().map(move |r| (rule, g, r))))
            .map(|(rule, group, resource)| Atom {
                group: group.clone(),
                resource: resource.clone(),
                scope: rule.scope,
                versions: rule.versions.iter().cloned().collect(),
                operations: rule.operations.iter().copied().collect(),
            })
            .collect();
        let plan = plan_of(&snapshot, hook_type, &[]).unwrap();
        let sent: Vec<_> = plan.entries.iter().flat_map(|entry| &entry.atoms).flat_map(Atom::by_operation).collect();
        assert!(sent.len() > 2, "{sent:?}");
        for atom in sent {
            let is_held = |held: &Atom| atom.is_sent_by(held) && atom.names_no_more_than(held);
            assert!(held.iter().any(is_held), "{atom:?} in {held:?}");
        }
    }
}

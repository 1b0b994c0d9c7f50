//! Checks and compiles rules, in upstream's form and the earlier forms of the design documents. Returns notes on hooks
//! whose resources may be served in versions that a configuration does not show, or that name only unserved versions.

use std::{collections::BTreeSet, sync::Arc};

use gatepost_api::{Hook, MatchPolicy, Operation, Rule, Scope, builtin, served};

use super::never_matches::dead;
use crate::{
    Note, Origin,
    document::{Dialect, node::Node, problem::quoted},
};

pub(crate) const KEYS: [&str; 8] =
    ["operations", "verbs", "apiGroups", "apiGroup", "apiVersions", "resources", "subresources", "scope"];

const KUBERNETES_KEYS: [&str; 5] = ["operations", "apiGroups", "apiVersions", "resources", "scope"];
const POLICY_KEYS: [&str; 6] = ["operations", "apiGroups", "apiVersions", "resources", "scope", "resourceNames"];

/// Consequence of an empty or missing list.
const NEVER: &str = "so the rule would never match";

/// Names of the operations: upstream's five, then those of the two earlier designs.
pub(crate) const OPERATIONS: [(&str, Option<Operation>); 11] = [
    ("CREATE", Some(Operation::Create)),
    ("UPDATE", Some(Operation::Update)),
    ("DELETE", Some(Operation::Delete)),
    ("CONNECT", Some(Operation::Connect)),
    ("*", None),
    ("POST", Some(Operation::Create)),
    ("PUT", Some(Operation::Update)),
    ("Create", Some(Operation::Create)),
    ("Update", Some(Operation::Update)),
    ("Delete", Some(Operation::Delete)),
    ("Connect", Some(Operation::Connect)),
];

pub(crate) const SCOPES: [(&str, Scope); 3] =
    [("*", Scope::Any), ("Namespaced", Scope::Namespaced), ("Cluster", Scope::Cluster)];

/// Checks and compiles a list of rules and reports its problems.
pub(crate) fn list(at: &Node<'_>, dialect: Dialect) -> Vec<Rule> {
    if !at.is_list() {
        return Vec::new();
    }
    let keys = if dialect == Dialect::Gatepost { &KEYS[..] } else { &KUBERNETES_KEYS };
    at.items().filter_map(|item| check(&item, dialect, keys)).collect()
}

/// Checks and compiles one rule of a policy. Its names of objects are not part of the result.
pub(crate) fn of_policy(at: &Node<'_>) -> Option<Rule> {
    check(at, Dialect::Kubernetes, &POLICY_KEYS)
}

/// Checks and compiles one rule. Source: `docs/reference/webhook-semantics.md` §14.
fn check(at: &Node<'_>, dialect: Dialect, keys: &[&str]) -> Option<Rule> {
    if !at.is_map_of(keys) {
        return None;
    }
    let before = at.problems();
    if dialect == Dialect::Kubernetes {
        let all_there = at.key("operations").required(NEVER, "list the operations, or [\"*\"] for all")
            & at.key("apiGroups").required(NEVER, "list the API groups: \"\" is the core group, \"*\" is all")
            & at.key("apiVersions").required(NEVER, "list the API versions, or [\"*\"] for all");
        if !all_there {
            return None;
        }
    }
    let earlier_form = at.key("apiGroup").present() || at.key("verbs").present();
    let rule = Rule {
        operations: operations(at, dialect),
        api_groups: groups(at),
        api_versions: versions(at, earlier_form),
        resources: resources(at, dialect),
        scope: Some(at.key("scope")).filter(Node::present).map_or(Some(Scope::Any), |scope| scope.choice(&SCOPES))?,
    };
    if dialect == Dialect::Gatepost && at.problems() == before {
        no_dead_entry(at, &rule);
    }
    (at.problems() == before).then_some(rule)
}

/// Reports entries that certainly match no request. kube-apiserver stores such a rule, so in its own kinds it is only a
/// finding ([`hazards`](crate::hazards)); in ours it is a mistake.
fn no_dead_entry(at: &Node<'_>, rule: &Rule) {
    let combined = at.key("subresources").present();
    for dead in dead(rule).into_iter().filter(|dead| dead.certain) {
        let list = Some(at.key(dead.key)).filter(Node::present).unwrap_or_else(|| at.key("apiGroup"));
        let item = list.items().nth(dead.entry).filter(|_| !combined);
        match item {
            Some(item) => item.problem(dead.what, dead.why, dead.fix),
            None => list.problem(dead.what, dead.why, dead.fix),
        }
    }
}

fn operations(at: &Node<'_>, dialect: Dialect) -> Vec<Operation> {
    let (operations, verbs) = (at.key("operations"), at.key("verbs"));
    if operations.present() && verbs.present() {
        verbs.problem("verbs and operations are both set", "and they mean the same", "keep one of the two");
    }
    let list = if operations.present() { operations } else { verbs };
    if !list.present() {
        return Operation::ALL.into();
    }
    if !list.is_list() || !not_empty(&list, "an operation or \"*\"") {
        return Vec::new();
    }
    let words = if dialect == Dialect::Gatepost { &OPERATIONS[..] } else { &OPERATIONS[..5] };
    let mut named = Vec::new();
    for meaning in list.items().filter_map(|item| item.choice(words)) {
        match meaning {
            Some(operation) if named.contains(&operation) => {}
            Some(operation) => named.push(operation),
            None if list.items().count() > 1 => star_alone(&list),
            None => named.extend(Operation::ALL),
        }
    }
    named
}

fn groups(at: &Node<'_>) -> Vec<Box<str>> {
    let (groups, group) = (at.key("apiGroups"), at.key("apiGroup"));
    match (groups.present(), group.present()) {
        (true, true) => {
            group.problem("apiGroup and apiGroups are both set", "and they mean the same", "keep one of the two");
            Vec::new()
        }
        (false, true) => group.text().into_iter().map(Box::from).collect(),
        (true, false) => words(&groups, true),
        (false, false) => {
            groups.problem("is missing", NEVER, "list the API groups: \"\" is the core group, \"*\" is all");
            Vec::new()
        }
    }
}

fn versions(at: &Node<'_>, earlier_form: bool) -> Vec<Box<str>> {
    let versions = at.key("apiVersions");
    if !versions.present() && earlier_form {
        return vec!["*".into()];
    }
    if versions.required(NEVER, "list the API versions, or [\"*\"] for all") {
        words(&versions, false)
    } else {
        Vec::new()
    }
}

/// Reads a list of words, or `*` alone.
fn words(list: &Node<'_>, empty_word: bool) -> Vec<Box<str>> {
    let Some(texts) = list.texts() else { return Vec::new() };
    not_empty(list, "an entry or \"*\"");
    if !empty_word {
        no_empty_text(list, &texts);
    }
    if texts.len() > 1 && texts.contains(&"*") {
        star_alone(list);
    }
    texts.into_iter().map(Box::from).collect()
}

fn not_empty(list: &Node<'_>, entry: &str) -> bool {
    let empty = list.items().next().is_none();
    if empty {
        list.problem("is empty", NEVER, format!("list {entry}, or remove the rule"));
    }
    !empty
}

fn no_empty_text(list: &Node<'_>, texts: &[&str]) {
    for (item, _) in list.items().zip(texts).filter(|(_, text)| text.is_empty()) {
        item.problem("is empty", NEVER, "write a name, or remove it");
    }
}

fn star_alone(list: &Node<'_>) {
    list.problem(
        "holds \"*\" beside other entries",
        "and \"*\" is everything, so the others mean nothing",
        "let it stand alone, or remove it",
    );
}

fn resources(at: &Node<'_>, dialect: Dialect) -> Vec<Box<str>> {
    let (resources, subresources) = (at.key("resources"), at.key("subresources"));
    if !resources.required(NEVER, "list the resources: pods, pods/status, *, pods/*, */scale or */*") {
        return Vec::new();
    }
    let Some(texts) = resources.texts() else { return Vec::new() };
    not_empty(&resources, "a resource or \"*\"");
    no_empty_text(&resources, &texts);
    for (item, text) in resources.items().zip(&texts) {
        let odd = text.bytes().any(|b| b.is_ascii_uppercase() || b.is_ascii_whitespace());
        if odd && dialect == Dialect::Gatepost {
            item.problem(
                format!("{} is not the name of a resource", quoted(text)),
                NEVER,
                "write the plural in lower case, as in the URL: pods, not Pod",
            );
        }
    }
    if subresources.present() {
        return combined(&resources, &texts, &subresources);
    }
    no_overlap(&resources, &texts);
    texts.into_iter().map(Box::from).collect()
}

/// Reports entries that other entries contain, as upstream does. The result depends on the order, as upstream's does:
/// `[a/x, a/*]` passes, `[a/*, a/x]` does not, and only the last entry without a subresource counts beside `*`.
fn no_overlap(list: &Node<'_>, texts: &[&str]) {
    let (mut all_of, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let (mut star, mut main_resource) = (false, false);
    for (item, text) in list.items().zip(texts).filter(|(_, text)| !text.is_empty()) {
        star |= *text == "*";
        let Some((resource, sub)) = text.split_once('/') else {
            main_resource = *text != "*";
            continue;
        };
        if all_of.contains(resource) {
            item.problem(format!("{} is contained in {resource}/*", quoted(text)), "so it adds nothing", "remove it");
        }
        if everywhere.contains(sub) {
            item.problem(format!("{} is contained in */{sub}", quoted(text)), "so it adds nothing", "remove it");
        }
        if sub == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(sub);
        }
    }
    if texts.len() > 1 && texts.contains(&"*/*") {
        list.problem(
            "holds */* beside other entries",
            "and */* is everything, so the others mean nothing",
            "let it stand alone, or remove it",
        );
    }
    if star && main_resource {
        list.problem(
            "holds * beside another resource",
            "and * is every resource, so the other means nothing",
            "remove it or the other",
        );
    }
}

/// Reads the earliest form, a list of resources and a list of subresources, and combines each with each.
fn combined(resources: &Node<'_>, texts: &[&str], subresources: &Node<'_>) -> Vec<Box<str>> {
    for (item, _) in resources.items().zip(texts).filter(|(_, text)| text.contains('/')) {
        item.problem(
            "names a subresource although there is a list subresources",
            "so it would have two",
            "use one of the two forms",
        );
    }
    if texts.len() > 1 && texts.contains(&"*") {
        star_alone(resources);
    }
    let Some(subs) = subresources.texts() else { return Vec::new() };
    not_empty(subresources, "a subresource, \"\" for the resource itself, or \"*\"");
    if subs.len() > 1 && subs.contains(&"*") {
        star_alone(subresources);
    }
    let pair = |resource: &str, sub: &str| if sub.is_empty() { resource.into() } else { format!("{resource}/{sub}") };
    texts.iter().flat_map(|resource| subs.iter().map(move |sub| pair(resource, sub).into())).collect()
}

/// What, why and fix of a [`Note`].
type Remark = (String, &'static str, &'static str);

/// Returns notes on the versions that hooks name, in the order of the hooks.
pub(crate) fn notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>]) -> Vec<Note> {
    let mut notes = Vec::new();
    for (hook, origin) in hooks.iter().zip(origins) {
        let equivalent = (hook.match_policy == MatchPolicy::Equivalent).then_some(hook);
        let (unknown, shared) = (equivalent.and_then(|hook| unknown(hook)), equivalent.and_then(|hook| shared(hook)));
        for (what, why, fix) in [unknown, shared, never_served(hook)].into_iter().flatten() {
            let (what, why, fix) = (format!("hook {:?} {what}", hook.name), why.to_owned(), fix.to_owned());
            notes.push(Note { file: origin.file.clone(), path: origin.path.clone(), what, why, fix });
        }
    }
    notes
}

/// Returns a remark if the hook names some versions of all resources of any group, or of one that is not Kubernetes'
/// own: only an apiserver knows in which other versions these resources are served.
fn unknown(hook: &Hook) -> Option<Remark> {
    let is_open = |rule: &&Rule| !any(&rule.api_versions) && rule.resources.iter().any(|entry| entry.starts_with('*'));
    let groups = hook.rules.iter().filter(is_open).flat_map(|rule| &rule.api_groups);
    let mut groups: Vec<&str> = groups.map(AsRef::as_ref).filter(|group| !builtin::is_group(group)).collect();
    groups.sort_unstable();
    groups.dedup();
    let of = match groups[..] {
        [] => return None,
        ["*", ..] => "every group".to_owned(),
        [one] => one.to_owned(),
        [one, ..] => format!("{one} and {} more", groups.len() - 1),
    };
    let fix = "write apiVersions [\"*\"] for every version, or matchPolicy Exact for those named alone";
    Some((
        format!("names versions of all resources of {of}"),
        "and in which versions these are served cannot be told from here: what is written in another one is a failed \
         call (other_version), unless serve knows the cluster (--namespaces-from)",
        fix,
    ))
}

/// Returns a remark if the hook matches events of only one group. The core group and events.k8s.io share their events.
fn shared(hook: &Hook) -> Option<Remark> {
    let sees = |group: &str| {
        hook.rules.iter().any(|rule| {
            let in_group = any(&rule.api_groups) || rule.api_groups.iter().any(|named| **named == *group);
            let means = |entry: &str| ["*", "events"].contains(&entry.split('/').next().unwrap_or(entry));
            in_group && rule.resources.iter().any(|entry| means(entry))
        })
    };
    let (named, other) = match ["", "events.k8s.io"].map(sees) {
        [true, false] => ("the core group", "events.k8s.io"),
        [false, true] => ("events.k8s.io", "the core group"),
        _ => return None,
    };
    Some((
        format!("sees events of {named} and means those of {other}, too"),
        "which are the same: written there, they are failed calls (other_version) where kube-apiserver does not \
         convert them",
        "name both groups, or write matchPolicy Exact",
    ))
}

/// Returns a remark if a rule names only versions in which Kubernetes does not serve a resource of it: as with
/// kube-apiserver, the hook is not called for this resource. An entry that matches nothing at all is a finding already.
fn never_served(hook: &Hook) -> Option<Remark> {
    let rules = hook.rules.iter().filter(|rule| !any(&rule.api_versions));
    rules.into_iter().find_map(|rule| {
        let found: Vec<_> = dead(rule).iter().filter(|dead| dead.key == "resources").map(|dead| dead.entry).collect();
        let written = || rule.resources.iter().enumerate().filter(|(entry, _)| !found.contains(entry));
        let resources = || written().map(|(_, entry)| entry.split('/').next().unwrap_or(entry));
        let mut pairs = rule.api_groups.iter().flat_map(|group| resources().map(move |resource| (&**group, resource)));
        let is_never = |(group, resource): &(&str, &str)| {
            let versions = served::versions(None, group, resource);
            !versions.may_match(|known| rule.api_versions.iter().any(|version| **version == *known))
        };
        let (group, resource) = pairs.find(is_never)?;
        let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let versions = quoted(&rule.api_versions.join(", "));
        Some((
            format!("names {shown} in versions in which Kubernetes does not serve them ({versions})"),
            "so it is not asked about them",
            "name one that is served, or write apiVersions [\"*\"] for every version",
        ))
    })
}

fn any(list: &[Box<str>]) -> bool {
    list.iter().any(|entry| **entry == *"*")
}

#[cfg(test)]
mod unknown_versions_tests {
    use crate::{SourceFile, load};

    /// Notes on a hook with this rule.
    fn noted(rule: &str) -> Vec<String> {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks:\n- name: h.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  sideEffects: None\n  {rule}\n"
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("good");
        snapshot.notes().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_configuration_does_not_show_is_noted_for_each_hook() {
        let rules = |groups: &str, versions: &str, resources: &str| {
            format!("rules: [{{apiGroups: [{groups}], apiVersions: [{versions}], resources: [{resources}]}}]")
        };
        for (rule, says) in [
            (rules("example.com", "v1", "'*'"), Some("all resources of example.com")),
            (rules("'*'", "v1", "'*/*'"), Some("all resources of every group")),
            (rules("a.example.com, apps, b.example.com", "v1, v2", "'*/scale'"), Some("of a.example.com and 1 more")),
            (rules("example.com", "v1", "widgets"), None),
            (rules("example.com", "'*'", "'*'"), None),
            (rules("apps", "v1", "'*'"), None),
            (rules("''", "v1", "'*'"), Some("sees events of the core group and means those of events.k8s.io")),
            (
                rules("events.k8s.io", "v1", "events"),
                Some("sees events of events.k8s.io and means those of the core group"),
            ),
            (rules("'', events.k8s.io", "v1", "events"), None),
            (rules("''", "v1", "pods"), None),
            (rules("apps", "v1, v1beta9", "deployments"), None),
            (rules("apps", "v2", "deployments"), None),
        ] {
            let message = noted(&rule);
            assert_eq!(message.len(), usize::from(says.is_some()), "{rule}: {message:?}");
            if let Some(says) = says {
                assert!(
                    message[0].starts_with("a.yaml: externalAdmissionHooks[0]: hook \"h.example.com\""),
                    "{message:?}"
                );
                assert!(message[0].contains(says), "{message:?}");
            }
            assert!(noted(&format!("matchPolicy: Exact\n  {rule}")).is_empty(), "{rule}");
        }
        let found = rules("apps", "v1beta9, v1alpha9", "deployments/scale");
        assert!(noted(&found).is_empty(), "it is a finding, and not reported twice: {:?}", noted(&found));
        let both = |version: &str| rules("example.com, apps", version, "deployments");
        for (rule, says) in [
            (
                rules("example.com, ''", "v1beta1", "pods"),
                "names pods in versions in which Kubernetes does not serve them",
            ),
            (both("v2"), "names deployments.apps in versions in which Kubernetes does not serve them (\"v2\")"),
            (both("v1beta9, v9"), "does not serve them (\"v1beta9, v9\")"),
        ] {
            for policy in ["Equivalent", "Exact"] {
                let message = noted(&format!("matchPolicy: {policy}\n  {rule}"));
                assert!(message.len() == 1 && message[0].contains(says), "{rule}: {message:?}");
            }
        }
    }
}

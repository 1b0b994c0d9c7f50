//! Dead entries: entries of a rule that no request matches.
//!
//! Rules are compared as text (`docs/reference/webhook-semantics.md` §4.1), so `pod`, `core` or `apps/v1` match
//! nothing, and the hook is not called, against its author's intent. Only certain faults are reported: by the text
//! alone, or by the resources that Kubernetes has ever served. A group that is not Kubernetes' own may serve anything.

use std::collections::BTreeSet;

use crate::document::problem::{one_of, quoted};
use gatepost_api::{
    Operation, Rule, Scope,
    builtin::{self, BuiltinResource},
};

/// An entry of a rule that no request matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadEntry {
    /// Key of the rule that has the entry.
    pub(crate) key: &'static str,
    /// Index of the entry under its key.
    pub(crate) entry: usize,
    /// Fault of the entry.
    pub(crate) what: String,
    /// Consequence of the fault.
    pub(crate) why: &'static str,
    /// Correction of the entry.
    pub(crate) fix: String,
    /// True if no apiserver has ever served it: a mistake, and not a resource of a newer Kubernetes than is known here.
    pub(crate) certain: bool,
}

/// Consequence of every dead entry.
const NEVER: &str = "so the rule never matches";

/// Operations that apiservers review on each subresource; "" is the resource itself. Other subresources are not judged.
const SUB_RESOURCES: [(&str, &[Operation]); 15] = [
    ("approval", &[Operation::Update]),
    ("attach", &[Operation::Connect]),
    ("binding", &[Operation::Create]),
    ("ephemeralcontainers", &[Operation::Update]),
    ("eviction", &[Operation::Create]),
    ("exec", &[Operation::Connect]),
    ("finalize", &[Operation::Update]),
    ("log", &[]),
    ("portforward", &[Operation::Connect]),
    ("proxy", &[Operation::Connect]),
    ("resize", &[Operation::Update]),
    ("scale", &[Operation::Update]),
    ("status", &[Operation::Update]),
    ("token", &[Operation::Create]),
    ("", &[Operation::Create, Operation::Update, Operation::Delete]),
];

/// Returns every dead entry of a rule, in order: groups, versions, then resources.
pub(crate) fn dead(rule: &Rule) -> Vec<DeadEntry> {
    let mut dead = Vec::new();
    let mut add = |key, entry, (what, fix): (String, String), certain| {
        dead.push(DeadEntry { key, entry, what, why: NEVER, fix, certain });
    };
    for (entry, group) in rule.api_groups.iter().enumerate() {
        if let Some(fault) = dead_group(group) {
            add("apiGroups", entry, fault, true);
        }
    }
    for (entry, version) in rule.api_versions.iter().enumerate() {
        if let Some((_, version)) = version.split_once('/') {
            let what = format!("{} is not a version", quoted(&rule.api_versions[entry]));
            add("apiVersions", entry, (what, format!("write {}, and the group in apiGroups", quoted(version))), true);
        }
    }
    // Resources are not compared if a group is unknown: it may be a mistake that was reported, or serve anything.
    let known = rule.api_groups.iter().all(|group| builtin::is_group(group));
    for (entry, written) in rule.resources.iter().enumerate() {
        if let Some(fault) = dead_name(written, rule) {
            add("resources", entry, fault, true);
        } else if known && let Some((fault, certain)) = dead_built_in(written, rule) {
            add("resources", entry, fault, certain);
        }
    }
    dead
}

/// Returns the fault and the fix of a group such as `core` or `apps/v1`.
fn dead_group(group: &str) -> Option<(String, String)> {
    let what = || format!("{} is not an API group", quoted(group));
    match group.split_once('/') {
        Some((group, version)) => {
            Some((what(), format!("write {}, and {} in apiVersions", quoted(group), quoted(version))))
        }
        None if group == "core" => Some((what(), "write \"\", which is the core group's name".into())),
        None if group == "v1" => Some((what(), "write \"\" for the core group, and v1 in apiVersions".into())),
        None if group.bytes().any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_whitespace()) => {
            Some((what(), "write it in lower case, as in apiVersion: apps/v1".into()))
        }
        None => None,
    }
}

/// Returns the fault and the fix of a name such as `deployments.apps`, `pods/` or, in Kubernetes' own groups, `pod`.
fn dead_name(written: &str, rule: &Rule) -> Option<(String, String)> {
    let (name, sub) = written.split_once('/').map_or((written, None), |(name, sub)| (name, Some(sub)));
    let what = || format!("{} is not the name of a resource", quoted(written));
    if let Some((resource, group)) = name.split_once('.') {
        return Some((what(), format!("write {}, and {} in apiGroups", quoted(resource), quoted(group))));
    }
    if name.is_empty() || sub.is_some_and(|sub| sub.is_empty() || sub.contains('/')) {
        return Some((what(), "write resource/subresource, resource/* or */subresource, as in pods/status".into()));
    }
    if rule.api_groups.iter().any(|group| !builtin::is_group(group) && **group != *"*") {
        return None;
    }
    let plural = plural(name)?;
    let sub = sub.map_or(String::new(), |sub| format!("/{sub}"));
    Some((what(), format!("write the plural, as in the URL: {plural}{sub}")))
}

/// Returns the built-in resource of a singular or short name; `None` if the name is itself a resource.
fn plural(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    if builtin::named(name).next().is_some() {
        return None;
    }
    let short = builtin::of_short_name(&lower);
    let tries = || {
        let stem = lower.strip_suffix('y').map(|stem| format!("{stem}ies"));
        [Some(lower.clone()), Some(format!("{lower}s")), Some(format!("{lower}es")), stem].into_iter().flatten()
    };
    short.or_else(|| tries().find_map(|word| builtin::named(&word).next()).map(|found| found.resource))
}

/// Returns the fault of a resource that Kubernetes' groups do not serve, or not in this scope, operation or version.
fn dead_built_in(written: &str, rule: &Rule) -> Option<((String, String), bool)> {
    let (name, sub) = written.split_once('/').unwrap_or((written, ""));
    if name == "*" {
        return None;
    }
    let served: Vec<&BuiltinResource> =
        rule.api_groups.iter().filter_map(|group| builtin::builtin(group, name)).collect();
    if served.is_empty() {
        return Some(unserved(name, rule));
    }
    let fault = wrong_scope(&served, rule)
        .or_else(|| wrong_operation(written, sub, rule))
        .or_else(|| wrong_version(written, &served, rule));
    Some((fault?, false))
}

/// Describes a resource that no group of the rule serves. It is certainly a mistake if another group serves it.
fn unserved(name: &str, rule: &Rule) -> ((String, String), bool) {
    let groups: Vec<String> = rule.api_groups.iter().map(|group| shown(group)).collect();
    let what = format!("{} is not a resource of {}", quoted(name), groups.join(" or "));
    let elsewhere: BTreeSet<&str> = builtin::named(name).map(|found| found.group).collect();
    let served = |group: &&str| *group != builtin::UNSERVED_GROUP;
    let elsewhere: Vec<String> = elsewhere.into_iter().filter(served).map(shown).collect();
    match elsewhere.is_empty() {
        true => ((what, "see `kubectl api-resources` for the resource's name and its group".into()), false),
        false => ((what, format!("{name} is in {}: name that in apiGroups", one_of(&elsewhere))), true),
    }
}

fn wrong_scope(served: &[&BuiltinResource], rule: &Rule) -> Option<(String, String)> {
    let namespaced = served.iter().any(|found| found.namespaced);
    let cluster = served.iter().any(|found| !found.namespaced);
    let name = served.first()?.resource;
    match rule.scope {
        Scope::Cluster if !cluster => Some((
            format!("{name} are in namespaces, and scope: Cluster is for what is not"),
            "write scope: Namespaced, or leave it out".into(),
        )),
        Scope::Namespaced if !namespaced => Some((
            format!("{name} are in no namespace, and scope: Namespaced is for what is"),
            "write scope: Cluster, or leave it out".into(),
        )),
        _ => None,
    }
}

fn wrong_operation(written: &str, sub: &str, rule: &Rule) -> Option<(String, String)> {
    let (_, reviewed) = SUB_RESOURCES.iter().find(|(known, _)| *known == sub)?;
    if reviewed.iter().any(|operation| rule.operations.contains(operation)) {
        return None;
    }
    let named: Vec<&str> = rule.operations.iter().map(|operation| operation.as_str()).collect();
    let what = format!("no request to {} is a {}", quoted(written), one_of(&named));
    let wanted: Vec<&str> = reviewed.iter().map(|operation| operation.as_str()).collect();
    let fix = match (wanted.is_empty(), sub) {
        (true, _) => "remove it: reading is not asked about".into(),
        (_, "") => format!("name {}, or the subresource that is connected to, as in pods/exec", one_of(&wanted)),
        _ => format!("name {} in operations", one_of(&wanted)),
    };
    Some((what, fix))
}

fn wrong_version(written: &str, served: &[&BuiltinResource], rule: &Rule) -> Option<(String, String)> {
    let named = |version: &str| rule.api_versions.iter().any(|named| **named == *version || **named == *"*");
    // An invalid version is a finding of its own.
    let has_invalid = rule.api_versions.iter().any(|version| version.contains('/'));
    if has_invalid || served.iter().any(|found| found.versions.iter().any(|version| named(version))) {
        return None;
    }
    let versions: BTreeSet<&str> = served.iter().flat_map(|found| found.versions).copied().collect();
    let what = format!("{} is served in none of the versions named", quoted(written));
    let versions: Vec<&str> = versions.into_iter().collect();
    Some((what, format!("name {} in apiVersions, or \"*\"", one_of(&versions))))
}

fn shown(group: &str) -> String {
    if group.is_empty() { "the core group (\"\")".into() } else { group.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `operations | groups | versions | resources | scope`; an empty group is the core group.
    fn rule(text: &str) -> Rule {
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        let [operations, groups, versions, resources, ref rest @ ..] = parts[..] else { panic!("{text}") };
        let words = |text: &str| text.split(',').map(|word| word.trim().into()).collect::<Vec<Box<str>>>();
        let operation =
            |word: Box<str>| Operation::ALL.into_iter().filter(move |o| &*word == "*" || o.as_str() == &*word);
        Rule {
            operations: words(operations).into_iter().flat_map(operation).collect(),
            api_groups: words(groups),
            api_versions: words(versions),
            resources: words(resources),
            scope: match rest.first() {
                Some(&"Cluster") => Scope::Cluster,
                Some(&"Namespaced") => Scope::Namespaced,
                _ => Scope::Any,
            },
        }
    }

    /// Place, words of what is wrong, words of the fix, and whether it is certain.
    const DEAD: [(&str, &str, &str, &str, bool); 23] = [
        ("* | Apps | v1 | deployments", "apiGroups[0]", "\"Apps\" is not an API group", "lower case", true),
        ("* | | v1 | pod", "resources[0]", "\"pod\" is not the name", "in the URL: pods", true),
        ("* | * | * | pod/status", "resources[0]", "is not the name", "pods/status", true),
        ("* | apps | v1 | deploy", "resources[0]", "is not the name", "deployments", true),
        ("* | | v1 | Pod", "resources[0]", "is not the name", "pods", true),
        ("* | networking.k8s.io | v1 | networkpolicy", "resources[0]", "is not the name", "networkpolicies", true),
        ("* | networking.k8s.io | v1 | ingress", "resources[0]", "is not the name", "ingresses", true),
        ("* | core | v1 | pods", "apiGroups[0]", "\"core\" is not an API group", "write \"\"", true),
        ("* | v1 | v1 | pods", "apiGroups[0]", "\"v1\" is not an API group", "write \"\" for the core", true),
        ("* | apps/v1 | v1 | deployments", "apiGroups[0]", "not an API group", "write \"apps\", and \"v1\"", true),
        ("* | apps | apps/v1 | deployments", "apiVersions[0]", "is not a version", "write \"v1\"", true),
        ("* | | v1 | deployments", "resources[0]", "not a resource of the core group", "deployments is in apps", true),
        ("* | apps | v1 | pods, deployments", "resources[0]", "\"pods\" is not a resource of apps", "core group", true),
        ("* | apps | v1 | deployments.apps", "resources[0]", "is not the name", "\"deployments\", and \"apps\"", true),
        ("* | | v1 | pods/", "resources[0]", "is not the name", "pods/status", true),
        ("* | | v1 | /status", "resources[0]", "is not the name", "pods/status", true),
        ("* | apps | v1 | widgets", "resources[0]", "not a resource of apps", "kubectl api-resources", false),
        ("* | | v1 | pods | Cluster", "resources[0]", "pods are in namespaces", "scope: Namespaced", false),
        ("* | | v1 | nodes | Namespaced", "resources[0]", "nodes are in no namespace", "scope: Cluster", false),
        ("CREATE | | v1 | pods/exec", "resources[0]", "no request to \"pods/exec\" is a CREATE", "CONNECT", false),
        ("CONNECT | | v1 | pods", "resources[0]", "is a CONNECT", "as in pods/exec", false),
        ("* | | v1 | pods/log", "resources[0]", "no request to \"pods/log\"", "remove it", false),
        ("* | | v2 | pods", "resources[0]", "none of the versions", "name v1 in apiVersions", false),
    ];

    #[test]
    fn what_no_request_has_is_reported_with_its_place_and_its_fix() {
        for (text, place, what, fix, certain) in DEAD {
            let found = dead(&rule(text));
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            let fault = &found[0];
            assert_eq!(format!("{}[{}]", fault.key, fault.entry), place, "{text}");
            assert!(fault.what.contains(what) && fault.fix.contains(fix), "{text}: {fault:?}");
            assert_eq!(fault.certain, certain, "{text}");
        }
    }

    #[test]
    fn what_may_be_served_is_not_spoken_of() {
        for text in [
            "* | * | * | */*",
            "CREATE | , apps | v1 | pods, deployments",
            "CREATE | example.com | v1 | widgets",
            // A group that is not Kubernetes' own may name its resources as it likes.
            "CREATE | example.com | v1 | pod",
            "CREATE | metrics | v1 | nodes",
            "CREATE | , example.com | v1 | pod, deployments",
            "* | | v1 | pods/exec",
            "CONNECT | | v1 | pods/*, services/proxy, nodes/proxy, pods/attach",
            "UPDATE | * | * | */scale, */status",
            "CREATE, UPDATE | apps | v1 | deployments/scale",
            "CREATE | | v1 | pods/eviction, pods/binding, serviceaccounts/token",
            "DELETE | | v1 | namespaces | Cluster",
            "CREATE | events.k8s.io, | v1 | events | Namespaced",
            "CREATE | extensions | v1beta1 | ingresses",
            "CREATE | apps | v1beta1 | deployments",
            "CREATE | autoscaling | v2 | horizontalpodautoscalers",
            "CONNECT | * | * | *",
            "CREATE | | v1 | pods/unheardof",
        ] {
            assert_eq!(dead(&rule(text)), [], "{text}");
        }
    }
}

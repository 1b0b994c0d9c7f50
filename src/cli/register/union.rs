//! Union: the rules of many hooks as few rules, such that each hook gets the version of an object it asked for.
//!
//! An apiserver sends an object in the version its client used where some rule of the entry names it, and converts it
//! to a version that a rule names where none does (`docs/reference/webhook-semantics.md` §4). So two hooks that want
//! different versions of one resource cannot share an entry: one of them would not recognise what comes. Rules are
//! taken apart into atoms of one group and one resource each; atoms that contradict each other go to different entries.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::model::{Hook, Operation, Scope, builtin};

/// Groups whose resources every apiserver since 1.25 serves in v1 only: for them "*" and "v1" are the same.
const ONLY_V1: [&str; 6] = ["", "apps", "batch", "policy", "rbac.authorization.k8s.io", "scheduling.k8s.io"];

/// What an apiserver has to be told for these hooks.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    /// The rules of each entry.
    pub(super) entries: Vec<Vec<Value>>,
    /// Hooks of which two entries see the same request.
    pub(super) twice: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Atom {
    group: Box<str>,
    resource: Box<str>,
    scope: &'static str,
    versions: BTreeSet<Box<str>>,
    operations: BTreeSet<&'static str>,
}

/// Everything there is, in whatever version its client used.
pub(super) fn everything() -> Union {
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": Scope::Any.as_str(),
        "operations": Operation::ALL.map(Operation::as_str)});
    Union { entries: vec![vec![rule]], twice: BTreeSet::new() }
}

/// The union of the rules of these hooks.
pub(super) fn union(hooks: &[Arc<Hook>]) -> Union {
    let mut atoms: BTreeMap<Atom, BTreeSet<Arc<str>>> = BTreeMap::new();
    for hook in hooks {
        for rule in &hook.rules {
            for (group, resource) in rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r))) {
                let operations = rule.operations.iter().map(|operation| operation.as_str()).collect();
                let scope = rule.scope.as_str();
                let atom = Atom {
                    group: group.clone(),
                    resource: resource.clone(),
                    scope,
                    versions: versions(group, &rule.api_versions),
                    operations,
                };
                atoms.entry(atom).or_default().insert(hook.name.clone());
            }
        }
    }
    let twice = asked_twice(&atoms);
    // The same objects by another group: an apiserver sends them in one of the two, so that a hook that takes this one
    // alone cannot share an entry with one that takes the other.
    let apart = |one: &Atom, other: &Atom| one.shares_objects_with(other) && atoms.get(one) != atoms.get(other);
    let all: Vec<_> = atoms.keys().cloned().collect();
    let kept = all.iter().filter(|atom| !all.iter().any(|other| other != *atom && atom.is_within(other)));
    let mut entries: Vec<Vec<&Atom>> = Vec::new();
    for atom in kept {
        let fits = |entry: &Vec<&Atom>| !entry.iter().any(|other| atom.contradicts(other) || apart(atom, other));
        match entries.iter_mut().find(|entry| fits(entry)) {
            Some(entry) => entry.push(atom),
            None => entries.push(vec![atom]),
        }
    }
    Union { entries: entries.into_iter().map(rules).collect(), twice }
}

fn versions(group: &str, written: &[Box<str>]) -> BTreeSet<Box<str>> {
    let has = |version: &str| written.iter().any(|written| **written == *version);
    match (has("*"), has("v1")) {
        (any, one) if (any || one) && ONLY_V1.contains(&group) => BTreeSet::from(["v1".into()]),
        (true, _) => BTreeSet::from(["*".into()]),
        _ => written.iter().cloned().collect(),
    }
}

/// Two that contradict each other, and both of which some version satisfies: what one entry sends, the other's hooks
/// take as well.
fn asked_twice(atoms: &BTreeMap<Atom, BTreeSet<Arc<str>>>) -> BTreeSet<Arc<str>> {
    let mut twice = BTreeSet::new();
    for (one, hooks) in atoms {
        for (other, others) in atoms {
            if one.contradicts(other) && one.shares_a_version_with(other) {
                twice.extend(hooks.iter().chain(others).cloned());
            }
            if one.shares_objects_with(other) && hooks != others {
                twice.extend(hooks.intersection(others).cloned());
            }
        }
    }
    twice
}

impl Atom {
    /// Is there a request that both see, and that each wants in another version?
    fn contradicts(&self, other: &Self) -> bool {
        !self.agrees_on_versions(other)
            && meet(&self.group, &other.group)
            && meet(self.resource().0, other.resource().0)
            && meet(self.resource().1, other.resource().1)
            && meet(self.scope, other.scope)
            && !self.operations.is_disjoint(&other.operations)
    }

    /// Do both see the same objects, each in another group?
    fn shares_objects_with(&self, other: &Self) -> bool {
        self.group != other.group
            && !self.operations.is_disjoint(&other.operations)
            && meet(self.scope, other.scope)
            && builtin::SHARED.iter().any(|(resource, groups)| {
                let is_one = |atom: &Self| groups.contains(&&*atom.group) && within(resource, atom.resource().0);
                is_one(self) && is_one(other)
            })
    }

    /// Does the other see whatever this one sees, in the same version?
    fn is_within(&self, other: &Self) -> bool {
        self.agrees_on_versions(other)
            && within(&self.group, &other.group)
            && within(self.resource().0, other.resource().0)
            && within(self.resource().1, other.resource().1)
            && within(self.scope, other.scope)
            && self.operations.is_subset(&other.operations)
    }

    fn agrees_on_versions(&self, other: &Self) -> bool {
        let only_v1 = [self, other].iter().any(|atom| ONLY_V1.contains(&&*atom.group));
        self.versions == other.versions || (only_v1 && self.takes("v1") && other.takes("v1"))
    }

    fn shares_a_version_with(&self, other: &Self) -> bool {
        self.versions.iter().any(|version| &**version == "*" || other.takes(version)) || other.takes("")
    }

    fn takes(&self, version: &str) -> bool {
        self.versions.contains("*") || self.versions.contains(version)
    }

    /// Resource and subresource; "" is none.
    fn resource(&self) -> (&str, &str) {
        self.resource.split_once('/').unwrap_or((&self.resource, ""))
    }
}

fn meet(one: &str, other: &str) -> bool {
    within(one, other) || other == "*" || one == "*"
}

fn within(one: &str, other: &str) -> bool {
    other == "*" || one == other
}

/// Atoms put together again: first those that differ in their resource only, then those that differ in their group.
fn rules(atoms: Vec<&Atom>) -> Vec<Value> {
    let mut by_group: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Atom { group, resource, scope, versions, operations } in atoms {
        by_group.entry((group, scope, versions, operations)).or_default().insert(resource);
    }
    let mut by_resources: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for ((group, scope, versions, operations), resources) in by_group {
        by_resources.entry((resources, scope, versions, operations)).or_default().insert(group);
    }
    let rule = |((resources, scope, versions, operations), groups): (_, BTreeSet<&Box<str>>)| {
        json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "scope": scope,
            "operations": Operation::ALL.map(Operation::as_str).into_iter().filter(|o| BTreeSet::contains(operations, o)).collect::<Vec<_>>()})
    };
    let mut rules: Vec<Value> = by_resources.into_iter().map(rule).collect();
    rules.sort_by_key(|rule| rule["apiGroups"].to_string());
    rules
}

#[cfg(test)]
mod tests;

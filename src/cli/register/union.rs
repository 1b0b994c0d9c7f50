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

/// What an apiserver has to be told for hooks that share their failure policy and their selectors.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    /// What each entry is about.
    pub(super) entries: Vec<Vec<Atom>>,
    /// Hooks of which two entries may send the same request.
    pub(super) twice: BTreeSet<Arc<str>>,
}

/// A rule of one group and one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Atom {
    pub(super) group: Box<str>,
    resource: Box<str>,
    pub(super) scope: &'static str,
    versions: BTreeSet<Box<str>>,
    pub(super) operations: BTreeSet<&'static str>,
}

/// The union of the rules of these hooks.
pub(super) fn union(hooks: &[Arc<Hook>]) -> Union {
    let mut atoms: BTreeMap<Atom, BTreeSet<Arc<str>>> = BTreeMap::new();
    for hook in hooks {
        for atom in atoms_of(hook) {
            atoms.entry(atom).or_default().insert(hook.name.clone());
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
    Union { entries: entries.into_iter().map(|entry| entry.into_iter().cloned().collect()).collect(), twice }
}

/// A hook's rules, taken apart.
pub(super) fn atoms_of(hook: &Hook) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for rule in &hook.rules {
        for (group, resource) in rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r))) {
            atoms.push(Atom {
                group: group.clone(),
                resource: resource.clone(),
                scope: rule.scope.as_str(),
                versions: versions(group, &rule.api_versions),
                operations: rule.operations.iter().map(|operation| operation.as_str()).collect(),
            });
        }
    }
    atoms
}

fn versions(group: &str, written: &[Box<str>]) -> BTreeSet<Box<str>> {
    let has = |version: &str| written.iter().any(|written| **written == *version);
    match (has("*"), has("v1")) {
        (any, one) if (any || one) && ONLY_V1.contains(&group) => BTreeSet::from(["v1".into()]),
        (true, _) => BTreeSet::from(["*".into()]),
        _ => written.iter().cloned().collect(),
    }
}

/// Two that contradict each other, and both of which some version satisfies: what one entry sends, the other's hooks take
/// as well. A request in a version that both name is left to one of the entries; in one that a hook takes as it was made,
/// Gatepost asks it only then ([`OtherVersions::AskedApart`](crate::admit::OtherVersions)). What remains is a request in a
/// version that neither names: each entry may have it converted to one that both do.
fn asked_twice(atoms: &BTreeMap<Atom, BTreeSet<Arc<str>>>) -> BTreeSet<Arc<str>> {
    let mut twice = BTreeSet::new();
    for (one, hooks) in atoms {
        for (other, others) in atoms {
            if one.may_be_sent_twice(other) {
                twice.extend(hooks.iter().chain(others).cloned());
            }
        }
    }
    twice
}

impl Atom {
    /// Everything there is, in whatever version its client used.
    pub(super) fn everything() -> Self {
        Self {
            group: "*".into(),
            resource: "*/*".into(),
            scope: Scope::Any.as_str(),
            versions: BTreeSet::from(["*".into()]),
            operations: Operation::ALL.map(Operation::as_str).into(),
        }
    }

    /// Is there a request that both see, and that each wants in another version?
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        !self.agrees_on_versions(other) && self.overlaps(other)
    }

    /// Is there a request that both see, in whatever version?
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        meet(&self.group, &other.group)
            && meet(self.resource().0, other.resource().0)
            && meet(self.resource().1, other.resource().1)
            && meet(self.scope, other.scope)
            && !self.operations.is_disjoint(&other.operations)
    }

    /// Do both mean the same request, in versions that overlap and are not the same, so that one in yet another version
    /// may be sent by each in a version that both take?
    pub(super) fn may_be_sent_twice(&self, other: &Self) -> bool {
        let any = [self, other].iter().any(|atom| atom.versions.contains("*"));
        self.contradicts(other) && !any && !self.shared_versions(other).is_empty()
    }

    /// Do both see the same objects, each in another group?
    pub(super) fn shares_objects_with(&self, other: &Self) -> bool {
        self.group != other.group
            && !self.operations.is_disjoint(&other.operations)
            && meet(self.scope, other.scope)
            && builtin::SHARED.iter().any(|(resource, groups)| {
                let is_one = |atom: &Self| groups.contains(&&*atom.group) && within(resource, atom.resource().0);
                is_one(self) && is_one(other)
            })
    }

    /// Does the other see whatever this one sees, in the same version?
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.agrees_on_versions(other) && self.is_sent_by(other)
    }

    /// Does the other see whatever this one sees, in whatever version?
    pub(super) fn is_sent_by(&self, other: &Self) -> bool {
        within(&self.group, &other.group)
            && within(self.resource().0, other.resource().0)
            && within(self.resource().1, other.resource().1)
            && within(self.scope, other.scope)
            && self.operations.is_subset(&other.operations)
    }

    /// One for each of its operations.
    pub(super) fn by_operation(&self) -> impl Iterator<Item = Self> {
        self.operations.iter().map(|operation| Self { operations: BTreeSet::from([*operation]), ..self.clone() })
    }

    /// As one speaks of it: `CREATE of pods`.
    pub(super) fn noun(&self) -> String {
        let operations: Vec<_> = self.operations.iter().copied().collect();
        let (operations, resource) = (operations.join(", "), &self.resource);
        match &*self.group {
            "" => format!("{operations} of {resource}"),
            "*" => format!("{operations} of {resource} in every group"),
            group => format!("{operations} of {resource}.{group}"),
        }
    }

    /// Are all versions that it names among the other's?
    pub(super) fn names_no_more_than(&self, other: &Self) -> bool {
        self.versions.iter().all(|version| other.takes(version))
    }

    pub(super) fn agrees_on_versions(&self, other: &Self) -> bool {
        let only_v1 = [self, other].iter().any(|atom| ONLY_V1.contains(&&*atom.group));
        self.versions == other.versions || (only_v1 && self.takes("v1") && other.takes("v1"))
    }

    /// The versions that both name; `*` where both take any.
    pub(super) fn shared_versions<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a str> {
        match (self.versions.contains("*"), other.versions.contains("*")) {
            (true, _) => other.versions.iter().map(AsRef::as_ref).collect(),
            (_, true) => self.versions.iter().map(AsRef::as_ref).collect(),
            _ => self.versions.intersection(&other.versions).map(AsRef::as_ref).collect(),
        }
    }

    /// Is every word of it fit to stand in an expression?
    pub(super) fn is_plain(&self) -> bool {
        [&self.group, &self.resource].into_iter().chain(&self.versions).all(|word| super::conditions::plain(word))
    }

    pub(super) fn takes(&self, version: &str) -> bool {
        self.versions.contains("*") || self.versions.contains(version)
    }

    /// Resource and subresource; "" is none.
    pub(super) fn resource(&self) -> (&str, &str) {
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
pub(super) fn rules(atoms: &[Atom]) -> Vec<Value> {
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

//! Atom: a rule of one group and one resource, to be compared with others.

use std::collections::BTreeSet;

use crate::model::{Hook, Operation, Scope, builtin};

/// Groups whose resources every apiserver since 1.25 serves in v1 only: for them "*" and "v1" are the same.
const ONLY_V1: [&str; 6] = ["", "apps", "batch", "policy", "rbac.authorization.k8s.io", "scheduling.k8s.io"];

/// A rule of one group and one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Atom {
    /// API group; `*` is any.
    pub group: Box<str>,
    /// Resource, and its subresource behind a slash; `*` is any.
    pub resource: Box<str>,
    /// Scope, as written.
    pub scope: &'static str,
    /// API versions; `*` is any.
    pub versions: BTreeSet<Box<str>>,
    /// Operations, as written.
    pub operations: BTreeSet<&'static str>,
}

/// A hook's rules, taken apart.
pub fn atoms_of(hook: &Hook) -> Vec<Atom> {
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

impl Atom {
    /// Everything there is, in whatever version its client used.
    pub fn everything() -> Self {
        Self {
            group: "*".into(),
            resource: "*/*".into(),
            scope: Scope::Any.as_str(),
            versions: BTreeSet::from(["*".into()]),
            operations: Operation::ALL.map(Operation::as_str).into(),
        }
    }

    /// Is there a request that both see, and that each wants in another version?
    pub fn contradicts(&self, other: &Self) -> bool {
        !self.agrees_on_versions(other) && self.overlaps(other)
    }

    /// Is there a request that both see, in whatever version?
    pub fn overlaps(&self, other: &Self) -> bool {
        meet(&self.group, &other.group)
            && meet(self.resource().0, other.resource().0)
            && meet(self.resource().1, other.resource().1)
            && meet(self.scope, other.scope)
            && !self.operations.is_disjoint(&other.operations)
    }

    /// Do both mean the same request, in versions that overlap and are not the same, so that one in yet another version
    /// may be sent by each in a version that both take?
    pub fn may_be_sent_twice(&self, other: &Self) -> bool {
        let any = [self, other].iter().any(|atom| atom.versions.contains("*"));
        self.contradicts(other) && !any && !self.shared_versions(other).is_empty()
    }

    /// Do both see the same objects, each in another group? One of any group sees them in every group that is served.
    pub fn shares_objects_with(&self, other: &Self) -> bool {
        let groups_differ = |groups: &[&str; 2]| match (&*self.group, &*other.group) {
            ("*", named) | (named, "*") => groups.contains(&named) && !groups.contains(&builtin::UNSERVED_GROUP),
            (one, another) => groups.contains(&one) && groups.contains(&another),
        };
        self.group != other.group
            && !self.operations.is_disjoint(&other.operations)
            && meet(self.scope, other.scope)
            && builtin::SHARED.iter().any(|(resource, groups)| {
                groups_differ(groups) && [self, other].iter().all(|atom| within(resource, atom.resource().0))
            })
    }

    /// Does the other send what this one sees also as its client made it in another group, which this one's hooks do not
    /// take? `own` are all atoms of these hooks.
    pub fn is_unconverted_by(&self, other: &Self, own: &[Self]) -> bool {
        let takes_it_there = |atom: &Self| atom.shares_objects_with(self) && atom.is_within(other);
        self.shares_objects_with(other) && !own.iter().any(takes_it_there)
    }

    /// Does the other see whatever this one sees, in the same version?
    pub fn is_within(&self, other: &Self) -> bool {
        self.agrees_on_versions(other) && self.is_sent_by(other)
    }

    /// Does the other see whatever this one sees, in whatever version?
    pub fn is_sent_by(&self, other: &Self) -> bool {
        within(&self.group, &other.group)
            && within(self.resource().0, other.resource().0)
            && within(self.resource().1, other.resource().1)
            && within(self.scope, other.scope)
            && self.operations.is_subset(&other.operations)
    }

    /// One for each of its operations.
    pub fn by_operation(&self) -> impl Iterator<Item = Self> {
        self.operations.iter().map(|operation| Self { operations: BTreeSet::from([*operation]), ..self.clone() })
    }

    /// As one speaks of it: `CREATE of pods`.
    pub fn noun(&self) -> String {
        let operations: Vec<_> = self.operations.iter().copied().collect();
        let (operations, resource) = (operations.join(", "), &self.resource);
        match &*self.group {
            "" => format!("{operations} of {resource}"),
            "*" => format!("{operations} of {resource} in every group"),
            group => format!("{operations} of {resource}.{group}"),
        }
    }

    /// Are all versions that it names among the other's?
    pub fn names_no_more_than(&self, other: &Self) -> bool {
        self.versions.iter().all(|version| other.takes(version))
    }

    /// Do both take the same versions, as far as their groups have any choice?
    pub fn agrees_on_versions(&self, other: &Self) -> bool {
        let only_v1 = [self, other].iter().any(|atom| ONLY_V1.contains(&&*atom.group));
        self.versions == other.versions || (only_v1 && self.takes("v1") && other.takes("v1"))
    }

    /// The versions that both name; `*` where both take any.
    pub fn shared_versions<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a str> {
        match (self.versions.contains("*"), other.versions.contains("*")) {
            (true, _) => other.versions.iter().map(AsRef::as_ref).collect(),
            (_, true) => self.versions.iter().map(AsRef::as_ref).collect(),
            _ => self.versions.intersection(&other.versions).map(AsRef::as_ref).collect(),
        }
    }

    /// Every word of it that somebody wrote.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        [&self.group, &self.resource].into_iter().chain(&self.versions).map(AsRef::as_ref)
    }

    /// Does it name that version, or all?
    pub fn takes(&self, version: &str) -> bool {
        self.versions.contains("*") || self.versions.contains(version)
    }

    /// Resource and subresource; "" is none.
    pub fn resource(&self) -> (&str, &str) {
        self.resource.split_once('/').unwrap_or((&self.resource, ""))
    }
}

fn meet(one: &str, other: &str) -> bool {
    within(one, other) || other == "*" || one == "*"
}

fn within(one: &str, other: &str) -> bool {
    other == "*" || one == other
}

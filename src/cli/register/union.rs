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

use crate::model::{Hook, Operation};
pub(super) use crate::snapshot::coverage::{Atom, atoms_of};

/// Entries of a registration for hooks that share their failure policy and their selectors.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    /// Requests of each entry.
    pub(super) entries: Vec<Vec<Atom>>,
    /// Hooks of which two entries may send the same request.
    pub(super) twice: BTreeSet<Arc<str>>,
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
    let is_sent = |atom: &Atom, other: &Atom| other != atom && atom.is_within(other) && !apart(atom, other);
    let kept = all.iter().filter(|atom| !all.iter().any(|other| is_sent(atom, other)));
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

/// Two that contradict each other, and both of which some version satisfies: a request that one entry sends, the
/// other's hooks take as well. A request in a version that both name is left to one of the entries; in one that a hook
/// takes as it was made, Gatepost asks it only then ([`OtherVersions::AskedApart`](crate::review::OtherVersions)). The
/// rest is a request in a version that neither names: each entry may have it converted to one that both do.
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

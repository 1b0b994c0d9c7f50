//! Index: looks up rules by the words of a request.
//!
//! A rule is filed under a hash of its group, resource and subresource, each of them a word or "any". A rule with lists
//! is filed under each combination. A request looks up its three words once for every pattern of "any" that rules for
//! its operation and scope have: at most eight look-ups, in practice two or three. A byte of each entry has the
//! operations and scopes of the rule. Versions are not part of the key: a resource has few, and a rule for another
//! version may match the request, too.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::{SmallVec, smallvec};

use super::Ruled;
use gatepost_api::{MatchPolicy, Operation, Rule, RuleTarget, Scope, builtin};

/// Maximum number of keys of one rule, so that thousands of rules with long lists do not take gigabytes.
pub(super) const MAX_KEYS_PER_RULE: usize = 64;
/// An index is carried over if at most one entry in this many has changed.
const MAX_CHANGED_SHARE: usize = 8;

/// Parts of a key, in the order of the bits of a [`Pattern`]; `None` is "any".
pub(super) type Parts = [Option<u64>; 3];

/// Keys of one rule.
pub(super) type Keys = SmallVec<[Parts; 8]>;

/// The parts that are "any", one bit each.
type Pattern = usize;

/// An operation and a scope, one of eight. A set of kinds has one bit each.
type Kind = usize;

/// Index of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Number of keys, by kind and pattern.
    used: [[u32; 8]; 8],
    /// Rules by key, ascending. Consecutive indexes share them.
    filed: FxHashMap<u64, Arc<[FiledRule]>>,
}

/// A rule, and the set of its kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FiledRule {
    entry: u32,
    rule: u32,
    kinds: u8,
}

impl Index {
    /// Indexes every rule of every entry.
    pub(super) fn new<T: Ruled>(entries: &[Arc<T>]) -> Self {
        Self::within(entries, MAX_KEYS_PER_RULE)
    }

    /// Indexes every rule of every entry, each under at most `limit` keys.
    pub(super) fn within<T: Ruled>(entries: &[Arc<T>], limit: usize) -> Self {
        let mut index = Self::default();
        let mut all = Vec::new();
        for (number, entry) in (0..).zip(entries) {
            each_key(number, &**entry, limit, |key, pattern, candidate| {
                index.count(candidate, pattern, 1);
                all.push((key, candidate));
            });
        }
        all.sort_unstable();
        let same_key = |a: &(u64, FiledRule), b: &(u64, FiledRule)| a.0 == b.0;
        index.filed.reserve(all.chunk_by(same_key).count());
        for same in all.chunk_by(same_key) {
            index.filed.insert(same[0].0, same.iter().map(|(_, candidate)| *candidate).collect());
        }
        index
    }

    /// Returns [`Index::new`] of `entries`, made from this index of `former`. `None` if too much has changed.
    pub(super) fn carried_over<T: Ruled>(&self, former: &[Arc<T>], entries: &[Arc<T>]) -> Option<Self> {
        if former.len() != entries.len() {
            return None;
        }
        let pairs = (0..).zip(former.iter().zip(entries));
        let changed: Vec<(u32, _)> = pairs.filter(|(_, (before, now))| !Arc::ptr_eq(before, now)).collect();
        if changed.len() > entries.len().div_ceil(MAX_CHANGED_SHARE) {
            return None;
        }
        let mut index = self.clone();
        let mut touched: FxHashMap<u64, Vec<FiledRule>> = FxHashMap::default();
        for &(number, (before, now)) in &changed {
            each_key(number, &**before, MAX_KEYS_PER_RULE, |key, pattern, candidate| {
                index.count(candidate, pattern, -1);
                touched.entry(key).or_default();
            });
            each_key(number, &**now, MAX_KEYS_PER_RULE, |key, pattern, candidate| {
                index.count(candidate, pattern, 1);
                touched.entry(key).or_default().push(candidate);
            });
        }
        let is_changed = |number: u32| changed.binary_search_by_key(&number, |(number, _)| *number).is_ok();
        for (key, mut candidates) in touched {
            let others = index.filed.get(&key).map_or(&[][..], |before| before);
            candidates.extend(others.iter().filter(|candidate| !is_changed(candidate.entry)));
            candidates.sort_unstable();
            match candidates.is_empty() {
                true => index.filed.remove(&key),
                false => index.filed.insert(key, candidates.into()),
            };
        }
        Some(index)
    }

    fn count(&mut self, candidate: FiledRule, pattern: Pattern, more: i32) {
        for kind in (0..8).filter(|kind| candidate.kinds & (1 << kind) != 0) {
            let used = &mut self.used[kind][pattern];
            *used = used.saturating_add_signed(more);
        }
    }

    /// Calls `show` with the entry and rule of every rule that may match the target, whatever the version.
    pub(super) fn nominate(&self, target: &RuleTarget<'_>, mut show: impl FnMut(u32, u32)) {
        let kind = kind_of(target.operation, target.is_namespaced());
        let used = &self.used[kind];
        if *used == [0; 8] {
            return;
        }
        let words = [&*target.resource.group, &*target.resource.resource, target.sub_resource].map(hash_of);
        for pattern in (0..8).filter(|pattern| used[*pattern] > 0) {
            let mut part = 0;
            let parts = words.map(|word| {
                part += 1;
                (pattern & (1 << (part - 1)) == 0).then_some(word)
            });
            let Some(found) = self.filed.get(&key_of(&parts)) else { continue };
            for candidate in found.iter().filter(|candidate| candidate.kinds & (1 << kind) != 0) {
                show(candidate.entry, candidate.rule);
            }
        }
    }
}

/// Calls `show` once for each key of each rule of an entry.
fn each_key(number: u32, entry: &impl Ruled, limit: usize, mut show: impl FnMut(u64, Pattern, FiledRule)) {
    for (rule, written) in (0..).map_while(|rule| Some((rule, entry.rule(rule as usize)?))) {
        let candidate = FiledRule { entry: number, rule, kinds: kinds_of(written) };
        let mut all = keys(written, limit);
        if entry.match_policy() == MatchPolicy::Equivalent {
            elsewhere(written, &mut all);
        }
        for parts in all {
            show(key_of(&parts), pattern_of(&parts), candidate);
        }
    }
}

/// Adds the keys of a rule's objects in another group that shares them, so that a request needs no further look-ups: a
/// handful of keys at most, each for any subresource.
fn elsewhere(rule: &Rule, keys: &mut Keys) {
    let has = |list: &[Box<str>], wanted: &str| list.iter().any(|entry| **entry == *wanted);
    if has(&rule.api_groups, "*") {
        return;
    }
    let before = keys.len();
    for (resource, groups) in builtin::SHARED {
        let covers = |entry: &str| ["*", resource].contains(&entry.split('/').next().unwrap_or(entry));
        if !rule.resources.iter().any(|entry| covers(entry)) {
            continue;
        }
        for (one, other) in [(groups[0], groups[1]), (groups[1], groups[0])] {
            if has(&rule.api_groups, one) && !has(&rule.api_groups, other) {
                keys.push([Some(hash_of(other)), Some(hash_of(resource)), None]);
            }
        }
    }
    // Removes keys that are covered by a key with "any".
    let found_already = |parts: &Parts, keys: &[Parts]| {
        keys.iter().any(|key| key.iter().zip(parts).all(|(key, part)| key.is_none() || key == part))
    };
    let (filed, added) = keys.split_at(before);
    let added: SmallVec<[Parts; 8]> = added.iter().filter(|parts| !found_already(parts, filed)).copied().collect();
    keys.truncate(before);
    keys.extend(added);
    keys.sort_unstable();
    keys.dedup();
}

fn kind_of(operation: Operation, namespaced: bool) -> Kind {
    operation.index() * 2 + usize::from(namespaced)
}

/// Returns the operations and scopes of a rule as a set of kinds.
fn kinds_of(rule: &Rule) -> u8 {
    let scopes: &[bool] = match rule.scope {
        Scope::Any => &[false, true],
        Scope::Namespaced => &[true],
        Scope::Cluster => &[false],
    };
    let kinds = rule.operations.iter().flat_map(|operation| scopes.iter().map(|scope| kind_of(*operation, *scope)));
    kinds.fold(0, |kinds, kind| kinds | 1 << kind)
}

/// Returns every key of a rule, each once. If there are more than `limit`, the longest list becomes "any".
pub(super) fn keys(rule: &Rule, limit: usize) -> Keys {
    let word = |word: &str| (word != "*").then(|| hash_of(word));
    let entry = |entry: &str| {
        let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
        (word(resource), word(sub))
    };
    let mut groups: SmallVec<[_; 4]> = rule.api_groups.iter().map(|group| word(group)).collect();
    let mut resources: SmallVec<[_; 8]> = rule.resources.iter().map(|resource| entry(resource)).collect();
    while groups.len().saturating_mul(resources.len()) > limit {
        if resources.len() >= groups.len() { resources = smallvec![(None, None)] } else { groups = smallvec![None] }
    }
    let of = |group: Option<u64>| resources.iter().map(move |(resource, sub)| [group, *resource, *sub]);
    let mut keys: SmallVec<_> = groups.into_iter().flat_map(of).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn pattern_of(parts: &Parts) -> Pattern {
    parts.iter().enumerate().map(|(bit, part)| usize::from(part.is_none()) << bit).sum()
}

fn hash_of(word: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(word.as_bytes());
    hasher.finish()
}

fn key_of(parts: &Parts) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u8(pattern_of(parts) as u8);
    parts.iter().flatten().for_each(|part| hasher.write_u64(*part));
    hasher.finish()
}

//! Index: rules by their words, and the look-up of a request.
//!
//! A rule is filed under a hash of its group, resource and subresource, each of them a word or "any"; one that lists
//! several is filed under each combination. A request then looks up its own three words once for every pattern of "any"
//! that rules for its operation and scope have: at most eight look-ups, in practice two or three. A byte of each entry
//! holds the operations and scopes it is for. Versions are left out: a resource has few, and a rule that names another
//! one may mean the request all the same.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::{SmallVec, smallvec};

use gatepost_api::{Hook, MatchPolicy, Operation, Rule, RuleTarget, Scope, builtin};

/// The most combinations under which one rule is filed: thousands of rules that list much shall not take gigabytes.
pub(super) const MOST_KEYS: usize = 64;
/// An index is carried over while at most one hook in this many has changed.
const MAX_CHANGED_SHARE: usize = 8;

/// The three parts of a key, in the order of the bits of a [`Pattern`].
pub(super) type Parts = [Option<u64>; 3];

/// The keys of one rule.
pub(super) type Keys = SmallVec<[Parts; 8]>;

/// Which of the three parts are "any", one bit each.
type Pattern = usize;

/// An operation and a scope, one of eight; a set of them has one bit each.
type Kind = usize;

/// Index of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Number of keys that rules of each kind have in each pattern.
    used: [[u32; 8]; 8],
    /// Rules under each key, ascending. Shared with the indexes before and after.
    filed: FxHashMap<u64, Arc<[FiledRule]>>,
}

/// A rule, and which kinds it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FiledRule {
    hook: u32,
    rule: u32,
    kinds: u8,
}

impl Index {
    /// Files every rule of every hook.
    pub(super) fn new(hooks: &[Arc<Hook>]) -> Self {
        Self::within(hooks, MOST_KEYS)
    }

    /// The same, each rule under so many keys at most.
    pub(super) fn within(hooks: &[Arc<Hook>], limit: usize) -> Self {
        let mut index = Self::default();
        let mut all = Vec::new();
        for (number, hook) in (0..).zip(hooks) {
            entries(number, hook, limit, |key, pattern, candidate| {
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

    /// The same as [`Index::new`] of `hooks`, made from this one of `former`. `None` where more has changed than is
    /// worth it.
    pub(super) fn carried_over(&self, former: &[Arc<Hook>], hooks: &[Arc<Hook>]) -> Option<Self> {
        if former.len() != hooks.len() {
            return None;
        }
        let pairs = (0..).zip(former.iter().zip(hooks));
        let changed: Vec<(u32, _)> = pairs.filter(|(_, (before, now))| !Arc::ptr_eq(before, now)).collect();
        if changed.len() > hooks.len().div_ceil(MAX_CHANGED_SHARE) {
            return None;
        }
        let mut index = self.clone();
        let mut touched: FxHashMap<u64, Vec<FiledRule>> = FxHashMap::default();
        for &(number, (before, now)) in &changed {
            entries(number, before, MOST_KEYS, |key, pattern, candidate| {
                index.count(candidate, pattern, -1);
                touched.entry(key).or_default();
            });
            entries(number, now, MOST_KEYS, |key, pattern, candidate| {
                index.count(candidate, pattern, 1);
                touched.entry(key).or_default().push(candidate);
            });
        }
        let is_changed = |number: u32| changed.binary_search_by_key(&number, |(number, _)| *number).is_ok();
        for (key, mut candidates) in touched {
            let others = index.filed.get(&key).map_or(&[][..], |before| before);
            candidates.extend(others.iter().filter(|candidate| !is_changed(candidate.hook)));
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

    /// Shows every rule that may see this, in whatever version: hook and rule.
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
                show(candidate.hook, candidate.rule);
            }
        }
    }
}

/// Shows how each rule of a hook is filed: each under a key once.
fn entries(number: u32, hook: &Hook, limit: usize, mut show: impl FnMut(u64, Pattern, FiledRule)) {
    for (rule, written) in (0..).zip(&hook.rules) {
        let candidate = FiledRule { hook: number, rule, kinds: kinds_of(written) };
        let mut all = keys(written, limit);
        if hook.match_policy == MatchPolicy::Equivalent {
            elsewhere(written, &mut all);
        }
        for parts in all {
            show(key_of(&parts), pattern_of(&parts), candidate);
        }
    }
}

/// A rule that means objects which another group shares is also filed under what they are there, so that a request
/// looks itself up no oftener: a handful of keys at most, each for any subresource.
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
    // Where it is filed as "any" it is found so.
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

/// Operations and scopes of a rule, as bits.
fn kinds_of(rule: &Rule) -> u8 {
    let scopes: &[bool] = match rule.scope {
        Scope::Any => &[false, true],
        Scope::Namespaced => &[true],
        Scope::Cluster => &[false],
    };
    let kinds = rule.operations.iter().flat_map(|operation| scopes.iter().map(|scope| kind_of(*operation, *scope)));
    kinds.fold(0, |kinds, kind| kinds | 1 << kind)
}

/// Every combination under which a rule is filed, each once; where that is more than `limit`, its longest list becomes
/// "any".
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

//! Matcher: which hooks mean this request, at a cost that does not grow with the hooks that do not.
//!
//! Every rule is filed under a hash of its group, resource and subresource, each of them a word or "any"; a rule that
//! lists several is filed under each combination. A request then looks up its own three words once for every pattern of
//! "any" that rules for its operation and scope have: at most eight look-ups, in practice two or three. What is found
//! there says in a byte which operations and scopes it is for. Versions are left out: a resource has few, and a rule
//! that names another one may mean the request all the same.
//!
//! A look-up only nominates. [`Request::seen_by`] decides, so neither a hash collision nor a rule filed under "any" to
//! save room can make a wrong match.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::{SmallVec, smallvec};

use super::{
    exempt,
    matched::{HookSet, Matched, Request},
};
use crate::model::{Hook, Operation, Review, Rule, Scope, Target};

/// Entries that all rules together may take; what one rule may take follows from it.
const ROOM: usize = 1 << 20;
/// The most combinations under which one rule is filed, however few rules there are.
const MOST_KEYS: usize = 4_096;
/// The fewest that are always allowed, however many rules there are.
const FEWEST_KEYS: usize = 16;

/// The three parts of a key, in the order of the bits of a [`Pattern`].
type Parts = [Option<u64>; 3];

/// Which of the three parts are "any", one bit each.
type Pattern = u8;

/// An operation and a scope, one of eight; a set of them has one bit each.
type Kind = usize;
type Kinds = u8;

/// The compiled rules of all hooks.
#[derive(Debug)]
pub(super) struct Matcher {
    /// The patterns that rules for each operation and scope have, one bit each.
    patterns: [u8; 8],
    /// Where in `candidates` the rules of a key are.
    places: FxHashMap<u64, (u32, u32)>,
    /// Those of one key together and ascending.
    candidates: Vec<Candidate>,
}

/// A rule, and which operations and scopes it is for.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hook: u32,
    rule: u32,
    kinds: Kinds,
}

impl Matcher {
    /// Files every rule of every hook.
    pub(super) fn new(hooks: &[Arc<Hook>]) -> Self {
        let rules: usize = hooks.iter().map(|hook| hook.rules.len()).sum();
        Self::within(hooks, (ROOM / rules.max(1)).clamp(FEWEST_KEYS, MOST_KEYS))
    }

    /// The same, each rule under so many keys at most.
    fn within(hooks: &[Arc<Hook>], limit: usize) -> Self {
        let mut filed: Vec<(u64, u32, u32)> = Vec::new();
        let mut patterns = [0; 8];
        for (h, hook) in (0..).zip(hooks) {
            for (r, rule) in (0..).zip(&hook.rules) {
                let mut seen = 0;
                for parts in keys(rule, limit) {
                    seen |= 1 << pattern_of(&parts);
                    filed.push((key_of(&parts), h, r));
                }
                kinds_of(rule).for_each(|kind| patterns[kind] |= seen);
            }
        }
        filed.sort_unstable();
        filed.dedup();
        let same_key = |a: &(u64, u32, u32), b: &(u64, u32, u32)| a.0 == b.0;
        let mut matcher = Self {
            patterns,
            places: FxHashMap::with_capacity_and_hasher(filed.chunk_by(same_key).count(), Default::default()),
            candidates: Vec::with_capacity(filed.len()),
        };
        for filed in filed.chunk_by(same_key) {
            let start = matcher.candidates.len() as u32;
            matcher.candidates.extend(filed.iter().map(|&(_, hook, rule)| {
                let kinds = kinds_of(&hooks[hook as usize].rules[rule as usize]);
                Candidate { hook, rule, kinds: kinds.fold(0, |kinds, kind| kinds | 1 << kind) }
            }));
            matcher.places.insert(filed[0].0, (start, matcher.candidates.len() as u32));
        }
        matcher
    }

    /// Puts the hooks that mean this request into `out`, ascending, each once. Allocates nothing while `out` has room.
    pub(super) fn matching(&self, hooks: &[Arc<Hook>], review: &Review, out: &mut HookSet) {
        out.clear();
        let request = Request::of(review);
        if exempt::is_virtual(&request.made) || exempt::is_ours(&request.made) {
            return;
        }
        self.nominate(&request.made, |hook, rule| consider(hooks, &request, hook, rule, out));
        if let Some(sent) = &request.sent {
            self.nominate(sent, |hook, rule| consider(hooks, &request, hook, rule, out));
        }
        if exempt::is_admission_config(review) {
            out.retain(|matched| hooks[matched.hook as usize].sees_admission_config);
        }
        out.sort_unstable();
        out.dedup_by_key(|matched| matched.hook);
    }

    /// Shows every rule that may see this, in whatever version: hook and rule.
    fn nominate(&self, target: &Target<'_>, mut show: impl FnMut(u32, u32)) {
        let kind = kind_of(target.operation, target.is_namespaced());
        let patterns = self.patterns[kind];
        if patterns == 0 {
            return;
        }
        let words = [&*target.resource.group, &*target.resource.resource, target.sub_resource].map(hash_of);
        for pattern in (0..8).filter(|pattern| patterns & (1 << pattern) != 0) {
            let mut part = 0;
            let parts = words.map(|word| {
                part += 1;
                (pattern & (1 << (part - 1)) == 0).then_some(word)
            });
            let Some((start, end)) = self.places.get(&key_of(&parts)) else { continue };
            let found = &self.candidates[*start as usize..*end as usize];
            for candidate in found.iter().filter(|candidate| candidate.kinds & (1 << kind) != 0) {
                show(candidate.hook, candidate.rule);
            }
        }
    }
}

/// Adds the hook where its rule sees the request and nothing better is known of it yet.
fn consider(hooks: &[Arc<Hook>], request: &Request<'_>, hook: u32, rule: u32, out: &mut HookSet) {
    /// So many are looked through for the hook; among more, it may stand twice until the end.
    const FEW: usize = 32;
    let few = out.len().saturating_sub(FEW);
    let known = out[few..].iter_mut().find(|matched| matched.hook == hook);
    if known.as_ref().is_some_and(|matched| matched.how == super::How::AsMade) {
        return;
    }
    let asked = &hooks[hook as usize];
    let Some(how) = request.seen_by(asked.match_policy, rule, &asked.rules[rule as usize]) else { return };
    match known {
        Some(matched) => matched.how = matched.how.min(how),
        None => out.push(Matched { hook, how }),
    }
}

fn kind_of(operation: Operation, namespaced: bool) -> Kind {
    operation.index() * 2 + usize::from(namespaced)
}

/// What a rule is for.
fn kinds_of(rule: &Rule) -> impl Iterator<Item = Kind> {
    let scopes: &[bool] = match rule.scope {
        Scope::Any => &[false, true],
        Scope::Namespaced => &[true],
        Scope::Cluster => &[false],
    };
    rule.operations.iter().flat_map(|operation| scopes.iter().map(|scope| kind_of(*operation, *scope)))
}

/// Every combination under which a rule is filed; where that is more than `limit`, its longest list becomes "any".
fn keys(rule: &Rule, limit: usize) -> impl Iterator<Item = Parts> {
    let word = |word: &str| (word != "*").then(|| hash_of(word));
    let mut groups: SmallVec<[_; 4]> = rule.api_groups.iter().map(|group| word(group)).collect();
    let entry = |entry: &str| {
        let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
        (word(resource), word(sub))
    };
    let mut resources: SmallVec<[_; 8]> = rule.resources.iter().map(|resource| entry(resource)).collect();
    while groups.len().saturating_mul(resources.len()) > limit {
        if resources.len() >= groups.len() { resources = smallvec![(None, None)] } else { groups = smallvec![None] }
    }
    groups.into_iter().flat_map(move |group| {
        let resources = resources.clone();
        resources.into_iter().map(move |(resource, sub)| [group, resource, sub])
    })
}

fn pattern_of(parts: &Parts) -> Pattern {
    parts.iter().enumerate().map(|(bit, part)| u8::from(part.is_none()) << bit).sum()
}

fn hash_of(word: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(word.as_bytes());
    hasher.finish()
}

fn key_of(parts: &Parts) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u8(pattern_of(parts));
    parts.iter().flatten().for_each(|part| hasher.write_u64(*part));
    hasher.finish()
}

#[cfg(test)]
mod tests;

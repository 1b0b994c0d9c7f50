//! Matcher: which hooks have a rule for this request, at a cost that does not grow with the hooks that have none.
//!
//! There are eight tables, one for each operation and scope. A table files every rule under a hash of its group,
//! version, resource and subresource, each of them a word or "any"; a rule that lists several is filed under each
//! combination. A request then looks up its own four words once for every pattern of "any" that occurs in the table:
//! at most sixteen look-ups, in practice two or three.
//!
//! A look-up only nominates. [`Rule::matches`] decides, so neither a hash collision nor a rule filed under "any" to
//! save room can make a wrong match.

use std::{hash::Hasher as _, sync::Arc};

use rustc_hash::{FxHashMap, FxHasher};

use super::HookSet;
use crate::model::{Hook, Operation, Review, Rule, Scope, hook::is_namespaced};

/// Entries that all rules together may take in one table; what one rule may take follows from it.
const ROOM: usize = 1 << 20;
/// The most combinations under which one rule is filed, however few rules there are.
const MOST_KEYS: usize = 4_096;
/// The fewest that are always allowed, however many rules there are.
const FEWEST_KEYS: usize = 16;

/// The four parts of a key, in the order of the bits of a [`Pattern`].
type Parts = [Option<u64>; 4];

/// Which of the four parts are "any", one bit each.
type Pattern = u8;

/// The compiled rules of all hooks.
#[derive(Debug)]
pub(super) struct Matcher {
    tables: [Table; 8],
}

/// The rules for one operation and scope.
#[derive(Debug, Default)]
struct Table {
    /// The patterns that occur.
    patterns: Vec<Pattern>,
    /// Where in `candidates` the rules of a key are.
    places: FxHashMap<u64, (u32, u32)>,
    /// Hook and rule, those of one key together and ascending.
    candidates: Vec<(u32, u32)>,
}

impl Matcher {
    /// Files every rule of every hook.
    pub(super) fn new(hooks: &[Arc<Hook>]) -> Self {
        let rules: usize = hooks.iter().map(|hook| hook.rules.len()).sum();
        let limit = (ROOM / rules.max(1)).clamp(FEWEST_KEYS, MOST_KEYS);
        let mut filed: [Vec<(u64, u32, u32)>; 8] = Default::default();
        let mut patterns = [0u16; 8];
        for (h, hook) in (0..).zip(hooks) {
            for (r, rule) in (0..).zip(&hook.rules) {
                let keys = keys(rule, limit);
                for table in tables_of(rule) {
                    for parts in &keys {
                        patterns[table] |= 1 << pattern_of(parts);
                        filed[table].push((key_of(parts), h, r));
                    }
                }
            }
        }
        let mut patterns = patterns.into_iter();
        Self { tables: filed.map(|filed| Table::new(filed, patterns.next().unwrap_or_default())) }
    }

    /// Puts the indices of the hooks with a matching rule into `out`, ascending, each once. Allocates nothing while
    /// `out` has room.
    pub(super) fn matching(&self, hooks: &[Arc<Hook>], review: &Review, out: &mut HookSet) {
        out.clear();
        let table = &self.tables[table_index(review.operation, is_namespaced(review))];
        if table.patterns.is_empty() {
            return;
        }
        let gvr = &review.resource;
        let words: [&str; 4] = [&gvr.group, &gvr.version, &gvr.resource, &review.sub_resource];
        let words = words.map(hash_of);
        for pattern in &table.patterns {
            let mut part = 0;
            let parts = words.map(|word| {
                part += 1;
                (pattern & (1 << (part - 1)) == 0).then_some(word)
            });
            let Some((start, end)) = table.places.get(&key_of(&parts)) else { continue };
            for &(hook, rule) in &table.candidates[*start as usize..*end as usize] {
                if out.last() != Some(&hook) && hooks[hook as usize].rules[rule as usize].matches(review) {
                    out.push(hook);
                }
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}

impl Table {
    fn new(mut filed: Vec<(u64, u32, u32)>, patterns: u16) -> Self {
        filed.sort_unstable();
        filed.dedup();
        let mut table = Self {
            patterns: (0..16).filter(|pattern| patterns & (1 << pattern) != 0).collect(),
            places: FxHashMap::default(),
            candidates: Vec::with_capacity(filed.len()),
        };
        for same_key in filed.chunk_by(|a, b| a.0 == b.0) {
            let start = table.candidates.len() as u32;
            table.candidates.extend(same_key.iter().map(|(_, hook, rule)| (*hook, *rule)));
            table.places.insert(same_key[0].0, (start, table.candidates.len() as u32));
        }
        table
    }
}

fn table_index(operation: Operation, namespaced: bool) -> usize {
    operation.index() * 2 + usize::from(namespaced)
}

/// The tables in which a rule stands.
fn tables_of(rule: &Rule) -> impl Iterator<Item = usize> {
    let scopes: &[bool] = match rule.scope {
        Scope::Any => &[false, true],
        Scope::Namespaced => &[true],
        Scope::Cluster => &[false],
    };
    rule.operations.iter().flat_map(|operation| scopes.iter().map(|scope| table_index(*operation, *scope)))
}

/// Every combination under which a rule is filed; where that is more than `limit`, its longest list becomes "any".
fn keys(rule: &Rule, limit: usize) -> Vec<Parts> {
    let word = |word: &str| (word != "*").then(|| hash_of(word));
    let mut groups: Vec<_> = rule.api_groups.iter().map(|group| word(group)).collect();
    let mut versions: Vec<_> = rule.api_versions.iter().map(|version| word(version)).collect();
    let mut resources: Vec<_> = rule
        .resources
        .iter()
        .map(|entry| {
            let (resource, sub) = entry.split_once('/').unwrap_or((entry, ""));
            (word(resource), word(sub))
        })
        .collect();
    loop {
        let lengths = [groups.len(), versions.len(), resources.len()];
        if lengths.iter().fold(1usize, |product, length| product.saturating_mul(*length)) <= limit {
            break;
        }
        match lengths.iter().max() {
            longest if longest == Some(&lengths[2]) => resources = vec![(None, None)],
            longest if longest == Some(&lengths[1]) => versions = vec![None],
            _ => groups = vec![None],
        }
    }
    let mut keys = Vec::with_capacity(groups.len() * versions.len() * resources.len());
    for group in &groups {
        for version in &versions {
            keys.extend(resources.iter().map(|(resource, sub)| [*group, *version, *resource, *sub]));
        }
    }
    keys
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

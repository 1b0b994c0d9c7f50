//! Canaries: hooks and policies that are to replace others, each with the one that it is to replace.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{Note, Origin, Placed, document::problem::quoted};
use gatepost_api::{Canary, Hook, HookType, MatchPolicy, Rule};
use gatepost_policy::{Definition, Policy};

/// A hook or policy and the one that it is to replace.
#[derive(Debug)]
pub struct CanaryPair {
    /// Name of the canary.
    pub name: Arc<str>,
    /// Type of both.
    pub hook_type: HookType,
    /// Share of the canary, and name of the other.
    pub canary: Canary,
    /// Index of the canary's hook, or of its policy that enforces.
    pub index: usize,
    /// Index of the other.
    pub replaced: usize,
}

/// The pairs of hooks, or those of policies.
#[derive(Debug, Default)]
pub struct Canaries {
    pairs: Vec<CanaryPair>,
    /// Index of the pair of each name, indexed by [`HookType`]. True for the name of a canary.
    sides: [HashMap<Arc<str>, (usize, bool)>; 2],
}

impl Canaries {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns every pair, in order of the canaries.
    pub fn pairs(&self) -> &[CanaryPair] {
        &self.pairs
    }

    /// Returns the index of the pair that this hook or policy is of, and whether it is the canary.
    pub fn side(&self, hook_type: HookType, name: &str) -> Option<(usize, bool)> {
        self.sides[hook_type as usize].get(name).copied()
    }

    /// Returns the pair whose canary this hook or policy is.
    pub fn canary(&self, hook_type: HookType, name: &str) -> Option<&CanaryPair> {
        let (pair, _) = self.side(hook_type, name).filter(|(_, is_canary)| *is_canary)?;
        self.pairs.get(pair)
    }

    /// Pairs the hooks. Adds a note on each canary. `mutating`: numbers of the mutating hooks, each with the number of
    /// its segment.
    pub(crate) fn of_hooks(
        hooks: &[Arc<Hook>],
        origins: &[Arc<Origin>],
        mutating: &[(u32, u32)],
        notes: &mut Vec<Note>,
    ) -> Self {
        let segments: HashMap<u32, u32> = mutating.iter().copied().collect();
        let all = hooks.iter().zip(origins).enumerate().map(|(index, (hook, origin))| Entry {
            what: "hook",
            index,
            name: &hook.name,
            hook_type: hook.hook_type,
            canary: hook.canary.as_ref(),
            denies: hook.enforcement.denies(),
            is_transactional: hook.is_transactional,
            segment: segments.get(&(index as u32)).copied(),
            match_policy: hook.match_policy,
            rules: hook.rules.iter().collect(),
            place: (&origin.file, &origin.path),
        });
        Self::of(all.collect(), notes)
    }

    /// Pairs the policies. Adds a note on each canary.
    pub(crate) fn of_policies(policies: &[Arc<Policy>], places: &[Placed<Definition>], notes: &mut Vec<Note>) -> Self {
        // A policy has an entry for each enforcement of its bindings. Those that do not enforce decide every request.
        let enforcing = policies.iter().zip(places).enumerate().filter(|(_, (policy, _))| policy.enforcement.denies());
        let all = enforcing.map(|(index, (policy, place))| Entry {
            what: "policy",
            index,
            name: &policy.definition.name,
            hook_type: policy.definition.hook_type,
            canary: policy.definition.canary.as_ref(),
            denies: policy.definition.hook_type == HookType::Mutating
                || policy.bindings.iter().any(|binding| binding.actions.deny),
            is_transactional: false,
            segment: None,
            match_policy: policy.definition.constraints.match_policy,
            rules: policy.definition.constraints.rules.iter().map(|named| &named.rule).collect(),
            place: (&place.file, &place.path),
        });
        Self::of(all.collect(), notes)
    }

    fn of(entries: Vec<Entry<'_>>, notes: &mut Vec<Note>) -> Self {
        let mut canaries = Self::default();
        if entries.iter().all(|entry| entry.canary.is_none()) {
            return canaries;
        }
        let mut by_name = HashMap::<(HookType, &str), Vec<&Entry<'_>>>::new();
        for entry in &entries {
            by_name.entry((entry.hook_type, entry.name)).or_default().push(entry);
        }
        for entry in &entries {
            let Some(canary) = entry.canary else { continue };
            let replaces = quoted(&canary.replaces);
            let named = by_name.get(&(entry.hook_type, &*canary.replaces)).map_or(&[][..], |all| all);
            let sides = &mut canaries.sides[entry.hook_type as usize];
            let unpaired = match named {
                [] if entry.what == "policy" => {
                    Some(format!("no policy of its type that enforces is called {replaces}"))
                }
                [] => Some(format!("no hook of its type is called {replaces}")),
                [_] if by_name[&(entry.hook_type, &**entry.name)].len() > 1 => {
                    Some(format!("several are called {}", quoted(entry.name)))
                }
                [other] if other.canary.is_some() => Some(format!("{replaces} is a canary itself")),
                [other] if !other.denies => Some(format!("{replaces} denies nothing")),
                [_] if !entry.denies => Some(format!("{} denies nothing", quoted(entry.name))),
                [other] if other.is_transactional || entry.is_transactional => {
                    Some("hooks that keep accounts cannot share requests".to_owned())
                }
                // Another call, with another UID, is made for each segment and for each version that hooks want.
                [other] if other.segment != entry.segment => {
                    Some(format!("{replaces} is registered apart from it (isolate)"))
                }
                [other] if !other.wants_versions_as(entry) => Some(format!(
                    "its rules name other groups or versions than those of {replaces}, or have another matchPolicy"
                )),
                [other] if sides.contains_key(other.name) => Some(format!("{replaces} has another canary")),
                [other] => {
                    let pair = canaries.pairs.len();
                    sides.insert(Arc::clone(entry.name), (pair, true));
                    sides.insert(Arc::clone(other.name), (pair, false));
                    canaries.pairs.push(CanaryPair {
                        name: Arc::clone(entry.name),
                        hook_type: entry.hook_type,
                        canary: canary.clone(),
                        index: entry.index,
                        replaced: other.index,
                    });
                    None
                }
                _ => Some(format!("several are called {replaces}")),
            };
            notes.push(entry.note(canary, unpaired));
        }
        canaries
    }
}

/// A hook or policy that may be one of a pair.
struct Entry<'a> {
    what: &'static str,
    index: usize,
    name: &'a Arc<str>,
    hook_type: HookType,
    canary: Option<&'a Canary>,
    denies: bool,
    is_transactional: bool,
    segment: Option<u32>,
    match_policy: MatchPolicy,
    rules: Vec<&'a Rule>,
    place: (&'a str, &'a str),
}

impl Entry<'_> {
    /// Returns true if both want each request in the same version, whatever it is about.
    fn wants_versions_as(&self, other: &Self) -> bool {
        match (self.match_policy, other.match_policy) {
            // Each is called in the version of the request.
            (MatchPolicy::Exact, MatchPolicy::Exact) => true,
            // A group that only one of them names may have the same objects as one of the other's.
            (MatchPolicy::Equivalent, MatchPolicy::Equivalent) => match (self.versions(), other.versions()) {
                (Some(own), Some(others)) => own == others,
                _ => self.rules == other.rules,
            },
            _ => false,
        }
    }

    /// Returns the versions of each group in the rules; `None` if the rules name several sets of versions of one group.
    fn versions(&self) -> Option<BTreeMap<&str, BTreeSet<&str>>> {
        let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
        for rule in &self.rules {
            let of_rule: BTreeSet<&str> = rule.api_versions.iter().map(|version| &**version).collect();
            for group in &rule.api_groups {
                if versions.insert(group, of_rule.clone()).is_some_and(|former| former != of_rule) {
                    return None;
                }
            }
        }
        Some(versions)
    }

    /// Describes the canary. `unpaired`: the reason why it replaces nothing.
    fn note(&self, canary: &Canary, unpaired: Option<String>) -> Note {
        let what = format!("{} {}", self.what, quoted(self.name));
        let (what, why, fix) = match unpaired {
            Some(reason) => (
                format!("{what} is a canary of nothing: {reason}"),
                "so it decides every request",
                "correct the name, or remove canary where it has replaced the other",
            ),
            None => (
                format!("{what} is a canary: it decides {canary}"),
                "so each of the two decides only a share of the requests, and the others in shadow",
                "remove the other and canary once it decides as it should",
            ),
        };
        let (file, path) = self.place;
        Note { file: file.to_owned(), path: path.to_owned(), what, why: why.to_owned(), fix: fix.to_owned() }
    }
}

//! Relaxation: a check that one snapshot enforces, and a later snapshot enforces less or not at all.
//!
//! A truncated file may be valid and have less content: fewer hooks, fewer rules, a bypass without a list that limited
//! it. Such a change may also be intended, which a reader cannot know. So every change counts that might exempt a
//! request which was reviewed before, even if a closer analysis would show that it does not.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use crate::{Canaries, CanaryPair, Snapshot};
use gatepost_api::{
    Bypass, BypassEffect, FailurePolicy, Hook, HookType, Initializer, MatchPolicy, OnProbeFailure, Protocol, Rule,
    Scope, Selector,
};
use gatepost_policy::Policy;

/// One thing that is enforced less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relaxation {
    /// A hook is gone.
    Gone(Box<str>),
    /// A hook matches fewer requests, or its answer has less effect.
    Narrowed(Box<str>),
    /// An initializer is gone, acts on fewer objects, or need not act.
    Initializer(Box<str>),
    /// A policy is gone or has changed, or a binding of it.
    Policy(Box<str>),
    /// A bypass is new, or applies to more requests.
    Bypass(Box<str>),
    /// The labels of a namespace, which selectors compare, have changed.
    Namespace(Box<str>),
}

impl fmt::Display for Relaxation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(hook) => write!(f, "hook {hook} is gone"),
            Self::Narrowed(hook) => write!(f, "hook {hook} sees fewer requests or its answer counts less"),
            Self::Initializer(name) => write!(f, "initializer {name} is gone, acts on fewer objects or need not act"),
            Self::Policy(name) => write!(f, "policy {name} or a binding of it is gone or has changed"),
            Self::Bypass(bypass) => write!(f, "bypass {bypass} applies to more requests"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace} has other labels"),
        }
    }
}

impl Snapshot {
    /// Returns the checks that `former` enforces and this snapshot enforces less or not at all. Empty if this snapshot
    /// only adds and tightens checks, or changes where and how hooks are called.
    pub fn relaxes(&self, former: &Self) -> Vec<Relaxation> {
        let mut found = Vec::new();
        let hooks: HashMap<&str, u32> = (0..).zip(&self.hooks).map(|(index, hook)| (&*hook.id, index)).collect();
        for (index, old) in (0..).zip(&former.hooks) {
            match hooks.get(&*old.id) {
                None => found.push(Relaxation::Gone(Box::from(&*old.name))),
                Some(new) if self.narrows(*new, former, index) => {
                    found.push(Relaxation::Narrowed(Box::from(&*old.name)));
                }
                Some(_) => {}
            }
        }
        for old in &former.initializers {
            let new = self.initializers_of(&old.api_group, &old.resource);
            let new = |name: &str| new?.initializers.iter().find(|new| *new.name == *name);
            let narrowed = |old: &&Initializer| new(&old.name).is_none_or(|new| initializer_narrows(old, new));
            let narrowed = old.initializers.iter().filter(narrowed);
            found.extend(narrowed.map(|one| Relaxation::Initializer(Box::from(&*one.name))));
        }
        let policies: HashMap<_, _> = self
            .policies
            .iter()
            .map(|policy| ((policy.definition.hook_type, &*policy.definition.name, policy.enforcement), policy))
            .collect();
        let is_kept = |old: &Policy| {
            let new = policies.get(&(old.definition.hook_type, &*old.definition.name, old.enforcement));
            // Only an unchanged file keeps its definition. What an expression decides cannot be compared.
            new.is_some_and(|new| {
                Arc::ptr_eq(&new.definition, &old.definition)
                    && old.bindings.iter().all(|binding| new.bindings.contains(binding))
            })
        };
        let relaxed = former.policies.iter().filter(|old| !is_kept(old));
        found.extend(relaxed.map(|old| Relaxation::Policy(Box::from(&*old.definition.name))));
        let stood: HashSet<_> = former.hooks.iter().map(|hook| (hook.hook_type, &*hook.name)).collect();
        let shared = newly_shared(&self.hook_canaries, &former.hook_canaries, &stood);
        found.extend(shared.map(|name| Relaxation::Narrowed(name.into())));
        let definitions = former.policies.iter().map(|policy| &policy.definition);
        let stood: HashSet<_> = definitions.map(|definition| (definition.hook_type, &*definition.name)).collect();
        let shared = newly_shared(&self.policy_canaries, &former.policy_canaries, &stood);
        found.extend(shared.map(|name| Relaxation::Policy(name.into())));
        let bypasses: HashMap<&str, &Bypass> =
            former.bypasses.iter().map(|bypass| (&*bypass.name, &**bypass)).collect();
        for new in &self.bypasses {
            if !bypasses.get(&*new.name).is_some_and(|old| bypass_within(old, new)) {
                found.push(Relaxation::Bypass(Box::from(&*new.name)));
            }
        }
        // Labels matter only to selectors. A namespace that is gone relaxes nothing: requests in an unknown namespace
        // are rejected.
        if former.hooks.iter().any(|hook| !hook.namespace_selector.is_empty()) {
            let other = |(name, labels): &(&str, _)| former.namespace_labels(name) != Some(*labels);
            found.extend(self.namespaces().filter(other).map(|(name, _)| Relaxation::Namespace(name.into())));
        }
        found
    }

    /// Returns true if hook number `new` enforces less than number `old` of `former`.
    fn narrows(&self, new: u32, former: &Self, old: u32) -> bool {
        // Time after which an unproven hook is enforced; `None` if never.
        let enforced = |snapshot: &Self, index| {
            let rollout = snapshot.origin(index).map(|origin| origin.rollout)?;
            (rollout.on_probe_failure == OnProbeFailure::Enforce).then_some(rollout.probe_within)
        };
        if enforced(former, old).is_some_and(|before| enforced(self, new).is_none_or(|now| now > before)) {
            return true;
        }
        // A new condition may exclude requests that were reviewed before.
        let conditions = |snapshot: &Self, index| snapshot.origin(index).map(|origin| Arc::clone(&origin.conditions));
        let (now, before) = (conditions(self, new).unwrap_or_default(), conditions(former, old).unwrap_or_default());
        if now.iter().any(|new| !before.iter().any(|old| old.expression == new.expression)) {
            return true;
        }
        match (self.hooks.get(new as usize), former.hooks.get(old as usize)) {
            (Some(new), Some(old)) => !Arc::ptr_eq(new, old) && hook_narrows(old, new),
            _ => true,
        }
    }
}

/// Returns the names of those that a canary is to replace, where one of the two stood before, without this canary: each
/// now decides a smaller share of the requests.
fn newly_shared<'a>(
    canaries: &'a Canaries,
    former: &Canaries,
    stood: &HashSet<(HookType, &str)>,
) -> impl Iterator<Item = &'a str> {
    let is_known =
        |pair: &CanaryPair| former.canary(pair.hook_type, &pair.name).map(|pair| &pair.canary) == Some(&pair.canary);
    canaries
        .pairs()
        .iter()
        .filter(move |pair| {
            let stood = |name: &str| stood.contains(&(pair.hook_type, name));
            !is_known(pair) && (stood(&pair.name) || stood(&pair.canary.replaces))
        })
        .map(|pair| &*pair.canary.replaces)
}

fn hook_narrows(old: &Hook, new: &Hook) -> bool {
    let policy = |hook: &Hook| hook.failure_policy == FailurePolicy::Ignore;
    new.enforcement > old.enforcement
        || (old.match_policy == MatchPolicy::Equivalent && new.match_policy == MatchPolicy::Exact)
        || (policy(new) && (!policy(old) || new.timeout < old.timeout))
        || is_cut(&old.protocol, &new.protocol)
        || !selects_all_of(&new.namespace_selector, &old.namespace_selector)
        || !selects_all_of(&new.object_selector, &old.object_selector)
        || !covered(&old.rules, &new.rules)
}

fn initializer_narrows(old: &Initializer, new: &Initializer) -> bool {
    (old.failure_policy != FailurePolicy::Ignore && new.failure_policy == FailurePolicy::Ignore)
        || (old.acts_in_flight() && !new.acts_in_flight())
        || !selects_all_of(&new.namespace_selector, &old.namespace_selector)
        || !selects_all_of(&new.object_selector, &old.object_selector)
}

/// Returns true if the path is a prefix of the old one. The server at that path may allow everything; a new endpoint
/// would be probed first.
fn is_cut(old: &Protocol, new: &Protocol) -> bool {
    match (old, new) {
        (Protocol::Http { path: old, .. }, Protocol::Http { path: new, .. }) => {
            new.len() < old.len() && old.starts_with(&**new)
        }
        _ => false,
    }
}

/// Maximum number of pairs to compare. Longer lists count as different: a wait for a second read costs less.
const MAX_COMPARED_PAIRS: usize = 1 << 16;

/// Returns true if every requirement of `new` is in `old`: fewer requirements select more.
fn selects_all_of(new: &Selector, old: &Selector) -> bool {
    new == old
        || new.0.len() * old.0.len() <= MAX_COMPARED_PAIRS
            && new.0.iter().all(|requirement| old.0.contains(requirement))
}

/// Returns true if each of these rules is within one in `by`.
fn covered(rules: &[Rule], by: &[Rule]) -> bool {
    // Most lists are unchanged or have grown, so one pass over both in order finds all.
    let mut others = by.iter();
    rules.iter().all(|rule| others.any(|wider| rule_within(wider, rule)))
        || rules.len() * by.len() <= MAX_COMPARED_PAIRS
            && rules.iter().all(|rule| by.iter().any(|wider| rule_within(wider, rule)))
}

fn rule_within(wider: &Rule, rule: &Rule) -> bool {
    rule.operations.iter().all(|operation| wider.operations.contains(operation))
        && listed_within(&wider.api_groups, &rule.api_groups, "*")
        && listed_within(&wider.api_versions, &rule.api_versions, "*")
        && listed_within(&wider.resources, &rule.resources, "*/*")
        && (wider.scope == Scope::Any || wider.scope == rule.scope)
}

fn listed_within(wider: &[Box<str>], list: &[Box<str>], all: &str) -> bool {
    wider.iter().any(|entry| **entry == *all) || subset(wider, list)
}

/// Returns true if all entries of `list` are in `wider`.
fn subset(wider: &[Box<str>], list: &[Box<str>]) -> bool {
    const MAX_PAIRWISE_WORDS: usize = 64;
    if list.len() <= MAX_PAIRWISE_WORDS {
        return list.iter().all(|entry| wider.contains(entry));
    }
    let wider: HashSet<&str> = wider.iter().map(|entry| &**entry).collect();
    list.iter().all(|entry| wider.contains(&**entry))
}

/// Returns true if `new` exempts no request that `old` does not. An empty list of a bypass matches everything.
fn bypass_within(old: &Bypass, new: &Bypass) -> bool {
    let within = |old: &[Box<str>], new: &[Box<str>]| old.is_empty() || !new.is_empty() && subset(old, new);
    let anybody = |bypass: &Bypass| bypass.who.users.is_empty() && bypass.who.groups.is_empty();
    let whose = anybody(old)
        || !anybody(new) && subset(&old.who.users, &new.who.users) && subset(&old.who.groups, &new.who.groups);
    (old.effect == new.effect || old.effect == BypassEffect::Skip)
        && within(&old.hooks, &new.hooks)
        && within(&old.namespaces, &new.namespaces)
        && whose
        && (old.resources.is_empty() || !new.resources.is_empty() && covered(&new.resources, &old.resources))
}

#[cfg(test)]
mod tests;

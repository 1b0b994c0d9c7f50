//! RuleIndex: the requests with which Gatepost may do more than allow them, as rules that a plugin looks up before it
//! asks.
//!
//! A request outside the index has the verdict "allowed" without a patch, a warning or a note about a bypass, whatever
//! its objects and its user are. So the index holds the rules of all hooks, also of those that wait for a probe, of the
//! resources with initializers, of the bypass rules, and of Gatepost's own configuration. Selectors, conditions, users
//! and groups are left out, which only makes it larger. Where the rules are too many, it holds every request.
//!
//! Each rule also says whether what reads the objects of its requests takes them in protobuf, so that a plugin may send
//! them so.
//!
//! Rules are compared with the resource of the client's request alone. A hook with `matchPolicy: Equivalent` has rules
//! for every version, and for the other group of a resource that is served in two, exactly as
//! [`Rule::matches_equivalent`] has it when no served versions are known.

use std::collections::{BTreeMap, BTreeSet};

use super::{CoverageSubject, requirements};
use crate::Snapshot;
use gatepost_api::{Bypass, HookType, MatchPolicy, Operation, Rule, Scope, builtin, exempt};

/// Maximum number of pairs of a group and a resource in the rules of one phase.
pub const MAX_INDEX_RESOURCES: usize = 4096;
/// Maximum length of all texts in the rules of one phase.
pub const MAX_INDEX_TEXT: usize = 128 << 10;

/// Index of both phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleIndex {
    /// Rules of the mutating phase.
    pub mutating: PhaseRules,
    /// Rules of the validating phase.
    pub validating: PhaseRules,
}

/// Requests that need a review in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseRules {
    /// Every request.
    All,
    /// Requests that one of these rules matches, in a fixed order.
    Rules(Vec<IndexRule>),
}

/// A rule of the index. All fields must match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRule {
    /// API groups; `*` is any.
    pub groups: Vec<Box<str>>,
    /// Resources, with their subresources after a slash.
    pub resources: Vec<Box<str>>,
    /// API versions; `*` is any.
    pub versions: Vec<Box<str>>,
    /// Operations.
    pub operations: Vec<&'static str>,
    /// Scope.
    pub scope: &'static str,
    /// Names of namespaces; any, or none, if empty.
    pub namespaces: Vec<Box<str>>,
    /// True if objects may come in protobuf. False if they are read in JSON, or might be.
    pub protobuf_objects: bool,
}

impl RuleIndex {
    /// Returns the index of a configuration.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut phases = [PhaseUnion::default(), PhaseUnion::default()];
        for phase in &mut phases {
            phase.add_own_configuration();
            snapshot.bypasses().iter().for_each(|bypass| phase.add_bypass(bypass));
        }
        let [mut mutating, mut validating] = phases;
        // Also resources whose initializers only have a name: the list that a client writes is checked.
        for one in requirements(snapshot, |_| true) {
            let phase = match one.hook_type() {
                HookType::Mutating => &mut mutating,
                HookType::Validating => &mut validating,
            };
            let equivalent = one.hook.match_policy == MatchPolicy::Equivalent;
            let protobuf_objects = match one.subject {
                CoverageSubject::Hook(index) => snapshot.takes_protobuf(index),
                CoverageSubject::Initializers | CoverageSubject::Policy => false,
            };
            one.hook.rules.iter().for_each(|rule| phase.add(rule, equivalent, &[], protobuf_objects));
        }
        Self { mutating: mutating.into_rules(), validating: validating.into_rules() }
    }
}

/// The parts of a rule that two rules must share so that their operations can be joined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexKey {
    group: Box<str>,
    resource: Box<str>,
    versions: BTreeSet<Box<str>>,
    scope: &'static str,
    namespaces: BTreeSet<Box<str>>,
    protobuf_objects: bool,
}

/// Union of the rules of one phase.
#[derive(Debug, Default)]
struct PhaseUnion {
    atoms: BTreeMap<IndexKey, BTreeSet<&'static str>>,
    text: usize,
    /// True if a rule matches every request and wants its objects in JSON, or the rules are too many.
    is_all: bool,
}

impl PhaseUnion {
    /// Adds a rule. `equivalent`: also for the same objects in other versions and groups.
    fn add(&mut self, rule: &Rule, equivalent: bool, namespaces: &[Box<str>], protobuf_objects: bool) {
        if self.is_all {
            return;
        }
        let versions: BTreeSet<Box<str>> = match equivalent || rule.api_versions.iter().any(|one| **one == *"*") {
            true => BTreeSet::from(["*".into()]),
            false => rule.api_versions.iter().cloned().collect(),
        };
        // It matches nothing, and a plugin takes no such rule.
        if versions.is_empty() || rule.operations.is_empty() {
            return;
        }
        let key = |group: &str, resource: &str| IndexKey {
            group: group.into(),
            resource: resource.into(),
            versions: versions.clone(),
            scope: rule.scope.as_str(),
            namespaces: namespaces.iter().cloned().collect(),
            protobuf_objects,
        };
        for (group, resource) in rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r))) {
            self.insert(key(group, resource), &rule.operations);
            if equivalent && **group != *"*" {
                for (group, resource) in elsewhere(group, resource) {
                    self.insert(key(group, &resource), &rule.operations);
                }
            }
            if self.is_all {
                return;
            }
        }
    }

    fn insert(&mut self, key: IndexKey, added: &[Operation]) {
        let length = key.length();
        let everything = (&*key.group, &*key.resource, key.scope) == ("*", "*/*", Scope::Any.as_str())
            && key.namespaces.is_empty()
            && key.versions.contains("*")
            && !key.protobuf_objects;
        let operations = self.atoms.entry(key).or_insert_with(|| {
            self.text += length;
            BTreeSet::new()
        });
        operations.extend(added.iter().map(|operation| operation.as_str()));
        self.is_all |= everything && operations.len() == Operation::ALL.len()
            || self.atoms.len() > MAX_INDEX_RESOURCES
            || self.text > MAX_INDEX_TEXT;
    }

    /// Adds the requests to which a bypass may apply, as the verdict names it. Its users and groups are left out. It
    /// reads no object.
    fn add_bypass(&mut self, bypass: &Bypass) {
        let scope = if bypass.namespaces.is_empty() { Scope::Any } else { Scope::Namespaced };
        if bypass.resources.is_empty() {
            return self.add(
                &any_operation(vec!["*".into()], vec!["*/*".into()], scope),
                false,
                &bypass.namespaces,
                true,
            );
        }
        bypass.resources.iter().for_each(|rule| self.add(rule, false, &bypass.namespaces, true));
    }

    /// Adds the requests about Gatepost's own configuration, as their verdicts say that they skip all hooks.
    fn add_own_configuration(&mut self) {
        for (group, resource) in exempt::own_resources() {
            let resources = vec![resource.into(), format!("{resource}/*").into()];
            self.add(&any_operation(vec![group.into()], resources, Scope::Any), false, &[], true);
        }
    }

    /// Returns the rules: first those joined that differ only in their resource, then those that differ only in their
    /// group.
    fn into_rules(self) -> PhaseRules {
        if self.is_all {
            return PhaseRules::All;
        }
        let mut by_group: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (IndexKey { group, resource, versions, scope, namespaces, protobuf_objects }, operations) in self.atoms {
            let rest = (versions, scope, namespaces, protobuf_objects, operations);
            by_group.entry((group, rest)).or_default().insert(resource);
        }
        let mut by_resources: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for ((group, rest), resources) in by_group {
            by_resources.entry((resources, rest)).or_default().insert(group);
        }
        let rule = |((resources, rest), groups): (_, BTreeSet<_>)| {
            let (versions, scope, namespaces, protobuf_objects, operations) = rest;
            IndexRule {
                groups: groups.into_iter().collect(),
                resources: BTreeSet::into_iter(resources).collect(),
                versions: BTreeSet::into_iter(versions).collect(),
                operations: BTreeSet::into_iter(operations).collect(),
                scope,
                namespaces: BTreeSet::into_iter(namespaces).collect(),
                protobuf_objects,
            }
        };
        let mut rules: Vec<_> = by_resources.into_iter().map(rule).collect();
        rules.sort_unstable();
        PhaseRules::Rules(rules)
    }
}

impl IndexKey {
    /// Returns the length of its texts, each with its overhead in a message.
    fn length(&self) -> usize {
        const OVERHEAD: usize = 8;
        let texts = self.versions.iter().chain(&self.namespaces).chain([&self.group, &self.resource]);
        texts.map(|text| text.len() + OVERHEAD).sum()
    }
}

/// Returns the other groups in which objects of this resource are served, with the resource there.
fn elsewhere<'a>(group: &'a str, resource: &'a str) -> impl Iterator<Item = (&'static str, Box<str>)> + use<'a> {
    let (name, sub) = resource.split_once('/').map_or((resource, None), |(name, sub)| (name, Some(sub)));
    builtin::SHARED.iter().filter(move |(shared, _)| name == "*" || name == *shared).filter_map(move |(shared, _)| {
        let other = builtin::other_group(group, shared)?;
        Some((other, sub.map_or_else(|| (*shared).into(), |sub| format!("{shared}/{sub}").into())))
    })
}

/// Returns a rule for every operation and version.
fn any_operation(api_groups: Vec<Box<str>>, resources: Vec<Box<str>>, scope: Scope) -> Rule {
    Rule { operations: Operation::ALL.to_vec(), api_groups, api_versions: vec!["*".into()], resources, scope }
}

impl IndexRule {
    /// Returns true if the rule matches the target, as a plugin compares it.
    #[cfg(test)]
    fn matches(&self, target: &gatepost_api::RuleTarget<'_>) -> bool {
        let scope = [Scope::Any, Scope::Namespaced, Scope::Cluster].into_iter().find(|it| it.as_str() == self.scope);
        let operations = Operation::ALL.into_iter().filter(|one| self.operations.contains(&one.as_str())).collect();
        let rule = Rule {
            operations,
            api_groups: self.groups.clone(),
            api_versions: self.versions.clone(),
            resources: self.resources.clone(),
            scope: scope.expect("a scope"),
        };
        let in_namespace = self.namespaces.is_empty() || self.namespaces.iter().any(|one| **one == *target.namespace);
        in_namespace && rule.matches(target)
    }
}

#[cfg(test)]
mod tests;

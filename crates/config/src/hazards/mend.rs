//! Mend: change of a hook's entry, and its JSON merge patch.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    levels::{LABEL, levels_up_to},
    view::Request,
};
use crate::check::namespace::NAME_LABEL;
use gatepost_api::{Hook, Operation, Rule, Scope, selector::Requirement};

/// Change of a hook's entry. Several are joined into one, as a merge patch replaces lists as a whole.
#[derive(Default)]
pub(super) struct Mend {
    /// Namespaces to leave alone, by name.
    pub(super) namespaces: BTreeSet<String>,
    /// Leave alone namespaces of this runlevel and those below.
    pub(super) runlevel: Option<u32>,
    /// Resources to leave alone: group and resource.
    pub(super) resources: BTreeSet<(&'static str, &'static str)>,
    /// Rules to add.
    pub(super) rules: Vec<Rule>,
    /// Count requests made in other versions.
    pub(super) equivalent: bool,
}

impl Mend {
    /// Leaves these alone.
    pub(super) fn namespaces<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { namespaces: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Leaves this resource alone, by what serves best: a rule that names it needs not; for one that sees everything
    /// it is these namespaces, or objects outside of any.
    pub(super) fn away_from(hook: &Hook, request: &Request, namespaces: &[&str]) -> Self {
        let covers = |rule: &&Rule| covers(rule, request.group, request.resource);
        let by_star = hook.rules.iter().filter(covers).any(|rule| rule.resources.iter().any(|entry| is_star(entry)));
        let namespaces = if by_star { namespaces } else { &[] };
        Self {
            resources: BTreeSet::from([(request.group, request.resource)]),
            ..Self::namespaces(namespaces.iter().copied())
        }
    }

    /// Adds rules that see these updated.
    pub(super) fn updates(requests: impl IntoIterator<Item = Request>) -> Self {
        let rule = |request: Request| Rule {
            operations: vec![Operation::Update],
            api_groups: vec![request.group.into()],
            api_versions: vec![request.version.into()],
            resources: vec![request.entry().into()],
            scope: Scope::Namespaced,
        };
        Self { rules: requests.into_iter().map(rule).collect(), ..Self::default() }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.namespaces.extend(other.namespaces);
        self.runlevel = self.runlevel.max(other.runlevel);
        self.resources.extend(other.resources);
        for rule in other.rules {
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        self.equivalent |= other.equivalent;
    }

    /// As a merge patch of the hook's entry; null where there is nothing to change.
    pub(super) fn patch(self, hook: &Hook) -> Value {
        let mut patch = Map::new();
        let mut open = false;
        match self.selector(hook) {
            Some(Some(selector)) => drop(patch.insert("namespaceSelector".into(), selector)),
            Some(None) => open = true,
            None => {}
        }
        open |= self.resources.iter().any(|(group, resource)| {
            let star = |rule: &Rule| rule.resources.iter().any(|entry| is_star(entry));
            let mut all = hook.rules.iter().filter(|rule| rule.scope == Scope::Cluster && star(rule));
            is_cluster_scoped(resource) && all.any(|rule| covers(rule, group, resource))
        });
        match self.changed_rules(hook) {
            Some(rules) if rules.is_empty() => open = true,
            Some(rules) => {
                drop(patch.insert("rules".into(), rules.iter().map(written_rule).collect()));
            }
            None => {}
        }
        if self.equivalent {
            patch.insert("matchPolicy".into(), "Equivalent".into());
        }
        if open {
            // The hook is about nothing but what it should not hold up: then it may look, and not stand in the way.
            patch.insert("failurePolicy".into(), "Ignore".into());
        }
        if patch.is_empty() { Value::Null } else { patch.into() }
    }

    /// The selector with the exclusions added; `Some(None)` where nothing would be left to select.
    fn selector(&self, hook: &Hook) -> Option<Option<Value>> {
        let mut excluded = Vec::new();
        if !self.namespaces.is_empty() {
            excluded.push((NAME_LABEL, self.namespaces.iter().cloned().collect::<Vec<_>>()));
        }
        if let Some(level) = self.runlevel {
            excluded.push((LABEL, levels_up_to(level)));
        }
        if excluded.is_empty() {
            return None;
        }
        let mut requirements = hook.namespace_selector.0.clone();
        for (key, values) in excluded {
            let hits = |value: &str| values.iter().any(|excluded| excluded == value);
            let only = |requirement: &Requirement| match requirement {
                Requirement::Is(k, value) => **k == *key && hits(value),
                Requirement::In(k, wanted) => **k == *key && wanted.iter().all(|value| hits(value)),
                _ => false,
            };
            if requirements.iter().any(only) {
                return Some(None);
            }
            let known = requirements.iter_mut().find_map(|requirement| match requirement {
                Requirement::NotIn(k, values) if **k == *key => Some(values),
                _ => None,
            });
            match known {
                Some(known) => {
                    for value in values {
                        if !known.iter().any(|v| **v == *value) {
                            known.push(value.into());
                        }
                    }
                    known.sort_unstable();
                }
                None => requirements
                    .push(Requirement::NotIn(key.into(), values.into_iter().map(String::into_boxed_str).collect())),
            }
        }
        Some(Some(written_selector(&requirements)))
    }

    /// True where the patch takes all that lies outside of namespaces out of the hook's sight.
    pub(super) fn drops_cluster_scoped(&self, hook: &Hook) -> bool {
        hook.rules.iter().any(|rule| self.narrows(rule))
    }

    /// A star cannot leave out one resource; objects outside of any namespace it can.
    fn narrows(&self, rule: &Rule) -> bool {
        let left_out = |(group, resource): &(&str, &str)| is_cluster_scoped(resource) && covers(rule, group, resource);
        rule.scope == Scope::Any
            && rule.resources.iter().any(|entry| is_star(entry))
            && self.resources.iter().any(left_out)
    }

    /// The rules without the resources, and with the new ones.
    fn changed_rules(&self, hook: &Hook) -> Option<Vec<Rule>> {
        let mut changed = Vec::new();
        for original in &hook.rules {
            let mut rule = original.clone();
            for (group, resource) in &self.resources {
                if covers(original, group, resource) {
                    rule.resources.retain(|entry| entry.split('/').next() != Some(resource));
                }
            }
            if self.narrows(original) {
                rule.scope = Scope::Namespaced;
            }
            if !rule.resources.is_empty() {
                changed.push(rule);
            }
        }
        changed.extend(self.rules.iter().cloned());
        (changed != hook.rules).then_some(changed)
    }
}

fn covers(rule: &Rule, group: &str, resource: &str) -> bool {
    rule.api_groups.iter().any(|named| **named == *group || &**named == "*")
        && rule.resources.iter().any(|entry| is_star(entry) || entry.split('/').next() == Some(resource))
}

fn is_star(entry: &str) -> bool {
    entry.split('/').next() == Some("*")
}

/// Of those that findings speak of.
fn is_cluster_scoped(resource: &str) -> bool {
    !matches!(resource, "leases" | "endpoints" | "endpointslices" | "events" | "localsubjectaccessreviews")
}

/// A selector as people write it.
pub fn written_selector(requirements: &[Requirement]) -> Value {
    let mut labels = Map::new();
    let mut expressions = Vec::new();
    for requirement in requirements {
        match requirement {
            Requirement::Is(key, value) => drop(labels.insert(key.as_ref().into(), value.as_ref().into())),
            Requirement::In(key, values) => {
                expressions.push(json!({"key": key, "operator": "In", "values": values}));
            }
            Requirement::NotIn(key, values) => {
                expressions.push(json!({"key": key, "operator": "NotIn", "values": values}));
            }
            Requirement::Exists(key) => expressions.push(json!({"key": key, "operator": "Exists"})),
            Requirement::DoesNotExist(key) => expressions.push(json!({"key": key, "operator": "DoesNotExist"})),
        }
    }
    let mut selector = Map::new();
    if !labels.is_empty() {
        selector.insert("matchLabels".into(), labels.into());
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions".into(), expressions.into());
    }
    selector.into()
}

fn written_rule(rule: &Rule) -> Value {
    let operations: Vec<_> = match rule.operations.len() {
        4 => vec!["*"],
        _ => rule.operations.iter().map(|operation| operation.as_str()).collect(),
    };
    let mut written = json!({
        "operations": operations,
        "apiGroups": rule.api_groups,
        "apiVersions": rule.api_versions,
        "resources": rule.resources,
    });
    if rule.scope != Scope::Any {
        written["scope"] = rule.scope.as_str().into();
    }
    written
}

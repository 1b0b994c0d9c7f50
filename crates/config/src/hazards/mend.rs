//! Mend: a change of a hook's entry, and its JSON merge patch.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    levels::{LABEL, levels_up_to},
    view::Request,
};
use crate::check::namespace::NAME_LABEL;
use gatepost_api::{Hook, Operation, Rule, Scope, selector::Requirement};

/// Change of a hook's entry. All changes of an entry are joined, because a merge patch replaces whole lists.
#[derive(Default)]
pub(super) struct Mend {
    /// Names of namespaces to exclude.
    pub(super) namespaces: BTreeSet<String>,
    /// Highest runlevel of the namespaces to exclude.
    pub(super) runlevel: Option<u32>,
    /// Resources to exclude: group and resource.
    pub(super) resources: BTreeSet<(&'static str, &'static str)>,
    /// Rules to add.
    pub(super) rules: Vec<Rule>,
    /// True to set `matchPolicy: Equivalent`.
    pub(super) equivalent: bool,
}

impl Mend {
    /// Excludes these namespaces.
    pub(super) fn namespaces<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { namespaces: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Excludes this resource. A rule that names the resource loses this entry. For a rule with a wildcard, these
    /// namespaces or all cluster-scoped objects are excluded.
    pub(super) fn away_from(hook: &Hook, request: &Request, namespaces: &[&str]) -> Self {
        let covers = |rule: &&Rule| covers(rule, request.group, request.resource);
        let by_star = hook.rules.iter().filter(covers).any(|rule| rule.resources.iter().any(|entry| is_star(entry)));
        let namespaces = if by_star { namespaces } else { &[] };
        Self {
            resources: BTreeSet::from([(request.group, request.resource)]),
            ..Self::namespaces(namespaces.iter().copied())
        }
    }

    /// Adds rules for updates of these.
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

    /// Returns the merge patch of the hook's entry; null if there is nothing to change.
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
            // The hook matches only critical resources: set failurePolicy to Ignore.
            patch.insert("failurePolicy".into(), "Ignore".into());
        }
        if patch.is_empty() { Value::Null } else { patch.into() }
    }

    /// Returns the selector with the exclusions, if there are any; `Some(None)` if it would select nothing.
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

    /// Returns true if the patched hook no longer matches cluster-scoped objects.
    pub(super) fn drops_cluster_scoped(&self, hook: &Hook) -> bool {
        hook.rules.iter().any(|rule| self.narrows(rule))
    }

    /// Returns true if the rule must be limited to namespaced objects: a wildcard cannot exclude one resource.
    fn narrows(&self, rule: &Rule) -> bool {
        let left_out = |(group, resource): &(&str, &str)| is_cluster_scoped(resource) && covers(rule, group, resource);
        rule.scope == Scope::Any
            && rule.resources.iter().any(|entry| is_star(entry))
            && self.resources.iter().any(left_out)
    }

    /// Returns the rules without the excluded resources, and with the new rules; `None` if nothing changes.
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

/// Returns true if the resource is cluster-scoped. Valid only for resources in findings.
fn is_cluster_scoped(resource: &str) -> bool {
    !matches!(resource, "leases" | "endpoints" | "endpointslices" | "events" | "localsubjectaccessreviews")
}

/// Returns a selector as it is written in a document.
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

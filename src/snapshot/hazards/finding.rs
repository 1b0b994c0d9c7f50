//! Finding: one thing that can go wrong, in which outage it did, and the patch that mends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value, json};

use super::{
    runlevel::{LABEL, levels_up_to},
    view::{Request, View},
};
use crate::{
    model::{Hook, Operation, Rule, Scope, selector::Requirement},
    snapshot::{check::names::NAME_LABEL, document::problem::is_reason},
};

/// A hook, or an initializer, that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// Its name.
    pub hook: String,
    /// Identity among hooks of the same name; "" of an initializer.
    pub id: String,
    /// The file its entry stands in.
    pub file: String,
    /// The entry's place there, as in a [`Problem`](crate::snapshot::Problem).
    pub path: String,
    /// A JSON merge patch of the entry that mends this and whatever else was found about the hook; null where only
    /// somebody who knows the hook can.
    pub patch: Value,
    /// True where the hook sees nothing outside of namespaces any more once it is patched.
    pub drops_cluster_scoped: bool,
}

/// Advice on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The patch of each hook concerned.
    Patch,
    /// In words, where only somebody who knows the hook can mend it.
    Words(String),
}

/// One thing that can go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the kind of finding: stable, for scripts.
    pub rule: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Whom it is about.
    pub hooks: Vec<Concerned>,
    /// Fault of the hooks.
    pub what: String,
    /// Consequence of it: a clause, as in a [`Problem`](crate::snapshot::Problem).
    pub why: String,
    /// Advice on it.
    pub remedy: Remedy,
    /// Outages of this kind: `owner/repo#number`, or a page.
    pub outages: &'static [&'static str],
}

impl Finding {
    /// Does it give a reason, and advice? Every finding does.
    pub fn is_whole(&self) -> bool {
        let advises = match &self.remedy {
            Remedy::Patch => self.hooks.iter().any(|concerned| !concerned.patch.is_null()),
            Remedy::Words(words) => !words.trim().is_empty(),
        };
        is_reason(&self.why) && !self.what.trim().is_empty() && advises
    }

    /// `what, why; fix`; a patch is not a part of it.
    pub fn sentence(&self) -> String {
        let Self { what, why, .. } = self;
        match &self.remedy {
            Remedy::Patch => format!("{what}, {why}"),
            Remedy::Words(words) => format!("{what}, {why}; {words}"),
        }
    }

    /// For people and programs: `/configz` shows it.
    pub fn describe(&self) -> Value {
        let hooks = self.hooks.iter().map(|concerned| {
            let Concerned { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
            json!({
                "hook": hook,
                "id": id,
                "file": file,
                "path": path,
                "patch": patch,
                "dropsClusterScoped": drops_cluster_scoped,
            })
        });
        json!({
            "rule": self.rule,
            "severity": self.severity.as_str(),
            "hooks": hooks.collect::<Vec<_>>(),
            "what": self.what,
            "why": self.why,
            "fix": match &self.remedy {
                Remedy::Patch => "merge the patch into the entry",
                Remedy::Words(words) => words,
            },
            "outages": self.outages,
        })
    }
}

impl fmt::Display for Finding {
    /// `severity rule: file: path: what, why; fix (as in ...)`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.severity.as_str(), self.rule)?;
        for concerned in &self.hooks {
            write!(f, "{}: {}: ", concerned.file, concerned.path)?;
        }
        write!(f, "{}", self.sentence())?;
        if self.remedy == Remedy::Patch {
            f.write_str("; `gatepost check` prints the patch that repairs it")?;
        }
        if self.outages.is_empty() { Ok(()) } else { write!(f, " (as in {})", self.outages.join(", ")) }
    }
}

/// A finding, hooks by number.
pub(super) struct Found {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) why: String,
    /// In words, where there is no patch.
    pub(super) fix: Option<String>,
    pub(super) outages: &'static [&'static str],
    /// Whom it is about, and what to do there.
    pub(super) mends: Vec<(usize, Mend)>,
}

/// In order, places and patches filled in.
pub(super) fn finished(view: &View<'_>, mut found: Vec<Found>) -> Vec<Finding> {
    let first = |found: &Found| found.mends.first().map(|(hook, _)| *hook);
    found.sort_by_key(|found| (found.severity, first(found)));
    let mut mends: BTreeMap<usize, Mend> = BTreeMap::new();
    for (hook, mend) in found.iter_mut().flat_map(|found| &mut found.mends) {
        mends.entry(*hook).or_default().join(std::mem::take(mend));
    }
    let patched = |(hook, mend): (usize, Mend)| {
        let entry = view.hooks[hook].hook;
        let drops = mend.drops_cluster_scoped(entry);
        (hook, (mend.patch(entry), drops))
    };
    let patches: BTreeMap<usize, (Value, bool)> = mends.into_iter().map(patched).collect();
    let concerned = |hook: usize| {
        let seen = &view.hooks[hook];
        let (patch, drops_cluster_scoped) = patches.get(&hook).cloned().unwrap_or_default();
        Concerned {
            hook: seen.hook.name.as_ref().into(),
            id: seen.hook.id.as_ref().into(),
            file: seen.origin.file.clone(),
            path: seen.origin.path.clone(),
            patch,
            drops_cluster_scoped,
        }
    };
    let finding = |found: Found| {
        let hooks: Vec<_> = found.mends.iter().map(|(hook, _)| concerned(*hook)).collect();
        let remedy = match found.fix {
            Some(fix) => Remedy::Words(fix),
            None if hooks.iter().any(|hook| !hook.patch.is_null()) => Remedy::Patch,
            None => Remedy::Words("name in its rules only what it has to be asked about".to_owned()),
        };
        let Found { rule, severity, what, why, outages, .. } = found;
        Finding { rule, severity, hooks, what, why, remedy, outages }
    };
    let findings: Vec<_> = found.into_iter().map(finding).collect();
    debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?} have one without a reason, or without advice");
    findings
}

/// Severity of a finding. A worse one goes before a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Once the hook is down, nothing brings it back but a person.
    Deadlock,
    /// While the hook is down, so is a part of the cluster that others rest on.
    Danger,
    /// Something passes unseen that the hook surely means, or that is not known here.
    Gap,
}

impl Severity {
    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Danger => "danger",
            Self::Gap => "gap",
        }
    }
}

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

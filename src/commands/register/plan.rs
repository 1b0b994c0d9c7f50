//! Plan: the entries of a registration. Each request is sent once, with a failure policy no stricter than that of its
//! hooks, and no request is sent that all hooks exclude.
//!
//! Hooks with the same failure policy and selectors share entries. If two entries match the same request, a
//! matchCondition of the later entry excludes it: whichever entry sends a request, Gatepost calls every hook with it.
//! If no condition can exclude exactly the requests of the earlier entry, both entries send them, and the plan names
//! the hooks. A request that a hook wants is never excluded from all entries.
//!
//! An apiserver sends an object in the client's version if a rule of the entry names that version. Otherwise it
//! converts the object to a version that a rule names (`docs/reference/webhook-semantics.md` §4). So two hooks that
//! want different versions of one resource cannot share an entry: one hook would not match the object in the version of
//! the other. Rules are split into atoms of one group and one resource each. Atoms that contradict each other go to
//! different entries.
//!
//! An apiserver evaluates the conditions, which are CEL. `request.requestResource` is the resource of the client's
//! request, before any conversion (§7). A condition reads only fields that always exist, or checks first that they
//! exist: an expression that fails rejects the write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use gatepost_api::{Hook, HookType, Operation, Reinvocation, Scope, Selector, registration::Segment};
use gatepost_config::{
    Snapshot,
    coverage::{
        self, Atom, CoverageSubject, atoms_of,
        selectors::{common, is_within, names_left_out, without},
    },
};

/// Maximum number of different selectors with entries of their own under one failure policy. If there are more, all
/// hooks share the common part of their selectors.
const MAX_SELECTOR_CLASSES: usize = 8;
/// Maximum number of conditions of an entry. An apiserver allows 64.
const MAX_CONDITIONS: usize = 60;

/// One webhook of the registration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WebhookEntry {
    /// Requests that the entry matches.
    pub(super) atoms: Vec<Atom>,
    /// True if writes are rejected while Gatepost does not answer.
    pub(super) closed: bool,
    /// Selector of namespaces.
    pub(super) namespaces: Selector,
    /// Selector of objects, by their labels.
    pub(super) objects: Selector,
    /// Excluded requests, which earlier entries send.
    pub(super) left: Vec<SentAlready>,
    /// Segment of the mutating hooks to call; `None` if there is only one segment.
    pub(super) segment: Option<Segment>,
    /// True if the apiserver calls the webhook again after a later webhook has changed the object.
    pub(super) again: bool,
}

/// Entries of a registration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) entries: Vec<WebhookEntry>,
    /// True if two entries send the same objects in different versions or groups.
    pub(super) one_version: bool,
    /// Names of hooks that may get the same request from two entries.
    pub(super) twice: BTreeSet<Arc<str>>,
}

/// A hook, and whether its declared failure policy rejects requests when it fails.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) hook: Arc<Hook>,
    pub(super) closed: bool,
}

/// Returns a plan that sends every request in its client's version, except those of the excluded namespaces.
pub(super) fn everything(closed: bool, excluded: &[String]) -> Plan {
    let namespaces = without(&Selector::default(), excluded);
    let entry = WebhookEntry { atoms: vec![Atom::everything()], closed, namespaces, ..WebhookEntry::default() };
    Plan { entries: vec![entry], ..Plan::default() }
}

/// Returns the plan for these hooks, without requests of the excluded namespaces.
pub(super) fn plan(wanted: &[Wanted], excluded: &[String]) -> Plan {
    let mut plan = Plan::default();
    for closed in [true, false] {
        let hooks: Vec<_> = wanted.iter().filter(|wanted| wanted.closed == closed).map(|it| &it.hook).collect();
        for class in classes(&hooks) {
            let union = union(&class.hooks);
            plan.twice.extend(union.twice);
            let namespaces = without(&class.namespaces, excluded);
            plan.entries.extend(union.entries.into_iter().map(|atoms| WebhookEntry {
                atoms,
                closed,
                namespaces: namespaces.clone(),
                objects: class.objects.clone(),
                ..WebhookEntry::default()
            }));
        }
    }
    // A later entry can exclude the requests of an earlier one only if CEL can describe them: put such entries first.
    plan.entries.sort_by_key(|entry| (!entry.closed, entry.rank()));
    plan.remove_atoms_sent_earlier();
    plan.exclude_requests_sent_earlier(wanted);
    plan.one_version = plan.sends_several_versions();
    plan
}

/// Returns the plan for a configuration's initializers and hooks of that type, without requests of excluded namespaces.
///
/// # Errors
/// A message, if mutating hooks might change an object twice.
pub(super) fn plan_of(snapshot: &Snapshot, hook_type: HookType, excluded: &[String]) -> Result<Plan, String> {
    let hooks = wanted(snapshot, hook_type);
    let segments = hooks.chunk_by(|(one, _), (other, _)| one == other);
    let mut plan = segments.map(|hooks| segment(hooks, excluded)).reduce(Plan::followed_by).unwrap_or_default();
    // Built-in initializers change nothing when they act a second time.
    plan.twice.retain(|name| !coverage::is_of_initializers(name));
    // A validating hook that is called twice returns the same answer; a mutating hook may patch twice.
    if hook_type == HookType::Mutating && !plan.twice.is_empty() {
        let names: Vec<_> = plan.twice.iter().map(|name| &**name).collect();
        return Err(format!(
            "two entries would send some requests, and these hooks might change an object twice: {}; give them the same \
             apiVersions for a resource and the same selectors",
            names.join(", ")
        ));
    }
    Ok(plan)
}

/// Returns the hooks and the initializers of that type that need requests, in order, each with its segment. Initializers
/// of a resource are one hook, which is never called: a plan only reads its rules.
fn wanted(snapshot: &Snapshot, hook_type: HookType) -> Vec<(Option<Segment>, Wanted)> {
    // Initializers act after the last hook.
    let last = snapshot.segments().last().map(|(_, segment)| segment).filter(|_| hook_type == HookType::Mutating);
    let first = snapshot.segments().next().map(|(_, segment)| segment).filter(|_| hook_type == HookType::Mutating);
    let of_type = coverage::compared(snapshot).filter(|one| one.hook_type() == hook_type);
    let wanted = of_type.map(|one| {
        let segment = match one.subject {
            CoverageSubject::Initializers => last,
            // Mutating policies decide before the first hook.
            CoverageSubject::Policy => first,
            CoverageSubject::Hook(_) => one.segment(),
        };
        let closed = one.is_closed();
        (segment, Wanted { hook: Arc::new(one.into_hook()), closed })
    });
    wanted.collect()
}

/// Returns the plan for the hooks of one segment.
fn segment(hooks: &[(Option<Segment>, Wanted)], excluded: &[String]) -> Plan {
    let wanted: Vec<_> = hooks.iter().map(|(_, wanted)| wanted.clone()).collect();
    let again = wanted.iter().any(|wanted| wanted.hook.reinvocation == Reinvocation::IfNeeded);
    let segment = hooks.first().and_then(|(segment, _)| *segment).filter(|segment| segment.of > 1);
    let mut plan = plan(&wanted, excluded);
    for entry in &mut plan.entries {
        (entry.segment, entry.again) = (segment, again);
    }
    plan
}

struct SelectorClass {
    namespaces: Selector,
    objects: Selector,
    hooks: Vec<Arc<Hook>>,
}

/// Groups the hooks by their selectors, in order. Returns a single class if there are more than
/// [`MAX_SELECTOR_CLASSES`].
fn classes(hooks: &[&Arc<Hook>]) -> Vec<SelectorClass> {
    let mut classes: Vec<SelectorClass> = Vec::new();
    for &hook in hooks.iter().filter(|hook| !hook.rules.is_empty()) {
        let same = |class: &&mut SelectorClass| {
            class.namespaces == hook.namespace_selector && class.objects == hook.object_selector
        };
        match classes.iter_mut().find(same) {
            Some(class) => class.hooks.push(Arc::clone(hook)),
            None => classes.push(SelectorClass {
                namespaces: hook.namespace_selector.clone(),
                objects: hook.object_selector.clone(),
                hooks: vec![Arc::clone(hook)],
            }),
        }
    }
    if classes.len() <= MAX_SELECTOR_CLASSES {
        return classes;
    }
    let namespaces = common(&classes.iter().map(|class| &class.namespaces).collect::<Vec<_>>());
    // An object selector may match the old object or the new one, so different selectors have nothing in common.
    let first = classes.first().map(|class| class.objects.clone()).unwrap_or_default();
    let same = classes.iter().all(|class| class.objects == first);
    let objects = if same { first } else { Selector::default() };
    vec![SelectorClass { namespaces, objects, hooks: classes.into_iter().flat_map(|class| class.hooks).collect() }]
}

impl WebhookEntry {
    fn rank(&self) -> u8 {
        match names_left_out(&self.namespaces) {
            _ if !self.objects.is_empty() => 2,
            Some(names) => u8::from(!names.is_empty()),
            None => 2,
        }
    }

    /// Returns true if the selectors of this entry match everything that those of `other` match.
    fn sees_all_of(&self, other: &Self) -> bool {
        is_within(&other.namespaces, &self.namespaces) && (self.objects.is_empty() || self.objects == other.objects)
    }
}

impl Plan {
    /// Removes atoms whose requests an earlier entry sends.
    fn remove_atoms_sent_earlier(&mut self) {
        for later in 1..self.entries.len() {
            let (before, rest) = self.entries.split_at_mut(later);
            let Some(entry) = rest.first() else { continue };
            let leaves =
                |atom: &Atom, other: &Atom, own: &[Atom]| atom.is_within(other) && !atom.is_unconverted_by(other, own);
            let sent = |atom: &Atom| {
                let mut earlier = before.iter().filter(|earlier| earlier.sees_all_of(entry));
                earlier.any(|earlier| earlier.atoms.iter().any(|other| leaves(atom, other, &entry.atoms)))
            };
            let kept: Vec<Atom> = entry.atoms.iter().filter(|atom| !sent(atom)).cloned().collect();
            if let Some(entry) = rest.first_mut() {
                entry.atoms = kept;
            }
        }
        self.entries.retain(|entry| !entry.atoms.is_empty());
    }

    /// Sets the requests that each entry excludes, and the hooks that may still get a request twice.
    fn exclude_requests_sent_earlier(&mut self, wanted: &[Wanted]) {
        for later in 1..self.entries.len() {
            let (before, rest) = self.entries.split_at_mut(later);
            let Some(entry) = rest.first_mut() else { continue };
            let mut left: Vec<SentAlready> = Vec::new();
            for earlier in before.iter() {
                let left_out =
                    left_out_by((&earlier.namespaces, &earlier.objects), (&entry.namespaces, &entry.objects));
                for (first, second) in pairs(&earlier.atoms, &entry.atoms) {
                    let same_version = first.agrees_on_versions(second) || !first.shared_versions(second).is_empty();
                    let said = left_out.as_ref().and_then(|names| SentAlready::of(first, second, names));
                    let said = said.filter(|said| left.len() < MAX_CONDITIONS || left.contains(said));
                    if same_version && said.is_none() || first.may_be_sent_twice(second) {
                        let mean_both = wanted.iter().filter(|wanted| matches_both(&wanted.hook, first, second));
                        self.twice.extend(mean_both.map(|wanted| wanted.hook.name.clone()));
                    }
                    left.extend(said.filter(|said| !left.contains(said)));
                }
            }
            entry.left = left;
        }
    }

    /// Appends the plan of a later segment.
    pub(super) fn followed_by(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.twice.extend(other.twice);
        self.one_version |= other.one_version;
        self
    }

    /// Returns true if two entries send the same objects in different versions or groups.
    fn sends_several_versions(&self) -> bool {
        let entries = self.entries.iter().enumerate();
        entries.into_iter().any(|(index, entry)| {
            self.entries.iter().skip(index + 1).any(|other| {
                let mut all = entry.atoms.iter().flat_map(|one| other.atoms.iter().map(move |another| (one, another)));
                all.any(|(one, another)| one.contradicts(another) || one.shares_objects_with(another))
            })
        })
    }
}

/// Returns true if a rule of the hook matches requests of both atoms.
fn matches_both(hook: &Hook, first: &Atom, second: &Atom) -> bool {
    atoms_of(hook).iter().any(|atom| atom.overlaps(first) && atom.overlaps(second))
}

/// Returns the pairs of atoms of two entries that match the same request.
fn pairs<'a>(one: &'a [Atom], other: &'a [Atom]) -> impl Iterator<Item = (&'a Atom, &'a Atom)> {
    one.iter().flat_map(move |first| other.iter().map(move |second| (first, second))).filter(|(a, b)| a.overlaps(b))
}

/// Requests that an earlier entry sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentAlready {
    /// API group; `*` is any.
    group: Box<str>,
    resource: Box<str>,
    /// Subresource; "" is none, `*` is any.
    sub_resource: Box<str>,
    /// Versions of the client's request; `None` is any.
    versions: Option<BTreeSet<Box<str>>>,
    operations: BTreeSet<&'static str>,
    scope: &'static str,
    /// Namespaces whose requests the earlier entry does not send.
    left_out: Vec<Box<str>>,
}

impl SentAlready {
    /// Returns the requests that both atoms match and that an entry with the first sends; `None` if there are none, or
    /// CEL cannot describe them.
    ///
    /// Includes only requests that the first entry sends in a version that every hook of the second accepts: if the
    /// atoms differ in their versions, only those whose client used a version that both name.
    pub(super) fn of(first: &Atom, second: &Atom, left_out: &[&str]) -> Option<Self> {
        let versions = match first.agrees_on_versions(second) {
            true => None,
            false => Some(first.shared_versions(second).into_iter().map(Box::from).collect::<BTreeSet<_>>()),
        };
        let plain = first.words().chain(second.words()).chain(left_out.iter().copied()).all(plain);
        if !plain || versions.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let narrower = |one: &str, other: &str| Box::<str>::from(if one == "*" { other } else { one });
        let ((one, one_sub), (other, other_sub)) = (first.resource(), second.resource());
        Some(Self {
            group: narrower(&first.group, &second.group),
            resource: narrower(one, other),
            sub_resource: narrower(one_sub, other_sub),
            versions,
            operations: first.operations.intersection(&second.operations).copied().collect(),
            scope: if first.scope == Scope::Any.as_str() { second.scope } else { first.scope },
            left_out: left_out.iter().copied().map(Box::from).collect(),
        })
    }

    /// Returns a CEL expression that is true for these requests.
    pub(super) fn expression(&self) -> String {
        const RESOURCE: &str = "request.requestResource.resource";
        let mut all: Vec<String> = Vec::new();
        for (field, word) in [("group", &self.group), ("resource", &self.resource)] {
            if **word != *"*" {
                all.push(format!("request.requestResource.{field} == '{word}'"));
            }
        }
        if let Some(versions) = &self.versions {
            all.push(one_of("request.requestResource.version", versions.iter().map(AsRef::as_ref)));
        }
        match &*self.sub_resource {
            "*" => {}
            "" => all.push("(!has(request.subResource) || request.subResource == '')".into()),
            sub => all.push(format!("has(request.subResource) && request.subResource == '{sub}'")),
        }
        if self.operations.len() < Operation::ALL.len() {
            all.push(one_of("request.operation", self.operations.iter().copied()));
        }
        // A request for a Namespace has a namespace, but is cluster-scoped. Resources of that name in another group are
        // sent twice.
        if self.scope == Scope::Namespaced.as_str() {
            all.push(format!("has(request.namespace) && request.namespace != '' && {RESOURCE} != 'namespaces'"));
        } else if self.scope == Scope::Cluster.as_str() {
            all.push("(!has(request.namespace) || request.namespace == '')".into());
        }
        if !self.left_out.is_empty() {
            // For a Namespace, the selector matches the labels of the object, which this expression does not read.
            let names: Vec<String> = self.left_out.iter().map(|name| format!("'{name}'")).collect();
            all.push(format!("{RESOURCE} != 'namespaces'"));
            all.push(format!("(!has(request.namespace) || !(request.namespace in [{}]))", names.join(", ")));
        }
        // Both atoms match everything.
        if all.is_empty() { "true".into() } else { all.join(" && ") }
    }
}

/// Returns the namespaces that the first selectors exclude and the second selectors may match; `None` if the first
/// exclude more than names of namespaces can describe.
pub(super) fn left_out_by<'a>(
    (namespaces, objects): (&'a Selector, &Selector),
    (second_namespaces, second_objects): (&Selector, &Selector),
) -> Option<Vec<&'a str>> {
    // The old object may match one selector and the new object the other, so only equal selectors can be compared.
    if !objects.is_empty() && objects != second_objects {
        return None;
    }
    if is_within(second_namespaces, namespaces) { Some(Vec::new()) } else { names_left_out(namespaces) }
}

/// Returns true if the word needs no escapes between quotes.
fn plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-*/".contains(&byte))
}

fn one_of<'a>(field: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("'{word}'")).collect();
    match &words[..] {
        [only] => format!("{field} == {only}"),
        many => format!("{field} in [{}]", many.join(", ")),
    }
}

/// Entries of a registration for hooks with the same failure policy and selectors.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    /// Atoms of each entry.
    pub(super) entries: Vec<Vec<Atom>>,
    /// Names of hooks that may get the same request from two entries.
    pub(super) twice: BTreeSet<Arc<str>>,
}

/// Returns the union of the rules of these hooks.
pub(super) fn union(hooks: &[Arc<Hook>]) -> Union {
    let mut atoms: BTreeMap<Atom, BTreeSet<Arc<str>>> = BTreeMap::new();
    for hook in hooks {
        for atom in atoms_of(hook) {
            atoms.entry(atom).or_default().insert(hook.name.clone());
        }
    }
    let twice = hooks_called_twice(&atoms);
    // If two groups share their objects, an apiserver sends an object in only one of them. So a hook that accepts one
    // group cannot share an entry with a hook that accepts only the other.
    let apart = |one: &Atom, other: &Atom| one.shares_objects_with(other) && atoms.get(one) != atoms.get(other);
    let all: Vec<_> = atoms.keys().cloned().collect();
    let is_sent = |atom: &Atom, other: &Atom| other != atom && atom.is_within(other) && !apart(atom, other);
    let kept = all.iter().filter(|atom| !all.iter().any(|other| is_sent(atom, other)));
    let mut entries: Vec<Vec<&Atom>> = Vec::new();
    for atom in kept {
        let fits = |entry: &Vec<&Atom>| !entry.iter().any(|other| atom.contradicts(other) || apart(atom, other));
        match entries.iter_mut().find(|entry| fits(entry)) {
            Some(entry) => entry.push(atom),
            None => entries.push(vec![atom]),
        }
    }
    Union { entries: entries.into_iter().map(|entry| entry.into_iter().cloned().collect()).collect(), twice }
}

/// Returns the hooks of atoms that contradict each other but share a version. A request in a version that neither atom
/// names may be sent by both entries, converted to the shared version. Other requests reach each hook once: one entry
/// excludes requests in a shared version. For a version that only one atom names, Gatepost calls its hooks only with
/// the unconverted request ([`OtherVersions::ReviewedSeparately`](crate::review::OtherVersions)).
fn hooks_called_twice(atoms: &BTreeMap<Atom, BTreeSet<Arc<str>>>) -> BTreeSet<Arc<str>> {
    let mut twice = BTreeSet::new();
    for (one, hooks) in atoms {
        for (other, others) in atoms {
            if one.may_be_sent_twice(other) {
                twice.extend(hooks.iter().chain(others).cloned());
            }
        }
    }
    twice
}

/// Merges atoms into rules: first atoms that differ only in their resource, then those that differ only in their group.
pub(super) fn rules(atoms: &[Atom]) -> Vec<Value> {
    let mut by_group: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Atom { group, resource, scope, versions, operations } in atoms {
        by_group.entry((group, scope, versions, operations)).or_default().insert(resource);
    }
    let mut by_resources: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for ((group, scope, versions, operations), resources) in by_group {
        by_resources.entry((resources, scope, versions, operations)).or_default().insert(group);
    }
    let rule = |((resources, scope, versions, operations), groups): (_, BTreeSet<&Box<str>>)| {
        json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "scope": scope,
            "operations": Operation::ALL.map(Operation::as_str).into_iter().filter(|o| BTreeSet::contains(operations, o)).collect::<Vec<_>>()})
    };
    let mut rules: Vec<Value> = by_resources.into_iter().map(rule).collect();
    rules.sort_by_key(|rule| rule["apiGroups"].to_string());
    rules
}

#[cfg(test)]
mod tests;

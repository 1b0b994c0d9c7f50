//! Plan: the entries of a registration, such that each request is sent once, under no harder a failure policy than its
//! hooks have, and nothing is sent that they leave out.
//!
//! Hooks of one failure policy and the same selectors share entries. Where two entries match the same request, the
//! later one leaves it to the earlier by a matchCondition: whichever entry sends a request, Gatepost asks every hook
//! about it. A request that cannot be left to another entry for certain is sent by both, and the hooks are named: never
//! is it sent by none.
//!
//! An apiserver sends an object in the version its client used where some rule of the entry names it, and converts it
//! to a version that a rule names where none does (`docs/reference/webhook-semantics.md` §4). So two hooks that want
//! different versions of one resource cannot share an entry: one of them would not recognise what comes. Rules are
//! taken apart into atoms of one group and one resource each; atoms that contradict each other go to different entries.
//!
//! What an entry leaves to those before it is CEL that an apiserver evaluates. `request.requestResource` is the request
//! as its client made it, whatever the rules have made of it (§7). Only what is always there is looked at, or asked for
//! first: an expression that fails rejects the write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use gatepost_api::{FailurePolicy, Hook, HookType, Operation, Reinvocation, Scope, Selector, registration::Segment};
use gatepost_config::{
    Snapshot,
    coverage::{
        self, Atom, atoms_of,
        selectors::{common, is_within, names_left_out, without},
    },
};

/// Most kinds of selectors that have entries of their own under one failure policy; more share what they have in
/// common.
const MAX_CLASSES: usize = 8;
/// Of the 64 conditions that one webhook may have.
const MAX_CONDITIONS: usize = 60;

/// One webhook of the registration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WebhookEntry {
    /// Requests it matches.
    pub(super) atoms: Vec<Atom>,
    /// Is a write refused while Gatepost does not answer?
    pub(super) closed: bool,
    /// Which namespaces' objects it sees.
    pub(super) namespaces: Selector,
    /// Which objects it sees, by their labels.
    pub(super) objects: Selector,
    /// Requests it leaves to entries before it.
    pub(super) left: Vec<SentAlready>,
    /// The mutating hooks that it is for, where some are registered apart.
    pub(super) segment: Option<Segment>,
    /// Is it sent what it has seen once more, where something behind it changes the object?
    pub(super) again: bool,
}

/// Registration that an apiserver needs for these hooks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) entries: Vec<WebhookEntry>,
    /// Do entries differ in the versions that they send?
    pub(super) one_version: bool,
    /// Hooks of which two entries may send the same request.
    pub(super) twice: BTreeSet<Arc<str>>,
}

/// A hook, and whether its failures reject, now or once it is rolled out.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) hook: Arc<Hook>,
    pub(super) closed: bool,
}

/// Everything there is, in whatever version its client used, but for these namespaces.
pub(super) fn everything(closed: bool, excluded: &[String]) -> Plan {
    let namespaces = without(&Selector::default(), excluded);
    let entry = WebhookEntry { atoms: vec![Atom::everything()], closed, namespaces, ..WebhookEntry::default() };
    Plan { entries: vec![entry], ..Plan::default() }
}

/// Plan for these hooks, but for these namespaces.
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
    // Later entries leave a request to an earlier one only where CEL can describe its requests: such entries go first.
    plan.entries.sort_by_key(|entry| (!entry.closed, entry.rank()));
    plan.drop_what_others_send();
    plan.leave_to_earlier(wanted);
    plan.one_version = plan.sends_several_versions();
    plan
}

/// Plan for the hooks of that type in a configuration, and for its initializers, but for these namespaces.
///
/// # Errors
/// Mutating hooks might change an object twice.
pub(super) fn plan_of(snapshot: &Snapshot, hook_type: HookType, excluded: &[String]) -> Result<Plan, String> {
    let of_type = (0..).zip(&snapshot.hooks).filter(|(_, hook)| hook.hook_type == hook_type);
    let hooks = of_type.map(|(index, hook)| {
        let declared = snapshot.origin(index).map_or(hook.failure_policy, |origin| origin.declared_policy);
        (snapshot.segment(index), Wanted { hook: hook.clone(), closed: declared != FailurePolicy::Ignore })
    });
    let mut hooks: Vec<_> = hooks.collect();
    // Initializers act behind the last hook.
    let last = hooks.last().and_then(|(segment, _)| *segment);
    hooks.extend(wanted_by_initializers(snapshot, hook_type).into_iter().map(|wanted| (last, wanted)));
    let segments = hooks.chunk_by(|(one, _), (other, _)| one == other);
    let mut plan = segments.map(|hooks| segment(hooks, excluded)).reduce(Plan::followed_by).unwrap_or_default();
    // Built-in initializers find their own work done.
    plan.twice.retain(|name| !coverage::is_of_initializers(name));
    // A validating hook that is asked twice says the same; a mutating one may patch twice.
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

/// Plan for the hooks of one segment.
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

struct Class {
    namespaces: Selector,
    objects: Selector,
    hooks: Vec<Arc<Hook>>,
}

/// Hooks by their selectors, in order.
fn classes(hooks: &[&Arc<Hook>]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for &hook in hooks.iter().filter(|hook| !hook.rules.is_empty()) {
        let same =
            |class: &&mut Class| class.namespaces == hook.namespace_selector && class.objects == hook.object_selector;
        match classes.iter_mut().find(same) {
            Some(class) => class.hooks.push(Arc::clone(hook)),
            None => classes.push(Class {
                namespaces: hook.namespace_selector.clone(),
                objects: hook.object_selector.clone(),
                hooks: vec![Arc::clone(hook)],
            }),
        }
    }
    if classes.len() <= MAX_CLASSES {
        return classes;
    }
    let namespaces = common(&classes.iter().map(|class| &class.namespaces).collect::<Vec<_>>());
    // Labels of objects are looked at in the old and the new one: only what all say alike is common.
    let first = classes.first().map(|class| class.objects.clone()).unwrap_or_default();
    let same = classes.iter().all(|class| class.objects == first);
    let objects = if same { first } else { Selector::default() };
    vec![Class { namespaces, objects, hooks: classes.into_iter().flat_map(|class| class.hooks).collect() }]
}

impl WebhookEntry {
    fn rank(&self) -> u8 {
        match names_left_out(&self.namespaces) {
            _ if !self.objects.is_empty() => 2,
            Some(names) => u8::from(!names.is_empty()),
            None => 2,
        }
    }

    /// Does this one see whatever of its atoms that one sees, as far as labels go?
    fn sees_all_of(&self, other: &Self) -> bool {
        is_within(&other.namespaces, &self.namespaces) && (self.objects.is_empty() || self.objects == other.objects)
    }
}

impl Plan {
    /// An atom that an earlier entry sends anyway is left out.
    fn drop_what_others_send(&mut self) {
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

    fn leave_to_earlier(&mut self, wanted: &[Wanted]) {
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
                        let mean_both = wanted.iter().filter(|wanted| means_both(&wanted.hook, first, second));
                        self.twice.extend(mean_both.map(|wanted| wanted.hook.name.clone()));
                    }
                    left.extend(said.filter(|said| !left.contains(said)));
                }
            }
            entry.left = left;
        }
    }

    /// The hooks of a further segment, asked behind those of this.
    pub(super) fn followed_by(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.twice.extend(other.twice);
        self.one_version |= other.one_version;
        self
    }

    /// Do two entries mean the same objects in different versions, or groups?
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

/// Does a hook mean what the two have in common?
fn means_both(hook: &Hook, first: &Atom, second: &Atom) -> bool {
    atoms_of(hook).iter().any(|atom| atom.overlaps(first) && atom.overlaps(second))
}

/// The atoms of two entries that mean the same request.
fn pairs<'a>(one: &'a [Atom], other: &'a [Atom]) -> impl Iterator<Item = (&'a Atom, &'a Atom)> {
    one.iter().flat_map(move |first| other.iter().map(move |second| (first, second))).filter(|(a, b)| a.overlaps(b))
}

/// Requests that another entry sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentAlready {
    /// `*` is any.
    group: Box<str>,
    resource: Box<str>,
    /// Subresource; "" is none, `*` any.
    sub_resource: Box<str>,
    /// As the client made it; none for any.
    versions: Option<BTreeSet<Box<str>>>,
    operations: BTreeSet<&'static str>,
    scope: &'static str,
    /// Not in these namespaces.
    left_out: Vec<Box<str>>,
}

impl SentAlready {
    /// Requests that both atoms match, and that an entry with the first sends; `None` where there are none, or where an
    /// expression cannot match them.
    ///
    /// Nothing is described that the first entry would not send in a version that every hook of the second takes:
    /// of atoms that differ in their versions, only what is made in one that both name.
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

    /// True of such a request.
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
        // Namespaces count as being in none, and a resource of that name in another group is asked about twice.
        if self.scope == Scope::Namespaced.as_str() {
            all.push(format!("has(request.namespace) && request.namespace != '' && {RESOURCE} != 'namespaces'"));
        } else if self.scope == Scope::Cluster.as_str() {
            all.push("(!has(request.namespace) || request.namespace == '')".into());
        }
        if !self.left_out.is_empty() {
            // Of a namespace itself, labels are looked at that are not to be seen here.
            let names: Vec<String> = self.left_out.iter().map(|name| format!("'{name}'")).collect();
            all.push(format!("{RESOURCE} != 'namespaces'"));
            all.push(format!("(!has(request.namespace) || !(request.namespace in [{}]))", names.join(", ")));
        }
        // Both are about everything.
        if all.is_empty() { "true".into() } else { all.join(" && ") }
    }
}

/// Namespaces whose requests an entry with the first selectors leaves out, and one with the second sees; `None` where
/// it leaves out more than names of namespaces can describe.
pub(super) fn left_out_by<'a>(
    (namespaces, objects): (&'a Selector, &Selector),
    (second_namespaces, second_objects): (&Selector, &Selector),
) -> Option<Vec<&'a str>> {
    // An object may meet one selector by what it was, and another by what it is: only the same is the same.
    if !objects.is_empty() && objects != second_objects {
        return None;
    }
    if is_within(second_namespaces, namespaces) { Some(Vec::new()) } else { names_left_out(namespaces) }
}

/// Fit to stand between quotes.
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

/// Entries of a registration for hooks that share their failure policy and their selectors.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    /// Requests of each entry.
    pub(super) entries: Vec<Vec<Atom>>,
    /// Hooks of which two entries may send the same request.
    pub(super) twice: BTreeSet<Arc<str>>,
}

/// The union of the rules of these hooks.
pub(super) fn union(hooks: &[Arc<Hook>]) -> Union {
    let mut atoms: BTreeMap<Atom, BTreeSet<Arc<str>>> = BTreeMap::new();
    for hook in hooks {
        for atom in atoms_of(hook) {
            atoms.entry(atom).or_default().insert(hook.name.clone());
        }
    }
    let twice = asked_twice(&atoms);
    // The same objects by another group: an apiserver sends them in one of the two, so that a hook that takes this one
    // alone cannot share an entry with one that takes the other.
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

/// Two that contradict each other, and both of which some version satisfies: a request that one entry sends, the
/// other's hooks take as well. A request in a version that both name is left to one of the entries; in one that a hook
/// takes as it was made, Gatepost asks it only then ([`OtherVersions::AskedApart`](crate::review::OtherVersions)). The
/// rest is a request in a version that neither names: each entry may have it converted to one that both do.
fn asked_twice(atoms: &BTreeMap<Atom, BTreeSet<Arc<str>>>) -> BTreeSet<Arc<str>> {
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

/// Atoms put together again: first those that differ in their resource only, then those that differ in their group.
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

/// One for each resource whose new objects must be sent, as if all of its initializers were one mutating hook. Such a hook
/// is never called: a plan only looks at its requests.
fn wanted_by_initializers(snapshot: &Snapshot, hook_type: HookType) -> Vec<Wanted> {
    let needing = snapshot.initializers().iter().filter(|entry| entry.need_requests());
    let hooks = needing.filter_map(|entry| match hook_type {
        HookType::Mutating => Some(coverage::as_a_hook(entry)),
        HookType::Validating => coverage::as_a_guard(entry),
    });
    hooks.map(|hook| Wanted { closed: hook.failure_policy != FailurePolicy::Ignore, hook: Arc::new(hook) }).collect()
}

#[cfg(test)]
mod tests;

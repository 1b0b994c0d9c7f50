//! Plan: the entries of a registration, such that each request is sent once, under no harder a failure policy than its
//! hooks have, and nothing is sent that they leave out.
//!
//! Hooks of one failure policy and the same selectors share entries. Where two entries match the same request, the
//! later one leaves it to the earlier by a matchCondition: whichever entry sends a request, Gatepost asks every hook
//! about it. A request that cannot be left to another entry for certain is sent by both, and the hooks are named: never
//! is it sent by none.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    conditions::{SentAlready, left_out_by},
    selectors::{common, is_within, names_left_out, without},
    union::{Atom, atoms_of, union},
};
use crate::model::{Hook, Selector, registration::Segment};

/// Most kinds of selectors that have entries of their own under one failure policy; more share what they have in
/// common.
const MOST_CLASSES: usize = 8;
/// Of the 64 conditions that one webhook may have.
const MOST_CONDITIONS: usize = 60;

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
    if classes.len() <= MOST_CLASSES {
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
                    let said = said.filter(|said| left.len() < MOST_CONDITIONS || left.contains(said));
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

#[cfg(test)]
mod tests;

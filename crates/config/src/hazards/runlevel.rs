//! Runlevels: the order in which namespaces start, and hooks that block namespaces of a lower level than their own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    finding::FindingDraft,
    levels::{HOOKS, LABEL, SYSTEM, groups, levels_up_to, stated},
    mend::{Mend, written_selector},
    severity::Severity,
    startup::SYSTEM_REQUESTS,
    view::{HookView, POD, Request, Sees, View, by_rules, listed},
};
use crate::{NO_PAUSE, Snapshot};
use gatepost_api::selector::Requirement;

/// Reports a hook over a namespace that must run before the hook, by its label. (kube-system has a finding of its own.)
pub(super) fn guards_lower_runlevel(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let namespaces = view.namespaces().into_iter().filter(|(name, _)| *name != SYSTEM[0]);
    let levels = namespaces.filter_map(|(name, labels)| Some((name, stated(Some(labels))?)));
    let levels: Vec<(&str, u32)> = levels.collect();
    let lower = |own: u32| levels.iter().copied().filter(move |(_, level)| *level < own);
    for (number, seen) in view.fail_closed_hooks() {
        // Rules do not compare a namespace's name, so match them once: there may be thousands of namespaces.
        let about: Vec<Request> =
            SYSTEM_REQUESTS.into_iter().filter(|request| by_rules(seen, *request, SYSTEM[0])).collect();
        if about.is_empty() {
            continue;
        }
        let own = seen.home.as_deref().and_then(|home| stated(view.labels(home))).unwrap_or(HOOKS);
        let (mut asked, mut about) =
            (Vec::new(), about.into_iter().map(|request| (request, Sees::No)).collect::<Vec<_>>());
        for (name, level) in lower(own) {
            let mut surest = Sees::No;
            for (request, sees) in &mut about {
                let here = view.selects(seen, *request, name);
                (surest, *sees) = (surest.max(here), here.max(*sees));
            }
            if surest != Sees::No {
                asked.push((name, level));
            }
        }
        let Some(surest) = about.iter().map(|(_, sees)| *sees).max().filter(|sees| *sees != Sees::No) else { continue };
        let written = about.iter().filter(|(_, sees)| *sees != Sees::No);
        let mut nouns: Vec<String> = written.map(|(request, _)| request.noun()).collect();
        nouns.sort_unstable();
        found.push(FindingDraft {
            rule: "guards-lower-runlevel",
            severity: surest.worth(Severity::Danger),
            what: format!(
                "{seen}, of runlevel {own}, {} {} in namespaces of a lower one: {}",
                seen.must(),
                listed(nouns),
                listed(asked.iter().map(|(name, level)| format!("{name} ({level})"))),
            ),
            why: "so while it does not answer, what has to run before it cannot start".to_owned(),
            fix: None,
            outages: &["topolvm/topolvm#57", "cozystack/cozystack#3125"],
            mends: vec![(number, Mend { runlevel: Some(own), ..Mend::default() })],
        });
    }
}

/// The `namespaceSelector` that a hook should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Name of the hook.
    pub hook: String,
    /// File of the entry, and its path in the file.
    pub place: String,
    /// Namespace of the hook's pods, if it is known.
    pub namespace: Option<String>,
    /// Runlevel of the hook.
    pub level: u32,
    /// The entry's `namespaceSelector`, with all levels up to the hook's own excluded.
    pub selector: Value,
}

/// Returns the runlevels of the namespaces in which hooks run, unless `stated` has them: 2 for hooks that depend on no
/// other hook, otherwise one more than the highest hook that must approve their pods. Also returns the selector that
/// each hook should have.
pub fn levels(snapshot: &Snapshot, stated: &dyn Fn(&str) -> Option<u32>) -> (BTreeMap<String, u32>, Vec<Advice>) {
    let view = View::new(snapshot, &[], NO_PAUSE);
    let homes = view.homes();
    let names: Vec<&str> = homes.keys().copied().collect();
    let over_pods: Vec<Vec<&HookView<'_>>> = names.iter().map(|home| view.over_pods(&homes[home])).collect();
    let approves = |other: usize, at: &str| over_pods[other].iter().any(|seen| view.sees(seen, POD, at) != Sees::No);
    let needs = |at: &&str| (0..names.len()).filter(|n| names[*n] != *at && approves(*n, at)).collect();
    let edges: Vec<Vec<usize>> = names.iter().map(needs).collect();
    let mut levels: BTreeMap<String, u32> = BTreeMap::new();
    // A group comes after the groups that it needs, so their levels are known.
    for group in groups(&edges) {
        let needed = group.iter().flat_map(|node| &edges[*node]).filter(|needed| !group.contains(needed));
        let above = needed.filter_map(|needed| levels.get(names[*needed])).max().map_or(0, |level| level + 1);
        for node in group {
            levels.insert(names[node].to_owned(), stated(names[node]).unwrap_or(above.max(HOOKS)));
        }
    }
    // Hooks that fail open block no pods, but need a level, too.
    for home in view.hooks.iter().filter_map(|seen| seen.home.as_deref()) {
        levels.entry(home.to_owned()).or_insert_with(|| stated(home).unwrap_or(HOOKS));
    }
    let advice = |seen: &HookView<'_>| {
        let level = seen.home.as_deref().and_then(|home| levels.get(home)).copied().unwrap_or(HOOKS);
        let mut requirements = seen.hook.namespace_selector.0.clone();
        requirements.retain(|requirement| !matches!(requirement, Requirement::NotIn(key, _) if **key == *LABEL));
        let values = levels_up_to(level).into_iter().map(String::into_boxed_str).collect();
        requirements.push(Requirement::NotIn(LABEL.into(), values));
        Advice {
            hook: seen.hook.name.as_ref().into(),
            place: format!("{}: {}", seen.origin.file, seen.origin.path),
            namespace: seen.home.as_deref().map(Into::into),
            level,
            selector: written_selector(&requirements),
        }
    };
    let advice = view.hooks.iter().map(advice).collect();
    (levels, advice)
}

//! Runlevels: which namespaces have to run before which, and hooks that stand in the way of one below their own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    finding::FindingDraft,
    levels::{HOOKS, LABEL, SYSTEM, groups, levels_up_to, stated},
    mend::{Mend, written_selector},
    severity::Severity,
    startup::WRITTEN,
    view::{HookView, POD, Request, Sees, View, by_rules, listed},
};
use crate::{NO_PAUSE, Snapshot};
use gatepost_api::selector::Requirement;

/// A hook over a namespace whose label says that it has to run before the hook does. (kube-system has a finding of its
/// own.)
pub(super) fn look(view: &View<'_>, found: &mut Vec<FindingDraft>) {
    let namespaces = view.namespaces().into_iter().filter(|(name, _)| *name != SYSTEM[0]);
    let levels = namespaces.filter_map(|(name, labels)| Some((name, stated(Some(labels))?)));
    let levels: Vec<(&str, u32)> = levels.collect();
    let lower = |own: u32| levels.iter().copied().filter(move |(_, level)| *level < own);
    for (number, seen) in view.closed() {
        // Rules do not look at a namespace's name, and there may be thousands of namespaces.
        let about: Vec<Request> = WRITTEN.into_iter().filter(|request| by_rules(seen, *request, SYSTEM[0])).collect();
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

/// The selector that a hook should carry, by what it has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The hook's name.
    pub hook: String,
    /// The file its entry stands in, and its place there.
    pub place: String,
    /// The namespace it runs in, where that is known.
    pub namespace: Option<String>,
    /// Its runlevel.
    pub level: u32,
    /// The entry's `namespaceSelector` with all levels up to its own left out.
    pub selector: Value,
}

/// The runlevels of the namespaces that hooks run in, as far as `stated` does not say them already: 2 for hooks that
/// depend on no other, and one more than the highest hook that must approve their pods for others. Beside them, the
/// selector that each hook should carry.
pub fn levels(snapshot: &Snapshot, stated: &dyn Fn(&str) -> Option<u32>) -> (BTreeMap<String, u32>, Vec<Advice>) {
    let view = View::new(snapshot, &[], NO_PAUSE);
    let homes = view.homes();
    let names: Vec<&str> = homes.keys().copied().collect();
    let over_pods: Vec<Vec<&HookView<'_>>> = names.iter().map(|home| view.over_pods(&homes[home])).collect();
    let approves = |other: usize, at: &str| over_pods[other].iter().any(|seen| view.sees(seen, POD, at) != Sees::No);
    let needs = |at: &&str| (0..names.len()).filter(|n| names[*n] != *at && approves(*n, at)).collect();
    let edges: Vec<Vec<usize>> = names.iter().map(needs).collect();
    let mut levels: BTreeMap<String, u32> = BTreeMap::new();
    // A group comes after what it needs, whose levels are known by then.
    for group in groups(&edges) {
        let needed = group.iter().flat_map(|node| &edges[*node]).filter(|needed| !group.contains(needed));
        let above = needed.filter_map(|needed| levels.get(names[*needed])).max().map_or(0, |level| level + 1);
        for node in group {
            levels.insert(names[node].to_owned(), stated(names[node]).unwrap_or(above.max(HOOKS)));
        }
    }
    // Hooks that fail open hold nobody up, and have to run as well.
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

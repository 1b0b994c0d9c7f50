//! Levels: the label that gives a namespace its runlevel, and the order in which objects depend on others to start.

use std::collections::BTreeMap;

use gatepost_api::{Labels, selector::Requirement};
use serde_json::Value;

use super::{
    finding::{FindingDraft, Severity},
    mend::{Mend, written_selector},
    startup::WRITTEN,
    view::{HookView, POD, Request, Sees, View, by_rules, listed},
};
use crate::{NO_PAUSE, Snapshot};

/// The label that says a namespace's runlevel: a number.
pub const LABEL: &str = "gatepost.dev/runlevel";

/// The runlevel of hooks that depend on no other hook.
pub const HOOKS: u32 = 2;

/// The namespaces of the control plane: runlevel 0.
pub const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Level in a label, where it is a number.
pub(super) fn stated(labels: Option<&Labels>) -> Option<u32> {
    labels?.get(LABEL)?.parse().ok()
}

/// `0` to this level, as values of the label.
pub(super) fn levels_up_to(level: u32) -> Vec<String> {
    /// More are never in use; a label may say anything.
    const MAX_LEVEL: u32 = 99;
    (0..=level.min(MAX_LEVEL)).map(|level| level.to_string()).collect()
}

/// Groups of nodes that can all reach each other, found by Tarjan's method. `edges[n]` are the nodes that n needs. A
/// group comes after every group that it needs; the nodes in it ascend.
pub(super) fn groups(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        order: vec![None; edges.len()],
        low: vec![0; edges.len()],
        is_open: vec![false; edges.len()],
        ..Search::default()
    };
    for node in 0..edges.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.groups
}

#[derive(Default)]
struct Search<'a> {
    edges: &'a [Vec<usize>],
    /// Order in which each node was first seen.
    order: Vec<Option<usize>>,
    /// The earliest node that each one reaches.
    low: Vec<usize>,
    seen: usize,
    /// Nodes whose group is not complete.
    open: Vec<usize>,
    is_open: Vec<bool>,
    groups: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Without recursion: a configuration decides how deep this goes.
    fn visit(&mut self, root: usize) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((node, next)) = path.last_mut() {
            let (node, edges) = (*node, self.edges);
            if let Some(&needed) = edges[node].get(*next) {
                *next += 1;
                match self.order[needed] {
                    None => {
                        self.enter(needed);
                        path.push((needed, 0));
                    }
                    Some(order) if self.is_open[needed] => self.low[node] = self.low[node].min(order),
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[*before] = self.low[*before].min(self.low[node]);
            }
            if Some(self.low[node]) == self.order[node] {
                let place = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
                let mut group = self.open.split_off(place);
                group.iter().for_each(|member| self.is_open[*member] = false);
                group.sort_unstable();
                self.groups.push(group);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = Some(self.seen);
        self.low[node] = self.seen;
        self.seen += 1;
        self.open.push(node);
        self.is_open[node] = true;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_each_other_is_one_group_and_comes_after_what_it_needs() {
        let edges = [vec![1], vec![2, 3], vec![0], vec![4], vec![], vec![5, 0]];
        assert_eq!(groups(&edges), [vec![4], vec![3], vec![0, 1, 2], vec![5]]);
        assert_eq!(groups(&[]), [[0; 0]; 0]);
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let edges: Vec<Vec<usize>> = (0..100_000).map(|node| (node + 1..100_000).take(1).collect()).collect();
        assert_eq!(groups(&edges).len(), 100_000);
    }

    proptest::proptest! {
        #[test]
        fn nodes_share_a_group_exactly_when_they_reach_each_other(
            edges in proptest::collection::vec(proptest::collection::vec(0usize..8, 0..4), 8)
        ) {
            let reaches = |from: usize| {
                let mut reached = vec![false; 8];
                let mut open = vec![from];
                while let Some(node) = open.pop() {
                    if !std::mem::replace(&mut reached[node], true) {
                        open.extend(&edges[node]);
                    }
                }
                reached
            };
            let groups = groups(&edges);
            let group_of = |node: usize| groups.iter().position(|group| group.contains(&node));
            for a in 0..8 {
                for b in 0..8 {
                    let both = reaches(a)[b] && reaches(b)[a];
                    proptest::prop_assert_eq!(both, group_of(a) == group_of(b), "{} {}", a, b);
                }
            }
        }
    }
}

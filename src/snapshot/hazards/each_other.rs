//! Hooks that must approve each other's pods.

use super::{
    finding::Found,
    graph::groups,
    mend::Mend,
    requests::{POD, listed},
    severity::Severity,
    view::{Seen, Sees, View},
};

/// Hooks are taken together by the namespace that they run in: who is kept from one of its pods is kept from all.
pub(super) fn look(view: &View<'_>, found: &mut Vec<Found>) {
    let homes = view.homes();
    let names: Vec<&str> = homes.keys().copied().collect();
    // Most hooks are not about pods at all; there may be as many pairs of the others as hooks squared.
    let over_pods: Vec<Vec<&Seen<'_>>> = names.iter().map(|home| view.over_pods(&homes[home])).collect();
    let approves = |other: usize, at: &str| over_pods[other].iter().map(|seen| view.selects(seen, POD, at)).max();
    let edges = |least: Sees| -> Vec<Vec<usize>> {
        let needs = |at: &&str| -> Vec<usize> {
            let others = (0..names.len()).filter(|other| names[*other] != *at);
            others.filter(|other| approves(*other, at).is_some_and(|sees| sees >= least)).collect()
        };
        names.iter().map(needs).collect()
    };
    let sure = groups(&edges(Sees::Yes));
    for group in groups(&edges(Sees::Perhaps)).into_iter().filter(|group| group.len() > 1) {
        let parts: Vec<_> = sure.iter().filter(|part| part.len() > 1 && group.contains(&part[0])).collect();
        match parts.is_empty() {
            true => found.extend(mutual_finding(view, &group, &names, Sees::Perhaps)),
            false => found.extend(parts.into_iter().flat_map(|part| mutual_finding(view, part, &names, Sees::Yes))),
        }
    }
}

fn mutual_finding(view: &View<'_>, group: &[usize], names: &[&str], sure: Sees) -> Option<Found> {
    let homes: Vec<&str> = group.iter().map(|place| names[*place]).collect();
    let asked_elsewhere = |number: &usize| {
        let seen = &view.hooks[*number];
        let elsewhere = homes.iter().filter(|home| Some(**home) != seen.home.as_deref());
        let mut sees = elsewhere.map(|home| view.sees(seen, POD, home));
        sees.any(|sees| sees >= sure)
    };
    let by_home = view.homes();
    let mut hooks: Vec<usize> = homes.iter().flat_map(|home| &by_home[home]).copied().filter(asked_elsewhere).collect();
    hooks.sort_unstable();
    let named = |number: &usize| format!("{:?}", view.hooks[*number].hook.name);
    let nouns = match hooks.iter().any(|number| view.hooks[*number].initializes.is_some()) {
        true => "hooks and initializers",
        false => "hooks",
    };
    Some(Found {
        rule: "approve-each-others-pods",
        severity: sure.worth(Severity::Deadlock),
        what: format!(
            "{nouns} {} run in the namespaces {} and must approve each other's new pods",
            listed(hooks.iter().map(named)),
            listed(homes.iter().map(ToString::to_string)),
        ),
        why: format!(
            "so once all of them are down, as after a power cut, none can start before another has{}",
            sure.unless(),
        ),
        fix: None,
        outages: &["defenseunicorns/uds-core#1795", "kubernetes/website#46798"],
        mends: hooks.into_iter().map(|number| (number, Mend::namespaces(homes.iter().copied()))).collect(),
    })
}

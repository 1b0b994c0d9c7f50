//! Plan: which namespace should have which runlevel, and why. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::Labels,
    snapshot::{
        Snapshot,
        hazards::{Advice, LABEL, SYSTEM, levels},
    },
};

/// Facts beside the configuration.
#[derive(Debug, Default)]
pub(super) struct ClusterFacts {
    /// The namespaces of the cluster, where one was asked.
    pub(super) cluster: Option<BTreeMap<String, Labels>>,
    /// Namespaces of add-ons that hooks rest on.
    pub(super) add_ons: BTreeSet<String>,
    /// Are labels replaced that say something else?
    pub(super) force: bool,
}

/// A namespace with a runlevel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) name: String,
    /// Value that the label should have: the present one, where that is kept.
    pub(super) level: String,
    /// Present value.
    pub(super) was: Option<String>,
    /// Is there such a namespace? True where no cluster was asked.
    pub(super) exists: bool,
}

impl Planned {
    /// Is there something to do?
    pub(super) fn changes(&self) -> bool {
        self.exists && self.was.as_ref() != Some(&self.level)
    }
}

/// Every runlevel that is to be, and what hooks should select by.
#[derive(Debug)]
pub(super) struct Plan {
    /// Namespaces by name.
    pub(super) namespaces: Vec<Planned>,
    /// Namespaces that need no label.
    pub(super) unlabelled: Vec<String>,
    pub(super) hooks: Vec<Advice>,
}

/// The plan for these hooks.
///
/// # Errors
/// An add-on's namespace that the cluster does not have, or that is the system's own.
pub(super) fn plan(snapshot: Snapshot, known: &ClusterFacts) -> Result<Plan, String> {
    if let Some(system) = known.add_ons.iter().find(|name| SYSTEM.contains(&&***name)) {
        return Err(format!(
            "--add-on names {system}, which has runlevel 0 already, below all add-ons: what runs there, as the cluster's \
             DNS mostly does, needs no --add-on; leave the flag out"
        ));
    }
    let own = snapshot.namespaces().map(|(name, labels)| (name.to_owned(), labels.clone()));
    let mut all: BTreeMap<String, Labels> = own.collect();
    if let Some(cluster) = &known.cluster {
        all.extend(cluster.iter().map(|(name, labels)| (name.clone(), labels.clone())));
    }
    let label = |name: &str| all.get(name).and_then(|labels| labels.get(LABEL)).map(ToOwned::to_owned);
    let given = |name: &str| match () {
        () if SYSTEM.contains(&name) => Some(0),
        () if known.add_ons.contains(name) => Some(1),
        () => None,
    };
    let kept = |name: &str| label(name).filter(|_| !known.force);
    // A label that is no number says nothing of those above it.
    let stated = |name: &str| kept(name).map_or_else(|| given(name), |label| label.parse().ok());
    let labelled = all.iter().map(|(name, labels)| (name.as_str().into(), labels.clone()));
    let snapshot = snapshot.with_namespaces(labelled.collect::<Vec<_>>());
    let (homes, hooks) = levels(&snapshot, &stated);
    let exists = |name: &str| known.cluster.as_ref().is_none_or(|cluster| cluster.contains_key(name));
    if let Some(absent) = known.add_ons.iter().find(|name| !exists(name)) {
        return Err(format!(
            "the cluster has no namespace {absent}, which --add-on names; correct the name, or leave the flag out for an \
             add-on that runs in kube-system, as the cluster's DNS mostly does"
        ));
    }
    let names = all.keys().map(String::as_str).chain(SYSTEM).chain(known.add_ons.iter().map(String::as_str));
    let names: BTreeSet<&str> = names.chain(homes.keys().map(String::as_str)).collect();
    let (mut namespaces, mut unlabelled) = (Vec::new(), Vec::new());
    for name in names {
        let was = label(name);
        let computed = given(name).or_else(|| homes.get(name).copied()).map(|level| level.to_string());
        match kept(name).or(computed).or_else(|| was.clone()) {
            Some(level) => {
                namespaces.push(Planned { name: name.to_owned(), level, was, exists: exists(name) });
            }
            None => unlabelled.push(name.to_owned()),
        }
    }
    Ok(Plan { namespaces, unlabelled, hooks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SourceFile, load};

    const HOOK: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
        externalAdmissionHooks: [{name: a, clientConfig: {service: {namespace: policy, name: hook}}, rules: []}]\n";

    fn hooks() -> Snapshot {
        let file = SourceFile { name: "a.yaml".into(), bytes: HOOK.into() };
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
    }

    fn cluster(labels: &[(&str, &str)]) -> BTreeMap<String, Labels> {
        let labelled = |(name, level): &(&str, &str)| {
            let labels: Labels = Some((LABEL, *level)).filter(|(_, level)| !level.is_empty()).into_iter().collect();
            ((*name).to_owned(), labels)
        };
        labels.iter().map(labelled).collect()
    }

    fn levels(plan: &Plan) -> Vec<(&str, &str, bool)> {
        plan.namespaces.iter().map(|it| (&*it.name, &*it.level, it.changes())).collect()
    }

    #[test]
    fn without_a_cluster_the_known_ones_are_planned() {
        let plan = plan(hooks(), &ClusterFacts { add_ons: ["kube-dns".to_owned()].into(), ..ClusterFacts::default() })
            .unwrap();
        let all = [("kube-dns", "1"), ("kube-node-lease", "0"), ("kube-public", "0"), ("kube-system", "0")];
        let mut all: Vec<_> = all.into_iter().map(|(name, level)| (name, level, true)).collect();
        all.push(("policy", "2", true));
        assert_eq!((levels(&plan), plan.hooks[0].level), (all, 2));
    }

    #[test]
    fn what_a_label_says_is_kept_unless_forced() {
        let namespaces = cluster(&[("kube-system", "9"), ("policy", "core"), ("shop", ""), ("network", "1")]);
        let mut known = ClusterFacts { cluster: Some(namespaces), ..ClusterFacts::default() };
        let kept = plan(hooks(), &known).unwrap();
        let unchanged = [("kube-system", "9", false), ("network", "1", false), ("policy", "core", false)];
        let present = |plan: &Plan| plan.namespaces.iter().filter(|it| it.exists).count();
        assert_eq!((present(&kept), kept.unlabelled.clone()), (3, vec!["shop".to_owned()]));
        for expected in unchanged {
            assert!(levels(&kept).contains(&expected), "{expected:?}: {kept:?}");
        }
        known.force = true;
        let forced = plan(hooks(), &known).unwrap();
        for expected in [("kube-system", "0", true), ("network", "1", false), ("policy", "2", true)] {
            assert!(levels(&forced).contains(&expected), "{expected:?}: {forced:?}");
        }
    }

    #[test]
    fn what_the_cluster_does_not_have_is_not_changed_and_an_add_on_must_be_there() {
        let mut known = ClusterFacts { cluster: Some(cluster(&[("kube-system", "")])), ..ClusterFacts::default() };
        let planned = plan(hooks(), &known).unwrap();
        let changes: Vec<_> = planned.namespaces.iter().filter(|it| it.changes()).map(|it| &*it.name).collect();
        assert_eq!(changes, ["kube-system"]);
        known.add_ons = ["dns".to_owned()].into();
        assert!(plan(hooks(), &known).unwrap_err().contains("no namespace dns"));
        known.add_ons = ["kube-system".to_owned()].into();
        assert!(plan(hooks(), &known).unwrap_err().contains("needs no --add-on; leave the flag out"));
    }
}

//! Served: in which versions an apiserver serves a resource, as far as that is known.
//!
//! Rules under `matchPolicy: Equivalent` match a resource in every version in which its objects are served. Of an
//! unknown resource every version is possible: a hook is then named rather than passed over.

use std::collections::BTreeMap;

use super::{Gvr, builtin};

/// The versions of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions<'a> {
    /// Any may be one.
    Unknown,
    /// Versions of Kubernetes' own resources.
    BuiltIn(&'a [&'a str]),
    /// Versions that an apiserver serves, by its discovery.
    Listed(&'a [Box<str>]),
}

impl<'a> Versions<'a> {
    /// Is it so of one of them? Of an unknown one it may be.
    pub fn may(self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Unknown => true,
            Self::BuiltIn(all) => all.iter().any(|version| is(version)),
            Self::Listed(all) => all.iter().any(|version| is(version)),
        }
    }

    /// The first of which it is so, where they are known.
    pub fn find(self, is: impl Fn(&str) -> bool) -> Option<&'a str> {
        match self {
            Self::Unknown => None,
            Self::BuiltIn(all) => all.iter().copied().find(|version| is(version)),
            Self::Listed(all) => all.iter().map(AsRef::as_ref).find(|version| is(version)),
        }
    }
}

/// Resources that an apiserver says it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    groups: BTreeMap<Box<str>, Group>,
    /// Nothing of it could be read: each group may be served in any version.
    unread: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    resources: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// A version of it could not be had: there may be more.
    doubtful: bool,
}

impl Served {
    /// An apiserver that serves something, and nobody knows what.
    pub const UNREAD: &'static Self = &Self { groups: BTreeMap::new(), unread: true };

    /// The group serves this resource in that version.
    pub fn add(&mut self, group: &str, version: &str, resource: &str) {
        let versions = self.groups.entry(group.into()).or_default().resources.entry(resource.into()).or_default();
        if !versions.iter().any(|known| **known == *version) {
            versions.push(version.into());
        }
    }

    /// Marks a group of which one version's resources could not be read.
    pub fn doubt(&mut self, group: &str) {
        self.groups.entry(group.into()).or_default().doubtful = true;
    }

    /// Takes in what another part of the apiserver serves.
    pub fn join(&mut self, other: &Self) {
        self.groups.extend(other.groups.iter().map(|(group, resources)| (group.clone(), resources.clone())));
    }

    /// Number of resources, each counted once.
    pub fn len(&self) -> usize {
        self.groups.values().map(|group| group.resources.len()).sum()
    }

    /// Does it serve nothing?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Is a resource that there is newer than this? One of a group that cannot be had may have been there before.
    pub fn is_older_than(&self, group: &str, resource: &str) -> bool {
        let lacks = |found: &Group| !found.resources.contains_key(resource);
        !self.is_doubtful(group) && self.groups.get(group).is_none_or(lacks)
    }

    /// May the group have versions that are not known?
    fn is_doubtful(&self, group: &str) -> bool {
        self.unread || self.groups.get(group).is_some_and(|found| found.doubtful)
    }
}

/// The versions of a resource that there is; `served`: `None` where no apiserver is followed. Where it is newer than what
/// is known, nothing is, and where an apiserver is followed but cannot be read, nothing is either: it may serve what our
/// table does not have. Allocates nothing.
pub fn versions<'a>(served: Option<&'a Served>, group: &str, resource: &str) -> Versions<'a> {
    if served.is_some_and(|served| served.is_doubtful(group)) {
        return Versions::Unknown;
    }
    let group_served = served.and_then(|served| served.groups.get(group));
    match group_served.and_then(|found| found.resources.get(resource)) {
        Some(listed) => Versions::Listed(listed),
        None => built_in(group, resource),
    }
}

/// The version by which to name a resource in an answer, of those of which it is so: one that is known to be served, or
/// else one that our table has.
pub(super) fn likely<'a>(
    versions: Versions<'a>,
    (group, resource): (&str, &str),
    is: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    match versions {
        Versions::Unknown => built_in(group, resource).find(is),
        known => known.find(is),
    }
}

/// The versions of a resource that may not be there at all: the same objects in another group.
pub(super) fn versions_if_any<'a>(served: Option<&'a Served>, group: &str, resource: &str) -> Versions<'a> {
    match served {
        Some(served) if served.is_doubtful(group) => Versions::Unknown,
        Some(served) => {
            let found = served.groups.get(group).and_then(|found| found.resources.get(resource));
            Versions::Listed(found.map_or(&[], Vec::as_slice))
        }
        None => built_in(group, resource),
    }
}

fn built_in(group: &str, resource: &str) -> Versions<'static> {
    builtin(group, resource).map_or(Versions::Unknown, |known| Versions::BuiltIn(known.versions))
}

/// `group/version, Resource=resource` for an object that is in another version.
pub(super) fn in_version(resource: &Gvr, group: &str, version: &str) -> Gvr {
    Gvr { group: group.into(), version: version.into(), resource: resource.resource.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_versions<'a>(served: &'a Served, group: &str, resource: &str) -> Vec<&'a str> {
        match versions(Some(served), group, resource) {
            Versions::Listed(all) => all.iter().map(AsRef::as_ref).collect(),
            Versions::BuiltIn(all) => all.to_vec(),
            Versions::Unknown => vec!["?"],
        }
    }

    #[test]
    fn an_apiservers_word_goes_before_the_table_and_the_table_before_nothing() {
        let mut served = Served::default();
        served.add("apps", "v1", "deployments");
        served.add("example.com", "v1", "widgets");
        served.add("example.com", "v2", "widgets");
        served.add("example.com", "v2", "widgets");
        served.add("metrics.example.com", "v1", "things");
        served.doubt("metrics.example.com");
        assert_eq!(known_versions(&served, "apps", "deployments"), ["v1"]);
        assert_eq!(known_versions(&served, "example.com", "widgets"), ["v1", "v2"]);
        assert_eq!(known_versions(&served, "batch", "jobs"), ["v1"], "newer than what is known, and built in");
        assert_eq!(known_versions(&served, "example.com", "gadgets"), ["?"], "newer than what is known");
        assert_eq!(
            known_versions(&served, "metrics.example.com", "things"),
            ["?"],
            "a version of the group is not known"
        );
        assert_eq!(versions(None, "example.com", "widgets"), Versions::Unknown);
        assert_eq!(served.len(), 3);
        let older = [("example.com", "gadgets"), ("new.example.com", "widgets")];
        assert!(older.iter().all(|(group, resource)| served.is_older_than(group, resource)));
        let known = [("example.com", "widgets"), ("metrics.example.com", "others")];
        assert!(!known.iter().any(|(group, resource)| served.is_older_than(group, resource)));
    }

    #[test]
    fn a_version_outside_the_table_is_not_served_and_an_unknown_resource_may_be_in_any() {
        let is = |version: &'static str| move |known: &str| known == version;
        let built_in = versions(None, "batch", "cronjobs");
        assert_eq!(built_in, Versions::BuiltIn(&["v1", "v1beta1", "v2alpha1"]));
        for version in ["v2", "v9", "v1beta9", "batch/v1", ""] {
            assert!(!built_in.may(is(version)), "{version}");
        }
        assert!(built_in.may(is("v1beta1")));
        assert!(versions(None, "example.com", "widgets").may(is("v9")));
    }

    #[test]
    fn the_same_objects_in_another_group_may_not_be_served() {
        let mut served = Served::default();
        served.add("networking.k8s.io", "v1", "ingresses");
        let elsewhere = |served: Option<&Served>| {
            versions_if_any(served, "extensions", "ingresses").find(|_| true).map(str::to_owned)
        };
        assert_eq!(elsewhere(Some(&served)), None);
        assert_eq!(elsewhere(None).as_deref(), Some("v1beta1"));
        served.doubt("extensions");
        assert_eq!(versions_if_any(Some(&served), "extensions", "ingresses"), Versions::Unknown);
        let likely = likely(Versions::Unknown, ("extensions", "ingresses"), |_| true);
        assert_eq!(likely, Some("v1beta1"), "as our table has it");
    }

    #[test]
    fn an_apiserver_that_cannot_be_read_may_serve_what_the_table_has_not() {
        assert_eq!(versions(Some(Served::UNREAD), "batch", "cronjobs"), Versions::Unknown);
        assert_eq!(versions_if_any(Some(Served::UNREAD), "events.k8s.io", "events"), Versions::Unknown);
        assert!(!Served::UNREAD.is_older_than("batch", "cronjobs") && Served::UNREAD.is_empty());
        let mut served = Served::default();
        served.add("batch", "v1", "cronjobs");
        served.doubt("batch");
        assert_eq!(versions(Some(&served), "batch", "cronjobs"), Versions::Unknown);
        assert!(
            matches!(versions(Some(&served), "apps", "deployments"), Versions::BuiltIn(_)),
            "newer than what is read"
        );
    }
}

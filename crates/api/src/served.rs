//! Served: the resources that an apiserver serves, with their versions, as far as known. AdoptionCondition: the match
//! condition that Gatepost adds to another party's webhook to call it in the apiserver's place.
//!
//! Rules under `matchPolicy: Equivalent` match a resource in every version in which its objects are served. An unknown
//! resource is assumed to be served in any version, so that the call of a hook fails rather than be skipped.

use std::{collections::BTreeMap, fmt};

use super::{
    Gvr, builtin,
    registration::{SERVED, SERVED_BUT_EXEMPT},
};

/// The versions in which one resource is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions<'a> {
    /// Not known: any version is possible.
    Unknown,
    /// Versions of a built-in resource of Kubernetes.
    BuiltinTable(&'a [&'a str]),
    /// Versions that an apiserver's discovery lists.
    Listed(&'a [Box<str>]),
}

impl<'a> Versions<'a> {
    /// Returns true if `is` returns true for one of the versions, or if they are unknown.
    pub fn may_match(self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Unknown => true,
            Self::BuiltinTable(all) => all.iter().any(|version| is(version)),
            Self::Listed(all) => all.iter().any(|version| is(version)),
        }
    }

    /// Returns the first version for which `is` returns true; `None` if there is none, or the versions are unknown.
    pub fn find(self, is: impl Fn(&str) -> bool) -> Option<&'a str> {
        match self {
            Self::Unknown => None,
            Self::BuiltinTable(all) => all.iter().copied().find(|version| is(version)),
            Self::Listed(all) => all.iter().map(AsRef::as_ref).find(|version| is(version)),
        }
    }
}

/// Resources that an apiserver serves, by its discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    groups: BTreeMap<Box<str>, Group>,
    /// True if no discovery is usable: each resource might be served in any version.
    unknown: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    resources: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// True if a version of the group could not be read: the group might have more resources.
    incomplete: bool,
}

impl Served {
    /// The resources of an apiserver whose discovery is unknown.
    pub const UNKNOWN: &'static Self = &Self { groups: BTreeMap::new(), unknown: true };

    /// Records that the group serves this resource in that version.
    pub fn add(&mut self, group: &str, version: &str, resource: &str) {
        let versions = self.groups.entry(group.into()).or_default().resources.entry(resource.into()).or_default();
        if !versions.iter().any(|known| **known == *version) {
            versions.push(version.into());
        }
    }

    /// Marks a group as incomplete, because one version's resources could not be read.
    pub fn doubt(&mut self, group: &str) {
        self.groups.entry(group.into()).or_default().incomplete = true;
    }

    /// Adds the groups that another part of the apiserver serves.
    pub fn join(&mut self, other: &Self) {
        self.groups.extend(other.groups.iter().map(|(group, resources)| (group.clone(), resources.clone())));
    }

    /// Returns the number of resources, each counted once.
    pub fn len(&self) -> usize {
        self.groups.values().map(|group| group.resources.len()).sum()
    }

    /// Returns true if there are no resources.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the apiserver did not serve the resource when its discovery was read. Returns false if the group
    /// may be incomplete.
    pub fn is_known_to_lack(&self, group: &str, resource: &str) -> bool {
        let lacks = |found: &Group| !found.resources.contains_key(resource);
        !self.may_be_incomplete(group) && self.groups.get(group).is_none_or(lacks)
    }

    /// Returns true if the group might have versions or resources that are not known.
    fn may_be_incomplete(&self, group: &str) -> bool {
        self.unknown || self.groups.get(group).is_some_and(|found| found.incomplete)
    }
}

/// Returns the versions of an existing resource. Uses the built-in table if `served` is `None`, or lacks
/// the resource, which may be newer than the discovery. If the group
/// could not be read, returns [`Versions::Unknown`], as the apiserver may serve versions that the table lacks. Does not
/// allocate.
pub fn versions<'a>(served: Option<&'a Served>, group: &str, resource: &str) -> Versions<'a> {
    if served.is_some_and(|served| served.may_be_incomplete(group)) {
        return Versions::Unknown;
    }
    let group_served = served.and_then(|served| served.groups.get(group));
    match group_served.and_then(|found| found.resources.get(resource)) {
        Some(listed) => Versions::Listed(listed),
        None => built_in(group, resource),
    }
}

/// Returns the first version for which `is` returns true, to name the resource in an answer; `None` if there is none.
/// If the versions are unknown, those of the built-in table are tried.
pub(super) fn preferred_version<'a>(
    versions: Versions<'a>,
    (group, resource): (&str, &str),
    is: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    match versions {
        Versions::Unknown => built_in(group, resource).find(is),
        known => known.find(is),
    }
}

/// Like [`versions`], for a resource that shares its objects with another group and may not be served. The list is
/// empty if the resource is known not to be served.
pub(super) fn versions_if_served<'a>(served: Option<&'a Served>, group: &str, resource: &str) -> Versions<'a> {
    match served {
        Some(served) if served.may_be_incomplete(group) => Versions::Unknown,
        Some(served) => {
            let found = served.groups.get(group).and_then(|found| found.resources.get(resource));
            Versions::Listed(found.map_or(&[], Vec::as_slice))
        }
        None => built_in(group, resource),
    }
}

fn built_in(group: &str, resource: &str) -> Versions<'static> {
    builtin(group, resource).map_or(Versions::Unknown, |known| Versions::BuiltinTable(known.versions))
}

/// Returns the resource in another group and version.
pub(super) fn in_version(resource: &Gvr, group: &str, version: &str) -> Gvr {
    Gvr { group: group.into(), version: version.into(), resource: resource.resource.clone() }
}

/// Maximum number of namespaces in one condition.
const MAX_NAMESPACES: usize = 100;

/// Beginning and end of the expression that is true in some namespaces, around their names. It tests the value that a
/// namespaceSelector tests, so that for each request either Gatepost or the apiserver calls the webhook: labels of the
/// object if a namespace is created or updated, otherwise the namespace of the request
/// (`docs/reference/webhook-semantics.md` §4.3). It reads nothing that may be absent.
const NAMESPACES_EXPRESSION: (&str, &str) = (
    "(request.resource.resource == 'namespaces' && request.operation in ['CREATE', 'UPDATE'] && \
     (!has(request.subResource) || request.subResource == '') ? \
     (has(object.metadata.labels) && 'kubernetes.io/metadata.name' in object.metadata.labels ? \
     object.metadata.labels['kubernetes.io/metadata.name'] : '') : \
     (has(request.namespace) ? request.namespace : '')) in ['",
    "']",
);
const BETWEEN: &str = "', '";
const OR: &str = " || ";

/// The match condition that Gatepost adds to another party's webhook. The apiserver calls the webhook only for requests
/// for which the condition is true; Gatepost calls it for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdoptionCondition {
    /// True if the condition is true for exempt resources, for which Gatepost calls no hooks.
    exempt: bool,
    /// Namespaces in which the condition is true, sorted.
    namespaces: Vec<Box<str>>,
}

impl AdoptionCondition {
    /// Parses a match condition; `None` if it is not ours.
    pub fn of(name: &str, expression: &str) -> Option<Self> {
        let expression = expression.trim();
        if name != SERVED.0 {
            return None;
        }
        if expression == SERVED.1 {
            return Some(Self::default());
        }
        let (exempt, rest) = match expression.strip_prefix(SERVED_BUT_EXEMPT) {
            Some("") => return Some(Self { exempt: true, ..Self::default() }),
            Some(rest) => (true, rest.strip_prefix(OR)?),
            None => (false, expression),
        };
        let names = rest.strip_prefix(NAMESPACES_EXPRESSION.0)?.strip_suffix(NAMESPACES_EXPRESSION.1)?;
        let read = Self { exempt, ..Self::default() }.in_namespaces(names.split(BETWEEN));
        // Another order or a duplicate name is equivalent, but we never write it.
        (read.to_string() == expression).then_some(read)
    }

    /// Sets whether the condition is true for exempt resources, for which Gatepost calls no hooks.
    #[must_use]
    pub fn of_exempt(self, exempt: bool) -> Self {
        Self { exempt, ..self }
    }

    /// Sets the namespaces in which the condition is true. Drops invalid names, and all names if there are too many.
    #[must_use]
    pub fn in_namespaces<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut namespaces: Vec<Box<str>> = names.into_iter().filter(|name| is_name(name)).map(Box::from).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        if namespaces.len() > MAX_NAMESPACES {
            namespaces.clear();
        }
        Self { namespaces, ..self }
    }

    /// Returns the namespaces in which the condition is true.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(AsRef::as_ref)
    }
}

/// Returns true if a namespace may have this name. Such a name cannot end a string in an expression.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}

impl fmt::Display for AdoptionCondition {
    /// Writes the expression.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_namespaces = || {
            let (begin, end) = NAMESPACES_EXPRESSION;
            format!("{begin}{}{end}", self.namespaces.join(BETWEEN))
        };
        match (self.exempt, self.namespaces.is_empty()) {
            (false, true) => f.write_str(SERVED.1),
            (true, true) => f.write_str(SERVED_BUT_EXEMPT),
            (false, false) => f.write_str(&in_namespaces()),
            (true, false) => write!(f, "{SERVED_BUT_EXEMPT}{OR}{}", in_namespaces()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_versions<'a>(served: &'a Served, group: &str, resource: &str) -> Vec<&'a str> {
        match versions(Some(served), group, resource) {
            Versions::Listed(all) => all.iter().map(AsRef::as_ref).collect(),
            Versions::BuiltinTable(all) => all.to_vec(),
            Versions::Unknown => vec!["?"],
        }
    }

    #[test]
    fn discovery_takes_precedence_over_builtin_table() {
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
        assert!(older.iter().all(|(group, resource)| served.is_known_to_lack(group, resource)));
        let known = [("example.com", "widgets"), ("metrics.example.com", "others")];
        assert!(!known.iter().any(|(group, resource)| served.is_known_to_lack(group, resource)));
    }

    #[test]
    fn unlisted_version_is_unserved_and_unknown_resource_matches_any() {
        let is = |version: &'static str| move |known: &str| known == version;
        let built_in = versions(None, "batch", "cronjobs");
        assert_eq!(built_in, Versions::BuiltinTable(&["v1", "v1beta1", "v2alpha1"]));
        for version in ["v2", "v9", "v1beta9", "batch/v1", ""] {
            assert!(!built_in.may_match(is(version)), "{version}");
        }
        assert!(built_in.may_match(is("v1beta1")));
        assert!(versions(None, "example.com", "widgets").may_match(is("v9")));
    }

    #[test]
    fn versions_if_served_is_empty_for_unserved_group() {
        let mut served = Served::default();
        served.add("networking.k8s.io", "v1", "ingresses");
        let elsewhere = |served: Option<&Served>| {
            versions_if_served(served, "extensions", "ingresses").find(|_| true).map(str::to_owned)
        };
        assert_eq!(elsewhere(Some(&served)), None);
        assert_eq!(elsewhere(None).as_deref(), Some("v1beta1"));
        served.doubt("extensions");
        assert_eq!(versions_if_served(Some(&served), "extensions", "ingresses"), Versions::Unknown);
        let preferred_version = preferred_version(Versions::Unknown, ("extensions", "ingresses"), |_| true);
        assert_eq!(preferred_version, Some("v1beta1"), "as our table has it");
    }

    #[test]
    fn unreadable_discovery_yields_unknown_versions() {
        assert_eq!(versions(Some(Served::UNKNOWN), "batch", "cronjobs"), Versions::Unknown);
        assert_eq!(versions_if_served(Some(Served::UNKNOWN), "events.k8s.io", "events"), Versions::Unknown);
        assert!(!Served::UNKNOWN.is_known_to_lack("batch", "cronjobs") && Served::UNKNOWN.is_empty());
        let mut served = Served::default();
        served.add("batch", "v1", "cronjobs");
        served.doubt("batch");
        assert_eq!(versions(Some(&served), "batch", "cronjobs"), Versions::Unknown);
        assert!(
            matches!(versions(Some(&served), "apps", "deployments"), Versions::BuiltinTable(_)),
            "newer than what is read"
        );
    }
}

#[cfg(test)]
mod served_condition_tests {
    use super::*;

    #[test]
    fn condition_round_trips_and_rejects_other_expressions() {
        for exempt in [false, true] {
            for names in [&[][..], &["kube-system"], &["gatepost", "kube-node-lease", "kube-system"]] {
                let condition = AdoptionCondition::default().of_exempt(exempt).in_namespaces(names.iter().copied());
                let text = condition.to_string();
                assert_eq!(condition.namespaces().collect::<Vec<_>>(), names);
                assert_eq!(AdoptionCondition::of(SERVED.0, &format!(" {text}\n")), Some(condition), "{text}");
                assert_eq!(AdoptionCondition::of("mine", &text), None);
                for other in [format!("{text} || true"), format!("true || {text}"), format!("!({text})")] {
                    assert_eq!(AdoptionCondition::of(SERVED.0, &other), None, "{other}");
                }
            }
        }
        let (begin, end) = NAMESPACES_EXPRESSION;
        for names in ["b', 'a", "a', 'a", "", "a'] || true || 'x' in ['b", "A"] {
            assert_eq!(AdoptionCondition::of(SERVED.0, &format!("{begin}{names}{end}")), None, "{names}");
        }
    }

    #[test]
    fn condition_drops_invalid_names_and_too_many() {
        let of = |names: &[&str]| AdoptionCondition::default().in_namespaces(names.iter().copied());
        assert_eq!(of(&["b", "a", "b", "", "A", "x'", &"n".repeat(64)]), of(&["a", "b"]));
        let many: Vec<_> = (0..=MAX_NAMESPACES).map(|number| format!("n{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!((of(&many), of(&many[1..]).namespaces().count()), (of(&[]), MAX_NAMESPACES));
    }
}

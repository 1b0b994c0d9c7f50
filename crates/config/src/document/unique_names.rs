//! UniqueNames: names that must be unique, and where each was first used.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::Hash,
};

use super::{
    DocumentKind,
    node::Node,
    problem::{one_line, quoted},
};

/// Names that must be unique among all documents, and where they were first used.
#[derive(Clone, Debug, Default)]
pub(crate) struct UniqueNames {
    pub(crate) objects: HashMap<(DocumentKind, Box<str>), String>,
    pub(crate) hooks: HashMap<Box<str>, String>,
    /// Group and resource.
    pub(crate) resources: HashMap<(Box<str>, Box<str>), String>,
    pub(crate) bypasses: HashMap<Box<str>, String>,
    /// There are documents, or hooks, whose names are unknown.
    pub(crate) unclear: bool,
}

/// A name that must be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UniqueName<'a> {
    Object(DocumentKind, &'a str),
    Hook(&'a str),
    Resource(&'a str, &'a str),
    Bypass(&'a str),
}

impl UniqueName<'_> {
    /// Does something pass unjudged where it is gone? Not where a break-glass is, which the newest state alone opens.
    pub(crate) fn guards(self) -> bool {
        match self {
            Self::Object(kind, _) => kind != DocumentKind::BreakGlass,
            Self::Hook(_) => true,
            Self::Resource(..) | Self::Bypass(_) => false,
        }
    }
}

impl fmt::Display for UniqueName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(kind, name) => write!(f, "{} {}", kind.noun(), quoted(name)),
            Self::Hook(name) => write!(f, "the hook {}", quoted(name)),
            Self::Resource("", resource) => write!(f, "the resource {}", quoted(resource)),
            Self::Resource(group, resource) => write!(f, "the resource {}", quoted(&format!("{resource}.{group}"))),
            Self::Bypass(name) => write!(f, "the bypass {}", quoted(name)),
        }
    }
}

impl UniqueNames {
    /// Every name, and where it is used.
    pub(crate) fn names(&self) -> impl Iterator<Item = (UniqueName<'_>, &str)> {
        let objects = self.objects.iter().map(|((kind, name), at)| (UniqueName::Object(*kind, name), &**at));
        let hooks = self.hooks.iter().map(|(name, at)| (UniqueName::Hook(name), &**at));
        let resources = self.resources.iter().map(|((group, name), at)| (UniqueName::Resource(group, name), &**at));
        let bypasses = self.bypasses.iter().map(|(name, at)| (UniqueName::Bypass(name), &**at));
        objects.chain(hooks).chain(resources).chain(bypasses)
    }

    /// Is this name used?
    pub(crate) fn has(&self, name: UniqueName<'_>) -> bool {
        match name {
            UniqueName::Object(kind, name) => self.objects.contains_key(&(kind, name.into())),
            UniqueName::Hook(name) => self.hooks.contains_key(name),
            UniqueName::Resource(group, name) => self.resources.contains_key(&(group.into(), name.into())),
            UniqueName::Bypass(name) => self.bypasses.contains_key(name),
        }
    }

    /// Is every name used in one of these only?
    pub(crate) fn once<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> bool {
        fn differ<K: Hash + Eq>(names: impl Iterator<Item = K>) -> bool {
            let mut seen = HashSet::new();
            names.into_iter().all(|name| seen.insert(name))
        }
        differ(all.clone().flat_map(|used| used.objects.keys()))
            && differ(all.clone().flat_map(|used| used.hooks.keys()))
            && differ(all.clone().flat_map(|used| used.resources.keys()))
            && differ(all.flat_map(|used| used.bypasses.keys()))
    }
}

/// Reports a name that was used before.
pub(crate) fn first_use<K: Hash + Eq>(
    seen: &mut HashMap<K, String>,
    key: K,
    place: &Node<'_>,
    what: &str,
    shown: &str,
) {
    match seen.get(&key) {
        Some(first) => place.problem(
            format!("{what} {} is already defined at {}", quoted(shown), one_line(first)),
            "and logs, metrics and denials tell them apart by their names",
            "rename one, or remove one",
        ),
        None => _ = seen.insert(key, place.place_name()),
    }
}

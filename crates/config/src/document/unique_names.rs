//! UniqueNames: names that must be unique, and the place of each first use.

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

/// Names that must be unique among all documents, each with the place of its first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct UniqueNames {
    pub(crate) objects: HashMap<(DocumentKind, Box<str>), String>,
    pub(crate) hooks: HashMap<Box<str>, String>,
    /// By group and resource.
    pub(crate) resources: HashMap<(Box<str>, Box<str>), String>,
    pub(crate) bypasses: HashMap<Box<str>, String>,
    /// True if some documents or hooks have unknown names.
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
    /// Returns true if requests may pass without review once the object is gone. A missing break-glass opens nothing.
    pub(crate) fn protects_requests(self) -> bool {
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
    /// Returns every name, and the place of its first use.
    pub(crate) fn names(&self) -> impl Iterator<Item = (UniqueName<'_>, &str)> {
        let objects = self.objects.iter().map(|((kind, name), at)| (UniqueName::Object(*kind, name), &**at));
        let hooks = self.hooks.iter().map(|(name, at)| (UniqueName::Hook(name), &**at));
        let resources = self.resources.iter().map(|((group, name), at)| (UniqueName::Resource(group, name), &**at));
        let bypasses = self.bypasses.iter().map(|(name, at)| (UniqueName::Bypass(name), &**at));
        objects.chain(hooks).chain(resources).chain(bypasses)
    }

    /// Returns true if this name is used.
    pub(crate) fn has(&self, name: UniqueName<'_>) -> bool {
        match name {
            UniqueName::Object(kind, name) => self.objects.contains_key(&(kind, name.into())),
            UniqueName::Hook(name) => self.hooks.contains_key(name),
            UniqueName::Resource(group, name) => self.resources.contains_key(&(group.into(), name.into())),
            UniqueName::Bypass(name) => self.bypasses.contains_key(name),
        }
    }

    /// Returns true if no two of these use the same name.
    pub(crate) fn are_disjoint<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> bool {
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

/// Records the first use of a name; reports any later use.
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

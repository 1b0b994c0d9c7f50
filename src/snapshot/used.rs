//! Used: names that must be unique, and where each was first used.

use std::{collections::HashMap, hash::Hash};

use rustc_hash::FxHashSet;

use super::{
    at::At,
    kind::Kind,
    problem::{one_line, quoted},
};

/// Names that must be unique among all documents, and where they were first used.
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) objects: HashMap<(Kind, Box<str>), String>,
    pub(super) hooks: HashMap<Box<str>, String>,
    /// Group and resource.
    pub(super) resources: HashMap<(Box<str>, Box<str>), String>,
    pub(super) bypasses: HashMap<Box<str>, String>,
}

impl Used {
    /// Is every name used in one of these only?
    pub(super) fn once<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> bool {
        fn differ<K: Hash + Eq>(names: impl Iterator<Item = K>) -> bool {
            let mut seen = FxHashSet::default();
            names.into_iter().all(|name| seen.insert(name))
        }
        differ(all.clone().flat_map(|used| used.objects.keys()))
            && differ(all.clone().flat_map(|used| used.hooks.keys()))
            && differ(all.clone().flat_map(|used| used.resources.keys()))
            && differ(all.flat_map(|used| used.bypasses.keys()))
    }
}

/// Reports a name that was used before.
pub(super) fn first_use<K: Hash + Eq>(seen: &mut HashMap<K, String>, key: K, place: &At<'_>, what: &str, shown: &str) {
    match seen.get(&key) {
        Some(first) => place.problem(
            format!("{what} {} is already defined at {}", quoted(shown), one_line(first)),
            "rename one, or remove one",
        ),
        None => _ = seen.insert(key, place.place_name()),
    }
}

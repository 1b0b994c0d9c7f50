//! Used: names that must be unique, and where each was first used.

use std::{collections::HashMap, hash::Hash};

use super::{at::At, problem::quoted};

/// Reports a name that was used before.
pub(super) fn first_use<K: Hash + Eq>(seen: &mut HashMap<K, String>, key: K, place: &At<'_>, what: &str, shown: &str) {
    match seen.get(&key) {
        Some(first) => place
            .problem(format!("{what} {} is already defined at {first}", quoted(shown)), "rename one, or remove one"),
        None => _ = seen.insert(key, place.place_name()),
    }
}

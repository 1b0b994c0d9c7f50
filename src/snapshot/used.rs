//! Used: names that must be unique, and where each was first used.

use std::{collections::HashMap, hash::Hash};

use super::{
    at::At,
    problem::{one_line, quoted},
};

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

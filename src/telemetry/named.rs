//! Named: counters by a name that the configuration gives.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Beyond this many names, counters that nobody holds any longer are forgotten when a new name comes: a configuration
/// that keeps inventing names must not grow us for ever.
const KEPT: usize = 4096;

/// Counters by name.
#[derive(Debug)]
pub(super) struct Named<T>(Mutex<BTreeMap<Arc<str>, Arc<T>>>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Named<T> {
    /// Value of that name, the same one at every call while it is in use.
    pub(super) fn get(&self, name: &Arc<str>, new: impl FnOnce() -> T) -> Arc<T> {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= KEPT && !named.contains_key(name) {
            named.retain(|_, counters| Arc::strong_count(counters) > 1);
        }
        named.entry(Arc::clone(name)).or_insert_with(|| Arc::new(new())).clone()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, counters)| (Arc::clone(name), Arc::clone(counters))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_nobody_holds_are_forgotten_when_there_are_too_many() {
        let named = Named::default();
        let held = named.get(&"held".into(), || 0);
        for n in 0..KEPT {
            named.get(&format!("{n}").into(), || n);
        }
        assert!(named.all().len() < 10, "{}", named.all().len());
        assert!(Arc::ptr_eq(&held, &named.get(&"held".into(), || 1)));
    }
}

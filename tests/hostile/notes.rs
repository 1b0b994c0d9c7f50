//! Notes: approvals and counts that hooks and callers write down.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

/// Hooks' approvals, and counts of events. Clones are the same notes.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    approvals: HashSet<(String, String)>,
    counts: BTreeMap<String, u64>,
}

impl Notes {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// This hook is about to say yes to the review of that uid.
    pub fn approve(&self, hook: &str, uid: &str) {
        self.written().approvals.insert((hook.to_owned(), uid.to_owned()));
    }

    /// Has it?
    pub fn approved(&self, hook: &str, uid: &str) -> bool {
        self.written().approvals.contains(&(hook.to_owned(), uid.to_owned()))
    }

    /// One more of these.
    pub fn count(&self, what: &str) -> u64 {
        let mut written = self.written();
        let count = written.counts.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Count of that event.
    pub fn counted(&self, what: &str) -> u64 {
        self.written().counts.get(what).copied().unwrap_or_default()
    }

    /// The most often counted thing whose name begins so.
    pub fn most(&self, beginning: &str) -> u64 {
        let written = self.written();
        let of = written.counts.iter().filter(|(what, _)| what.starts_with(beginning));
        of.map(|(_, count)| *count).max().unwrap_or_default()
    }
}

//! LastGoodDocuments: the state of every document that is in force.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::snapshot::{CheckedFile, Problem};

/// The state of every document that is in force: the last good state of those whose newest one is not sound.
#[derive(Clone, Debug, Default)]
pub struct LastGoodDocuments(Arc<[Arc<CheckedFile>]>);

impl LastGoodDocuments {
    pub(crate) fn new(parts: Vec<Arc<CheckedFile>>) -> Self {
        Self(parts.into())
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn parts(&self) -> impl Iterator<Item = &Arc<CheckedFile>> {
        self.0.iter()
    }

    pub(crate) fn by_name(&self) -> HashMap<&str, &Arc<CheckedFile>> {
        self.0.iter().map(|part| (&*part.file().name, part)).collect()
    }

    /// Are these the same states of the same documents?
    pub fn is(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let others = other.by_name();
        self.0.len() == others.len()
            && self.0.iter().all(|part| others.get(&*part.file().name).is_some_and(|other| part.is(other)))
    }

    /// The files whose state is another one than `other` has.
    pub fn new_since(&self, other: &Self) -> HashSet<&str> {
        let others = other.by_name();
        let same = |part: &CheckedFile| others.get(&*part.file().name).is_some_and(|other| part.is(other));
        self.0.iter().filter(|part| !same(part)).map(|part| &*part.file().name).collect()
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBackDocument {
    /// Its file, named as the source names it.
    pub file: String,
    /// Its last good state is in force; otherwise it never had one, and is left out.
    pub keeps: bool,
    /// Problems of its newest state.
    pub problems: Vec<Problem>,
}

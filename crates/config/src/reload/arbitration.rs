//! Arbitration: selects the state of each document if some of them cannot be served. Pure.
//!
//! Every document is in force in its newest state, in the state that is already in force (its last good state) or, if
//! it has none, not at all. The result must be consistent by itself, and must not lose what both the old configuration
//! and the new one have:
//!
//! - A unique name is used by one document. A document that is held back keeps its names, and a changed document that
//!   needs one of them waits. A changed document keeps its names, too: a new document cannot take them. The first of
//!   several new documents gets a name.
//! - A name that is no longer in its document may have moved to a document that is held back. It then stays until that
//!   document can be served. If the names in that document are unknown, it may have any name.
//!
//! The last good states were in force together, so the process ends: each document is held back at most once, and its
//! names are then visited once.

use std::{collections::HashMap, sync::Arc};

use super::checked_file::{CheckedFile, FaultyFile};
use crate::{
    Problem,
    document::{
        problem::one_line,
        unique_names::{UniqueName, UniqueNames},
    },
};

/// Newest state of one document.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newest<'a> {
    Sound(&'a Arc<CheckedFile>),
    Faulty(&'a FaultyFile),
    /// Valid by itself, but cannot be served.
    Refused(&'a Arc<CheckedFile>, &'a [Problem]),
    Gone,
}

/// A document in its newest state and in the state in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArbitratedDocument<'a> {
    pub(crate) file: &'a str,
    pub(crate) newest: Newest<'a>,
    /// State in force.
    pub(crate) kept: Option<&'a Arc<CheckedFile>>,
}

impl ArbitratedDocument<'_> {
    /// Returns true if the newest state differs from the one in force and can be served by itself, or is gone.
    pub(crate) fn has_changed(&self) -> bool {
        match (self.newest, self.kept) {
            (Newest::Sound(newest), Some(kept)) => !newest.is(kept),
            (Newest::Sound(_), None) | (Newest::Gone, _) => true,
            (Newest::Faulty(_) | Newest::Refused(..), _) => false,
        }
    }

    /// Returns the names in the newest state; `None` if the document is gone.
    fn names(&self) -> Option<&UniqueNames> {
        match self.newest {
            Newest::Sound(part) | Newest::Refused(part, _) => Some(part.used()),
            Newest::Faulty(faulty) => Some(&faulty.used),
            Newest::Gone => None,
        }
    }
}

/// Returns for each document the reasons why its newest state is held back; none if it is not.
pub(crate) fn arbitrate(documents: &[ArbitratedDocument<'_>]) -> Vec<Vec<Problem>> {
    let mut arbiter = Arbiter {
        documents,
        held: vec![Vec::new(); documents.len()],
        owners: HashMap::new(),
        moved: HashMap::new(),
        waiting: Vec::new(),
    };
    arbiter.begin();
    arbiter.admit();
    arbiter.spread();
    arbiter.held
}

struct Arbiter<'a> {
    documents: &'a [ArbitratedDocument<'a>],
    held: Vec<Vec<Problem>>,
    /// Index of the document that owns each name.
    owners: HashMap<UniqueName<'a>, usize>,
    /// Names that are in the state of a document in force, and no longer in its newest state.
    moved: HashMap<UniqueName<'a>, usize>,
    /// Documents that are held back, and whose dependents have not been visited.
    waiting: Vec<usize>,
}

impl<'a> Arbiter<'a> {
    /// Holds back unservable documents. These and unchanged documents keep their names.
    fn begin(&mut self) {
        for (index, document) in self.documents.iter().enumerate() {
            match document.newest {
                Newest::Faulty(FaultyFile { problems, .. }) => self.hold(index, problems.clone()),
                Newest::Refused(_, problems) => self.hold(index, problems.to_vec()),
                Newest::Sound(_) | Newest::Gone => {}
            }
            let Some(kept) = document.kept else { continue };
            if !document.has_changed() {
                self.owners.extend(kept.used().names().map(|(name, _)| (name, index)));
                continue;
            }
            let there = |name: UniqueName<'_>| document.names().is_some_and(|names| names.has(name));
            for (name, _) in kept.used().names() {
                if there(name) {
                    self.owners.insert(name, index);
                } else if name.protects_requests() {
                    self.moved.insert(name, index);
                }
            }
        }
    }

    /// Admits changed documents, in order, if their names are free; holds back the others.
    fn admit(&mut self) {
        for (index, document) in self.documents.iter().enumerate() {
            let Newest::Sound(part) = document.newest else { continue };
            if !document.has_changed() {
                continue;
            }
            let mut problems: Vec<_> = part
                .used()
                .names()
                .filter_map(|(name, place)| {
                    let owner = self.owners.get(&name).filter(|owner| **owner != index)?;
                    Some(self.name_conflict(index, name, place, *owner))
                })
                .collect();
            if problems.is_empty() {
                self.owners.extend(part.used().names().map(|(name, _)| (name, index)));
            } else {
                problems.sort_by(|a, b| a.path.cmp(&b.path));
                self.hold(index, problems);
            }
        }
    }

    /// Holds back documents that depend on those held back, until there are no more.
    fn spread(&mut self) {
        while let Some(index) = self.waiting.pop() {
            let document = &self.documents[index];
            if let Some(kept) = document.kept {
                for (name, _) in kept.used().names() {
                    let owner = self.owners.insert(name, index).filter(|owner| *owner != index);
                    if let Some(owner) = owner.filter(|owner| self.held[*owner].is_empty()) {
                        let place =
                            self.documents[owner].names().and_then(|used| place_of(used, name)).unwrap_or_default();
                        let problem = self.name_conflict(owner, name, place, index);
                        self.hold(owner, vec![problem]);
                    }
                }
            }
            let Some(names) = document.names() else { continue };
            let losers: Vec<_> = match names.unclear {
                true => self.moved.iter().map(|(name, loser)| (*name, *loser)).collect(),
                false => names.names().filter_map(|(name, _)| Some((name, *self.moved.get(&name)?))).collect(),
            };
            if names.unclear {
                self.moved.clear();
            }
            for (name, loser) in losers {
                if loser != index && self.held[loser].is_empty() {
                    let problem = self.may_have_moved(loser, name, index);
                    self.hold(loser, vec![problem]);
                }
            }
        }
    }

    fn hold(&mut self, index: usize, problems: Vec<Problem>) {
        self.held[index] = problems;
        self.waiting.push(index);
    }

    /// Returns the problem of a name that another document has.
    fn name_conflict(&self, index: usize, name: UniqueName<'_>, place: &str, owner: usize) -> Problem {
        let (file, other) = (self.documents[index].file, &self.documents[owner]);
        let what = match self.held[owner].is_empty() {
            true => format!("{name} is already defined in {}", one_line(other.file)),
            false => format!("{name} is in force from {}, whose newest state is held back", one_line(other.file)),
        };
        Problem {
            file: file.to_owned(),
            path: place.strip_prefix(file).and_then(|rest| rest.strip_prefix(": ")).unwrap_or_default().to_owned(),
            what,
            why: "and a hook of one name is one hook".to_owned(),
            fix: match self.held[owner].is_empty() {
                true => "rename one, or remove one".to_owned(),
                false => format!("correct {}", one_line(other.file)),
            },
        }
    }

    /// Returns the problem of a name that is no longer in this document, and may be in one that is held back.
    fn may_have_moved(&self, index: usize, name: UniqueName<'_>, to: usize) -> Problem {
        let (file, to) = (self.documents[index].file, one_line(self.documents[to].file));
        Problem {
            file: file.to_owned(),
            path: String::new(),
            what: format!("{name} is no longer here, and may have moved to {to}"),
            why: "which is held back, so it stays until then".to_owned(),
            fix: format!("correct {to}"),
        }
    }
}

fn place_of<'a>(used: &'a UniqueNames, wanted: UniqueName<'_>) -> Option<&'a str> {
    used.names().find_map(|(name, place)| (name == wanted).then_some(place))
}

#[cfg(test)]
mod tests;

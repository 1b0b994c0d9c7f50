//! Arbitration: which state of each document counts while some of them cannot be served. Pure.
//!
//! Every document is in force in its newest state, or in the one that is in force already (its last good state), or,
//! where it never had one, not at all. The result has to be consistent by itself, and must not lose what neither the
//! old configuration nor the new one lacks:
//!
//! - A name that only one document may use is used by one. A document that is held back keeps its names; a changed one
//!   that wants them waits. So does a changed document: a newcomer takes nobody's name. Of several newcomers the first
//!   has it.
//! - A name that a document no longer has, or that was in a document which is gone, may have moved to one that is held
//!   back. Then it stays until that one can be served. Where the names in that one are unknown, it may hold anything.
//!
//! All that is held back is in its last good state, and these states are of one configuration that was in force: there
//! is always an end. Each document is held back once at the most, and its names are gone through once then.

use std::{collections::HashMap, sync::Arc};

use super::checked_file::{CheckedFile, Faulty};
use crate::{
    Problem,
    document::{
        problem::one_line,
        unique_names::{UniqueName, UniqueNames},
    },
};

/// The newest state of one document.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newest<'a> {
    Sound(&'a Arc<CheckedFile>),
    Faulty(&'a Faulty),
    /// It is sound by itself, and cannot be served.
    Refused(&'a Arc<CheckedFile>, &'a [Problem]),
    Gone,
}

/// One document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArbitratedDocument<'a> {
    pub(crate) file: &'a str,
    pub(crate) newest: Newest<'a>,
    /// The state that is in force.
    pub(crate) kept: Option<&'a Arc<CheckedFile>>,
}

impl ArbitratedDocument<'_> {
    /// The newest state is another one than that in force, and can be served by itself.
    pub(crate) fn has_changed(&self) -> bool {
        match (self.newest, self.kept) {
            (Newest::Sound(newest), Some(kept)) => !newest.is(kept),
            (Newest::Sound(_), None) | (Newest::Gone, _) => true,
            (Newest::Faulty(_) | Newest::Refused(..), _) => false,
        }
    }

    /// The names in its newest state; none where it is gone.
    fn names(&self) -> Option<&UniqueNames> {
        match self.newest {
            Newest::Sound(part) | Newest::Refused(part, _) => Some(part.used()),
            Newest::Faulty(faulty) => Some(&faulty.used),
            Newest::Gone => None,
        }
    }
}

/// For each document why its newest state does not count; nothing where it does.
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
    /// Document that owns each name, among those that count.
    owners: HashMap<UniqueName<'a>, usize>,
    /// Names that a document in force has, and its newest state no longer holds.
    moved: HashMap<UniqueName<'a>, usize>,
    /// Held back, and what follows from that is not seen to yet.
    waiting: Vec<usize>,
}

impl<'a> Arbiter<'a> {
    /// Unservable documents are held back; they, and unchanged ones, keep their names.
    fn begin(&mut self) {
        for (index, document) in self.documents.iter().enumerate() {
            match document.newest {
                Newest::Faulty(Faulty { problems, .. }) => self.hold(index, problems.clone()),
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
                } else if name.guards() {
                    self.moved.insert(name, index);
                }
            }
        }
    }

    /// Changed documents in their order: each whose names are free.
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
                    Some(self.taken(index, name, place, *owner))
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
                        let problem = self.taken(owner, name, place, index);
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

    /// Somebody else has the name.
    fn taken(&self, index: usize, name: UniqueName<'_>, place: &str, owner: usize) -> Problem {
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

    /// Problem: a hook that this document no longer holds may stand in one that is held back.
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

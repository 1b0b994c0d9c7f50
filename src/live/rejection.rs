//! Rejection: the newest configuration, where it is not in force as it was written, and why.

use std::time::SystemTime;

use crate::{
    model::Revision,
    snapshot::{Problem, Relaxation},
};

/// A configuration that was read and is not in force as it was written. Either nothing of it is, and an older one
/// stays; or everything but the documents that are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Time at which it was first seen.
    pub since: SystemTime,
    /// The documents that are held back; none where nothing of it is in force.
    pub held: Vec<HeldBack>,
}

impl Rejection {
    /// Is nothing of it in force?
    pub fn is_whole(&self) -> bool {
        self.held.is_empty()
    }

    /// Numbers of documents in force in their last good state, and of those without one.
    pub fn counts(&self) -> (usize, usize) {
        let kept = self.held.iter().filter(|held| held.keeps).count();
        (kept, self.held.len() - kept)
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// Its file, named as the source names it.
    pub document: String,
    /// Its last good state is in force; otherwise it never had one, and is left out.
    pub keeps: bool,
    /// Since when.
    pub since: SystemTime,
    /// First problem.
    pub problem: Problem,
    /// Number of problems.
    pub problems: usize,
}

impl HeldBack {
    /// Effect on requests.
    pub fn means(&self) -> &'static str {
        match self.keeps {
            true => "its last good state stays in force",
            false => "it is left out: nothing of it is in force",
        }
    }
}

/// A configuration that was read, is sound, and enforces less than what is in force, from a source that cannot say
/// whether it was read whole: a second read that lets the same go puts it in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Checks that it would no longer enforce.
    pub relaxations: Vec<Relaxation>,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Since when the source has held something that waits so.
    pub since: SystemTime,
}

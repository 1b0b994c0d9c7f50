//! Note: remark on a configuration that is no problem, and should be known.

use std::fmt;

use super::problem::{is_reason, one_line};

/// Note on a configuration that is no problem, and that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file, named as the source names it.
    pub file: String,
    /// The place in it, as in a [`crate::snapshot::Problem`].
    pub path: String,
    /// Remark on what is written.
    pub what: String,
    /// Consequence of it: a clause, as in a [`crate::snapshot::Problem`].
    pub why: String,
    /// Advice on the remark.
    pub fix: String,
}

impl fmt::Display for Note {
    /// `file: path: what, why; fix`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, path, what, why, fix } = self;
        debug_assert!(is_reason(why) && !fix.is_empty(), "{self:?} gives no reason, or no advice");
        write!(f, "{}: {path}: {what}, {why}; {fix}", one_line(file))
    }
}

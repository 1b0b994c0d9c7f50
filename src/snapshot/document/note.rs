//! Note: remark on a configuration that is no problem, and should be known.

use std::fmt;

use super::problem::one_line;

/// Note on a configuration that is no problem, and that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file, named as the source names it.
    pub file: String,
    /// The place in it, as in a [`crate::snapshot::Problem`].
    pub path: String,
    /// Text of the note.
    pub text: String,
}

impl fmt::Display for Note {
    /// `file: path: text`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, path, text } = self;
        write!(f, "{}: {path}: {text}", one_line(file))
    }
}

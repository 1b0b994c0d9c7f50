//! Note: what is no problem, and should be known.

use std::fmt;

use super::problem::one_line;

/// What is no problem with a configuration, and should be known to whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file, named as the source names it.
    pub file: String,
    /// The place in it, as in a [`crate::snapshot::Problem`].
    pub path: String,
    /// What should be known.
    pub text: String,
}

impl fmt::Display for Note {
    /// `file: path: text`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, path, text } = self;
        write!(f, "{}: {path}: {text}", one_line(file))
    }
}

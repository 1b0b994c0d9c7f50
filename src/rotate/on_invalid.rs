//! OnInvalid: treatment of documents that cannot be served, at a start, while nothing is in force yet.

/// Treatment of documents that cannot be served, at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// Nothing is put in force.
    #[default]
    Refuse,
    /// They are left out, and the others are put in force.
    Skip,
}

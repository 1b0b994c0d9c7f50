//! LastGoodState: what is known of the last good configuration on disk, and whether it is in use.

use std::time::SystemTime;

/// State of the last good configuration on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastGoodState {
    /// The file.
    pub path: String,
    /// Why it was not used at the start, where it could not be.
    pub refused: Option<String>,
    /// It, or a document of it, is in force.
    pub in_use: Option<InUse>,
    /// When it was last written.
    pub saved: Option<SystemTime>,
    /// Why it cannot be written.
    pub failure: Option<String>,
}

/// What of the last good configuration on disk is in force since the start, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// When it was put in force first.
    pub written: SystemTime,
    /// Why.
    pub why: String,
}

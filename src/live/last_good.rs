//! LastGoodState: state of the last good configuration on disk, and whether it is in use.

use std::time::SystemTime;

/// State of the last good configuration on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastGoodState {
    /// The file.
    pub path: String,
    /// Reason why it was not used at the start, where it could not be.
    pub refused: Option<String>,
    /// It, or a document of it, is in force.
    pub in_use: Option<InUse>,
    /// Time of the last write.
    pub saved: Option<SystemTime>,
    /// Failure of the last write.
    pub failure: Option<String>,
}

/// Part of the last good configuration on disk that is in force since the start, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Time at which it was first put in force.
    pub written: SystemTime,
    /// Reason for its use.
    pub why: String,
}

//! The kind `BreakGlass`, without what all objects have.

use schemars::JsonSchema;

use super::{
    bypass::REASON,
    limits,
    words::{Moment, Time},
};

/// Lets every request past hooks for a while, because waiting for them would do more harm.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct BreakGlass {
    /// When it ends by itself.
    pub until: Moment,
    /// Why, in one line: it stands in the audit log for every request let past.
    #[schemars(length(min = 1, max = 1024), regex(pattern = REASON))]
    pub reason: String,
    /// Which hooks; all unless said.
    #[schemars(length(max = limits::NAMES), inner(length(min = 1, max = 253)))]
    pub hooks: Option<Vec<String>>,
    /// Who opened it.
    #[schemars(length(max = 1024))]
    pub by: Option<String>,
    /// When it was opened.
    pub opened: Option<Moment>,
    /// For how long it was opened, such as `30m`.
    #[schemars(rename = "for")]
    pub duration: Option<Time>,
}

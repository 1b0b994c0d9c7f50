//! The kind `BreakGlass`, without what all objects have.

use schemars::JsonSchema;

use super::{
    limits,
    validation::{duration, rules},
    words::{Line, Moment, Time},
};

const BREAK_GLASS: [(&str, &str); 3] = [
    ("self.metadata.name.size() <= 63", "metadata.name: write a lower-case DNS name of at most 63 characters"),
    (
        concat!(duration!("self.__for__"), " >= duration('1s') && ", duration!("self.__for__"), " <= duration('24h')"),
        "for: write how long it stays open, from 1s to 24h, such as 15m",
    ),
    (
        concat!("self.until == self.opened + ", duration!("self.__for__")),
        "until is not opened and for together: let `gatepost break-glass` write the document, which says when it closes in two ways",
    ),
];

/// Lets every request past hooks for a while, because waiting for them would do more harm.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = rules(&BREAK_GLASS)))]
pub struct BreakGlass {
    /// Time of the opening.
    pub opened: Moment,
    /// For how long, from `1s` to `24h`, such as `15m`.
    #[schemars(rename = "for")]
    pub lasts: Time,
    /// Time at which it closes by itself: `opened` and `for` together.
    pub until: Moment,
    /// Reason in one line: it stands in the audit log for every request that skips hooks.
    pub reason: Line,
    /// Hooks concerned; all by default.
    #[schemars(length(min = 1, max = limits::NAMES), inner(length(min = 1, max = 253)))]
    pub hooks: Option<Vec<String>>,
    /// User who opened it.
    #[schemars(length(max = 253), regex(pattern = r"^[^\p{Cc}]*$"))]
    pub by: Option<String>,
}

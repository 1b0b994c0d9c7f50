//! BreakGlass: everything, or single hooks, opened for a bounded time in an emergency.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The longest that one may be open: an emergency that lasts longer is opened again by somebody.
pub const MAX_OPEN_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// One document that opens something. It says when it was opened and for how long, so that it closes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakGlass {
    /// Name in warnings, logs and the audit log.
    pub name: Arc<str>,
    /// Time of the opening, by the clock of the user's machine.
    pub opened: SystemTime,
    /// For how long; at most [`MAX_OPEN_TIME`].
    pub lasts: Duration,
    /// Reason, for everybody's eyes.
    pub reason: Arc<str>,
    /// The hooks that are not asked; empty: all of them.
    pub hooks: Vec<Box<str>>,
    /// User who opened it, in his own words; "" where he did not say.
    pub by: Box<str>,
}

impl BreakGlass {
    /// Time at which it closes, by the clock of the user's machine.
    pub fn until(&self) -> SystemTime {
        self.opened + self.lasts
    }

    /// Does it open everything?
    pub fn is_about_all(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Does it open the hook of this name?
    pub fn is_about(&self, hook: &str) -> bool {
        self.is_about_all() || self.hooks.iter().any(|name| **name == *hook)
    }
}

//! HookState: state of a hook in one word, as metrics count it.

use super::{LiveHook, Rotation};

/// State of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookState {
    /// Asked where it is configured.
    Active,
    /// Asked, although its endpoint has passed no probe in time.
    Unproven,
    /// Asked at its former endpoint, until the new one has passed a probe.
    Moving,
    /// Not asked before a probe has passed.
    Probing,
    /// No longer in force; asked by reviews under way only.
    Draining,
}

impl HookState {
    /// Of a hook in force.
    pub fn of(live: &LiveHook) -> Self {
        match &live.rotation {
            Rotation::Probing { .. } => Self::Probing,
            _ if live.replacing.is_some() => Self::Moving,
            _ if live.overdue.is_some() => Self::Unproven,
            _ => Self::Active,
        }
    }
}

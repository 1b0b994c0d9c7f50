//! Rollout: bound on the time that a hook may go unproven, and the effect of passing it.

use std::time::Duration;

/// Treatment of a hook that has passed no probe in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnProbeFailure {
    /// It stays out of rotation until a probe passes.
    #[default]
    Wait,
    /// It enters rotation unproven: its failure policy decides.
    Enforce,
}

impl OnProbeFailure {
    /// As written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "Wait",
            Self::Enforce => "Enforce",
        }
    }
}

/// Bound on the time that a hook may go unproven, and the effect of passing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Time after which it is reported as overdue.
    pub probe_within: Duration,
    /// Effect on a hook that is not called.
    pub on_probe_failure: OnProbeFailure,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { probe_within: Duration::from_secs(5 * 60), on_probe_failure: OnProbeFailure::Wait }
    }
}

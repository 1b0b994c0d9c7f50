//! Rotation: states of a hook, from its first probe to the end of the last request that can call it.

use std::{sync::Arc, time::SystemTime};

use crate::hooks::ProbeFailure;
use gatepost_api::Endpoint;

/// State of a hook in rotation.
///
/// ```text
///      added while running                in the first configuration, or at an endpoint
///              │                          that answers other hooks already
///              v         probe passed        v
///   ┌──────> Probing ─────────────────────> Active
///   └─failed─┘ │                              │ removed, or called elsewhere from now on
///              │ removed                      v
///              │                           Draining
///              │                              │ last request ended, or drain timeout
///              v                              v
///             Gone: never called             Gone: drained, or given up
/// ```
///
/// Only an Active hook is called. Hooks in force are Probing or Active, others are in
/// [`retired`](super::ConfigurationStatus::retired). A hook that is added again starts anew, unless its endpoint was
/// proven recently. A hook that is enforced although no probe has passed in time is Active and overdue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// No probe has passed yet: the hook is not called, so it rejects nothing, regardless of its failure policy.
    Probing {
        /// Time since which it is in this state.
        since: SystemTime,
        /// Failure of the last probe; `None` before the first has ended.
        last_failure: Option<ProbeFailure>,
    },
    /// The hook is called.
    Active {
        /// Time since which it is in this state.
        since: SystemTime,
    },
    /// Not called by new requests; older requests may still call it.
    Draining {
        /// Time since which it is in this state.
        since: SystemTime,
    },
    /// No request will call it again.
    Gone {
        /// Time since which it is in this state.
        since: SystemTime,
        /// Reason why it is Gone.
        how: RetireReason,
    },
}

/// Reason why a hook is Gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetireReason {
    /// Every request that could call it has ended.
    Drained,
    /// A request had not ended at the end of the drain timeout. It was past its own deadline by then, so it waits for
    /// no hook.
    GivenUp,
    /// It never passed a probe, so it was never called.
    NeverCalled,
}

impl RetireReason {
    /// Returns the text for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::GivenUp => "given up after the bound",
            Self::NeverCalled => "never asked",
        }
    }
}

/// Event that changes the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationEvent {
    /// A probe has failed.
    ProbeFailed(ProbeFailure),
    /// A probe has passed.
    ProbePassed,
    /// It is no longer in force, or no longer at this endpoint.
    Removed,
    /// The last request that could call it has ended.
    Drained,
    /// The drain no longer waits for its requests.
    GivenUp,
}

impl Rotation {
    /// Returns the state after `event`; `None` if that event cannot happen in this state.
    pub fn after(&self, event: RotationEvent, at: SystemTime) -> Option<Self> {
        Some(match (self, event) {
            (Self::Probing { since, .. }, RotationEvent::ProbeFailed(failure)) => {
                Self::Probing { since: *since, last_failure: Some(failure) }
            }
            (Self::Probing { .. }, RotationEvent::ProbePassed) => Self::Active { since: at },
            (Self::Probing { .. }, RotationEvent::Removed) => Self::Gone { since: at, how: RetireReason::NeverCalled },
            (Self::Active { .. }, RotationEvent::Removed) => Self::Draining { since: at },
            (Self::Draining { .. }, RotationEvent::Drained) => Self::Gone { since: at, how: RetireReason::Drained },
            (Self::Draining { .. }, RotationEvent::GivenUp) => Self::Gone { since: at, how: RetireReason::GivenUp },
            _ => return None,
        })
    }

    /// Returns true if new requests call it.
    pub fn is_called(&self) -> bool {
        matches!(self, Self::Active { .. })
    }

    /// Returns the time since which it is in this state.
    pub fn since(&self) -> SystemTime {
        match self {
            Self::Probing { since, .. }
            | Self::Active { since }
            | Self::Draining { since }
            | Self::Gone { since, .. } => *since,
        }
    }

    /// Returns the name of the state.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Probing { .. } => "Probing",
            Self::Active { .. } => "Active",
            Self::Draining { .. } => "Draining",
            Self::Gone { .. } => "Gone",
        }
    }

    /// Returns the reason for the state: the last failed probe, or how the hook left. `None` if there is none.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Probing { last_failure, .. } => last_failure.as_ref().map(ToString::to_string),
            Self::Gone { how, .. } => Some(how.as_str().to_owned()),
            Self::Active { .. } | Self::Draining { .. } => None,
        }
    }
}

/// Hook that is no longer in force or no longer at its endpoint, or name of an initializer that no process may claim
/// any more. Draining or Gone.
#[derive(Clone, Debug)]
pub struct RetiredEntry {
    /// Name as configured.
    pub name: Arc<str>,
    /// Identity of the hook; the name for an initializer.
    pub id: Arc<str>,
    /// Name of the configuration that contained the hook; empty for an initializer, which several may contain.
    pub configuration: Arc<str>,
    /// Endpoint at which the hook was called; `None` for an initializer, whose process connects to us.
    pub endpoint: Option<Endpoint>,
    /// State: Draining or Gone.
    pub rotation: Rotation,
}

impl RetiredEntry {
    /// Returns true while older requests may still call it.
    pub fn is_draining(&self) -> bool {
        matches!(self.rotation, Rotation::Draining { .. })
    }

    /// Returns true for a hook, false for an initializer.
    pub fn is_hook(&self) -> bool {
        self.endpoint.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gatepost_api::{Step, Unreachable};

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn refused() -> ProbeFailure {
        Unreachable::at(Step::Connect, "refused").into()
    }

    /// The allowed transitions, and no others.
    #[test]
    fn each_state_is_left_by_its_own_events_only() {
        let probing = Rotation::Probing { since: at(1), last_failure: None };
        let failing = Rotation::Probing { since: at(1), last_failure: Some(refused()) };
        let (active, draining) = (Rotation::Active { since: at(1) }, Rotation::Draining { since: at(1) });
        let gone = |how| Rotation::Gone { since: at(2), how };
        let events = [
            RotationEvent::ProbeFailed(refused()),
            RotationEvent::ProbePassed,
            RotationEvent::Removed,
            RotationEvent::Drained,
            RotationEvent::GivenUp,
        ];
        let now_active = || Some(Rotation::Active { since: at(2) });
        let table = [
            (&probing, [Some(failing.clone()), now_active(), Some(gone(RetireReason::NeverCalled)), None, None]),
            (&failing, [Some(failing.clone()), now_active(), Some(gone(RetireReason::NeverCalled)), None, None]),
            (&active, [None, None, Some(Rotation::Draining { since: at(2) }), None, None]),
            (&draining, [None, None, None, Some(gone(RetireReason::Drained)), Some(gone(RetireReason::GivenUp))]),
            (&gone(RetireReason::Drained), [None, None, None, None, None]),
        ];
        for (from, row) in table {
            for (event, to) in events.iter().zip(row) {
                assert_eq!(from.after(event.clone(), at(2)), to, "{from:?} after {event:?}");
            }
        }
    }

    #[test]
    fn only_active_hooks_are_called_and_reasons_name_the_step() {
        let failing = Rotation::Probing { since: at(1), last_failure: Some(refused()) };
        assert_eq!(failing.reason().as_deref(), Some("cannot connect: refused (step: connect)"));
        assert!(!failing.is_called() && Rotation::Active { since: at(1) }.is_called());
        assert!(!Rotation::Draining { since: at(1) }.is_called());
    }
}

//! Rotation: states of a hook, from its first probe until the last request that asked it.

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
///   └─failed─┘ │                              │ removed, or asked elsewhere from now on
///              │ removed                      v
///              │                           Draining
///              │                              │ last request done, or the bound is over
///              v                              v
///             Gone: never asked              Gone: drained, or given up
/// ```
///
/// Only an Active hook is asked. Hooks of the generation in force are Probing or Active; the others stand in
/// [`ConfigurationStatus::retired`](super::ConfigurationStatus::retired). A hook that comes back begins anew, unless its endpoint was proven a
/// moment ago. One that is to be enforced although no probe has passed in time is Active too, and overdue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Not yet seen to answer: not asked, so that whatever its failure policy is, it refuses nothing.
    Probing {
        /// Since when.
        since: SystemTime,
        /// Failure of the last probe; `None` before the first has ended.
        last_failure: Option<ProbeFailure>,
    },
    /// Asked.
    Active {
        /// Since when.
        since: SystemTime,
    },
    /// Asked no more; requests that began before may still ask it.
    Draining {
        /// Since when.
        since: SystemTime,
    },
    /// No request of ours will ask it again.
    Gone {
        /// Since when.
        since: SystemTime,
        /// In what way it went.
        how: RetireReason,
    },
}

/// In what way a hook went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetireReason {
    /// Every request that could ask it has ended.
    Drained,
    /// A request outlived the bound on draining. It was past its own deadline by then, so it waits for no hook.
    GivenUp,
    /// It never passed a probe, so it never was asked.
    NeverAsked,
}

impl RetireReason {
    /// As operators read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::GivenUp => "given up after the bound",
            Self::NeverAsked => "never asked",
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
    /// The last request that could ask it has ended.
    Drained,
    /// Its requests are not waited for any longer.
    GivenUp,
}

impl Rotation {
    /// State after the event; `None` where such an event cannot happen in this one.
    pub fn after(&self, event: RotationEvent, at: SystemTime) -> Option<Self> {
        Some(match (self, event) {
            (Self::Probing { since, .. }, RotationEvent::ProbeFailed(failure)) => {
                Self::Probing { since: *since, last_failure: Some(failure) }
            }
            (Self::Probing { .. }, RotationEvent::ProbePassed) => Self::Active { since: at },
            (Self::Probing { .. }, RotationEvent::Removed) => Self::Gone { since: at, how: RetireReason::NeverAsked },
            (Self::Active { .. }, RotationEvent::Removed) => Self::Draining { since: at },
            (Self::Draining { .. }, RotationEvent::Drained) => Self::Gone { since: at, how: RetireReason::Drained },
            (Self::Draining { .. }, RotationEvent::GivenUp) => Self::Gone { since: at, how: RetireReason::GivenUp },
            _ => return None,
        })
    }

    /// Is it asked about new requests?
    pub fn asks(&self) -> bool {
        matches!(self, Self::Active { .. })
    }

    /// Since when it stands there.
    pub fn since(&self) -> SystemTime {
        match self {
            Self::Probing { since, .. }
            | Self::Active { since }
            | Self::Draining { since }
            | Self::Gone { since, .. } => *since,
        }
    }

    /// The state's name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Probing { .. } => "Probing",
            Self::Active { .. } => "Active",
            Self::Draining { .. } => "Draining",
            Self::Gone { .. } => "Gone",
        }
    }

    /// Reason for the state, where that is not plain: the last failed probe, or the course of the drain.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Probing { last_failure, .. } => last_failure.as_ref().map(ToString::to_string),
            Self::Gone { how, .. } => Some(how.as_str().to_owned()),
            Self::Active { .. } | Self::Draining { .. } => None,
        }
    }
}

/// A hook that is no longer in force, or no longer at that endpoint; or the name of an initializer that no process may
/// claim any more. Draining or Gone.
#[derive(Clone, Debug)]
pub struct RetiredEntry {
    /// Name as configured.
    pub name: Arc<str>,
    /// Identity of the hook; an initializer's is its name.
    pub id: Arc<str>,
    /// The name of the configuration that held the hook; empty for an initializer, which several may hold.
    pub configuration: Arc<str>,
    /// Endpoint at which the hook was asked; `None` for an initializer, whose process comes to us.
    pub endpoint: Option<Endpoint>,
    /// Draining or Gone.
    pub rotation: Rotation,
}

impl RetiredEntry {
    /// True while requests that began before may still ask it.
    pub fn drains(&self) -> bool {
        matches!(self.rotation, Rotation::Draining { .. })
    }

    /// Is it a hook?
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
            (&probing, [Some(failing.clone()), now_active(), Some(gone(RetireReason::NeverAsked)), None, None]),
            (&failing, [Some(failing.clone()), now_active(), Some(gone(RetireReason::NeverAsked)), None, None]),
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
    fn only_an_active_hook_is_asked_and_the_reason_names_the_step() {
        let failing = Rotation::Probing { since: at(1), last_failure: Some(refused()) };
        assert_eq!(failing.reason().as_deref(), Some("cannot connect: refused (step: connect)"));
        assert!(!failing.asks() && Rotation::Active { since: at(1) }.asks());
        assert!(!Rotation::Draining { since: at(1) }.asks());
    }
}

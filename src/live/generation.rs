//! Generation: a snapshot with its live hooks. Immutable; the last drop means drained.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::rotation::Rotation;
use crate::{
    hooks::{Channel, PatchRates, ProbeFailure},
    telemetry::{BypassMetrics, HookMetrics, InitializerMetrics},
};
use gatepost_api::{Endpoint, FailurePolicy, Hook, HookType, Protocol, Revision, SideEffects};
use gatepost_config::Snapshot;

/// Terms of calling a hook: one entry's endpoint (TLS included), path, form and version, side effects and timeout, and
/// the channel to that endpoint. While a hook moves this is its former entry's, whole: rules, selectors and failure
/// policy, which say whether it is called and what a failure means, are [`LiveHook::hook`](super::LiveHook)'s.
#[derive(Clone, Debug)]
pub struct CallTarget {
    entry: Arc<Hook>,
    channel: Arc<Channel>,
    patch_rates: Option<Arc<PatchRates>>,
}

impl CallTarget {
    /// The entry's own endpoint, by this channel to it.
    pub fn new(entry: Arc<Hook>, channel: Arc<Channel>) -> Self {
        debug_assert_eq!(entry.endpoint, *channel.endpoint(), "a target is of one configuration");
        let path = match &entry.protocol {
            Protocol::Grpc => Arc::default(),
            Protocol::Http { path, .. } => Arc::clone(path),
        };
        let patch_rates = (entry.hook_type == HookType::Mutating).then(|| channel.patch_rates(&path));
        Self { entry, channel, patch_rates }
    }

    /// The entry by which the hook is called.
    pub fn entry(&self) -> &Arc<Hook> {
        &self.entry
    }

    /// The connections that calls take.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Endpoint of the calls.
    pub fn endpoint(&self) -> &Endpoint {
        self.channel.endpoint()
    }

    /// Protocol of the calls, with the path.
    pub fn protocol(&self) -> &Protocol {
        &self.entry.protocol
    }

    /// Patch rates of the hook at that endpoint, where it is a mutating one.
    pub fn patch_rates(&self) -> Option<&PatchRates> {
        self.patch_rates.as_deref()
    }

    /// The longest one call may take.
    pub fn timeout(&self) -> Duration {
        self.entry.timeout
    }

    /// Side effects of the hook at that endpoint.
    pub fn side_effects(&self) -> SideEffects {
        self.entry.side_effects
    }
}

/// The new endpoint of a hook that has moved, while the old one is still asked.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Channel to the new endpoint.
    pub channel: Arc<Channel>,
    /// Since when it is probed.
    pub since: SystemTime,
    /// Failure of the last probe; `None` before the first has ended.
    pub last_failure: Option<ProbeFailure>,
}

/// A hook whose endpoint has passed no probe within `rollout.probeWithin`.
#[derive(Clone, Debug)]
pub struct Overdue {
    /// Since when it has waited.
    pub since: SystemTime,
    /// Longest wait.
    pub within: Duration,
    /// Failure of the last probe; `None` before the first has ended.
    pub last_failure: Option<ProbeFailure>,
}

/// A hook with its connections and counters.
#[derive(Clone, Debug)]
pub struct LiveHook {
    /// Entry as configured: decides whether it is asked, and the effect of a failed call.
    pub hook: Arc<Hook>,
    /// Endpoint, protocol and channel that calls use. While it moves, all as before.
    pub target: CallTarget,
    /// State of rotation: Probing, or Active.
    pub rotation: Rotation,
    /// New endpoint, until it has been seen to answer.
    pub replacing: Option<Replacement>,
    /// It has waited too long for its endpoint, or for the one that it moves to, to answer.
    pub overdue: Option<Overdue>,
    /// Its counters.
    pub metrics: Arc<HookMetrics>,
}

impl LiveHook {
    /// Is it asked at an endpoint that has passed a probe, or that the first configuration named?
    pub fn is_proven(&self) -> bool {
        self.rotation.asks() && (self.replacing.is_some() || self.overdue.is_none())
    }

    /// Is it proven, and where the configuration says?
    pub fn is_in_place(&self) -> bool {
        self.is_proven() && self.replacing.is_none()
    }

    /// Effect of being overdue, where it is.
    pub fn overdue_means(&self) -> Option<&'static str> {
        self.overdue.as_ref()?;
        Some(match (&self.replacing, self.rotation.asks()) {
            (Some(_), _) => "it is still called at its former endpoint",
            (None, true) => "it is called unproven, and its failure policy decides",
            (None, false) => "it is not called, and what it would refuse passes",
        })
    }

    /// Failure policy in effect: as configured while it is Active. Before that it is not asked, so it fails open,
    /// whatever its entry says; a hook that was created fail-open and is declared fail-closed while it is still Probing
    /// does not close before it has answered.
    pub fn effective_policy(&self) -> FailurePolicy {
        if self.rotation.asks() { self.hook.failure_policy } else { FailurePolicy::Ignore }
    }
}

/// State of a hook in one word, as metrics count it.
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

/// A snapshot with its live hooks, numbered. Every request holds one `Arc` of it from beginning to end.
#[derive(Debug)]
pub struct Generation {
    /// Counts every swap, from 1.
    pub number: u64,
    /// Digest of the source it came from (hex), or "" when there was none.
    pub digest: String,
    /// Revision by the source's count; see [`Revision`] for the part that replicas share.
    pub revision: Revision,
    /// Time at which it was put in force.
    pub published: SystemTime,
    /// The compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// One for each of `snapshot.hooks`, in the same order.
    pub hooks: Vec<LiveHook>,
    /// The counters of each of `snapshot.bypasses()`, in the same order.
    pub bypassed: Vec<Arc<BypassMetrics>>,
    /// The counters of each of `snapshot.initializers()`, by name.
    pub initializers: HashMap<Arc<str>, Arc<InitializerMetrics>>,
}

impl Generation {
    /// Generation before the first configuration: no hooks.
    pub(super) fn nothing() -> Self {
        Self {
            number: 0,
            digest: String::new(),
            revision: Revision::of_digest(""),
            published: SystemTime::UNIX_EPOCH,
            snapshot: Arc::new(Snapshot::empty()),
            hooks: Vec::new(),
            bypassed: Vec::new(),
            initializers: HashMap::new(),
        }
    }
}

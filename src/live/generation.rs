//! Generation: a snapshot with its live hooks. Immutable; the last drop ends its drain.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::rotation::Rotation;
use crate::{
    hooks::{Channel, PatchRates, ProbeFailure},
    telemetry::{BypassMetrics, HookMetrics, InitializerMetrics, Metrics, PolicyMetrics},
};
use gatepost_api::{Endpoint, FailurePolicy, Hook, HookType, Protocol, Revision};
use gatepost_config::Snapshot;
use gatepost_initializers::{HeadRule, unfinished::StoredObject};
use gatepost_policy::Policy;

/// Target of a hook's calls: endpoint (with TLS), path, protocol and version, side effects and timeout of one entry,
/// and the channel. While a hook moves, all of these are its former entry's. Rules, selectors and failure policy, which
/// decide whether the hook is called and the effect of a failure, are those of [`LiveHook::hook`](super::LiveHook).
#[derive(Clone, Debug)]
pub struct CallTarget {
    /// Entry by which the hook is called.
    pub(crate) entry: Arc<Hook>,
    /// Channel that calls use.
    pub(crate) channel: Arc<Channel>,
    /// Patch rates of a mutating hook at its endpoint; `None` for other hooks.
    pub(crate) patch_rates: Option<Arc<PatchRates>>,
}

impl CallTarget {
    /// Creates the target of the entry's own endpoint, with a channel to it.
    pub fn new(entry: Arc<Hook>, channel: Arc<Channel>) -> Self {
        debug_assert_eq!(entry.endpoint, *channel.endpoint(), "a target is of one configuration");
        let path = match &entry.protocol {
            Protocol::Grpc => Arc::default(),
            Protocol::Http { path, .. } => Arc::clone(path),
        };
        let patch_rates = (entry.hook_type == HookType::Mutating).then(|| channel.patch_rates(&path));
        Self { entry, channel, patch_rates }
    }

    /// Returns the timeout of one call.
    pub fn timeout(&self) -> Duration {
        self.entry.timeout
    }

    /// Returns the endpoint of the calls.
    pub fn endpoint(&self) -> &Endpoint {
        self.channel.endpoint()
    }
}

/// New endpoint of a hook that has moved, while the old one is still called.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Channel to the new endpoint.
    pub channel: Arc<Channel>,
    /// Time since which it is probed.
    pub since: SystemTime,
    /// Failure of the last probe; `None` before the first has ended.
    pub last_failure: Option<ProbeFailure>,
}

/// Hook whose endpoint has passed no probe within `rollout.probeWithin`.
#[derive(Clone, Debug)]
pub struct Overdue {
    /// Time since which it waits.
    pub since: SystemTime,
    /// Wait after which it is overdue.
    pub within: Duration,
    /// Failure of the last probe; `None` before the first has ended.
    pub last_failure: Option<ProbeFailure>,
}

/// Hook with its connections and metrics.
#[derive(Clone, Debug)]
pub struct LiveHook {
    /// Entry as configured: decides whether the hook is called, and the effect of a failed call.
    pub hook: Arc<Hook>,
    /// Endpoint, protocol and channel of the calls; unchanged while the hook moves.
    pub target: CallTarget,
    /// State of rotation: Probing or Active.
    pub rotation: Rotation,
    /// New endpoint, until a probe of it has passed.
    pub replacing: Option<Replacement>,
    /// Set if its endpoint, or its new endpoint, has passed no probe in time.
    pub overdue: Option<Overdue>,
    /// Metrics of the hook.
    pub metrics: Arc<HookMetrics>,
}

impl LiveHook {
    /// Returns true if the hook is called at an endpoint that has passed a probe or is in the first configuration.
    pub fn is_proven(&self) -> bool {
        self.rotation.is_called() && (self.replacing.is_some() || self.overdue.is_none())
    }

    /// Returns true if the hook is proven at its configured endpoint.
    pub fn is_in_place(&self) -> bool {
        self.is_proven() && self.replacing.is_none()
    }

    /// Describes the effect of being overdue; `None` if the hook is not overdue.
    pub fn overdue_effect(&self) -> Option<&'static str> {
        self.overdue.as_ref()?;
        Some(match (&self.replacing, self.rotation.is_called()) {
            (Some(_), _) => "it is still called at its former endpoint",
            (None, true) => "it is called unproven, and its failure policy decides",
            (None, false) => "it is not called, and what it would refuse passes",
        })
    }

    /// Returns the failure policy to show to operators: as configured while the hook is Active. Before, the hook is not
    /// called, so it fails open, whatever its entry says. A hook created with `Ignore` and changed to `Fail` while
    /// still Probing rejects nothing before it has answered.
    pub fn shown_policy(&self) -> FailurePolicy {
        if self.rotation.is_called() { self.hook.failure_policy } else { FailurePolicy::Ignore }
    }
}

/// State of a hook as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookState {
    /// Called at the endpoint of its entry.
    Active,
    /// Called, although its endpoint has passed no probe in time.
    Unproven,
    /// Called at its former endpoint until the new one has passed a probe.
    Moving,
    /// Not called before a probe has passed.
    Probing,
    /// No longer in force; called only for reviews that started before.
    Draining,
}

impl HookState {
    /// Returns the state of a hook in force.
    pub fn of(live: &LiveHook) -> Self {
        match &live.rotation {
            Rotation::Probing { .. } => Self::Probing,
            _ if live.replacing.is_some() => Self::Moving,
            _ if live.overdue.is_some() => Self::Unproven,
            _ => Self::Active,
        }
    }
}

/// Policy in force, with its metrics.
#[derive(Clone, Debug)]
pub struct LivePolicy {
    /// Compiled policy with its bindings.
    pub policy: Arc<Policy>,
    /// Counters of its decisions.
    pub metrics: Arc<PolicyMetrics>,
    /// Indexes of bindings that are not evaluated yet, as their params have not been read; ascending.
    pub awaiting_params: Box<[usize]>,
}

impl LivePolicy {
    /// Creates the policy with the counters of its name.
    pub fn new(policy: &Arc<Policy>, metrics: &Metrics) -> Self {
        let definition = &policy.definition;
        let metrics = metrics.policy(definition.hook_type, &definition.name);
        Self { policy: Arc::clone(policy), metrics, awaiting_params: Box::default() }
    }

    /// Returns true if no binding is evaluated yet, as the params of none have been read.
    pub fn awaits_all_params(&self) -> bool {
        !self.awaiting_params.is_empty() && self.awaiting_params.len() == self.policy.bindings.len()
    }

    /// Returns true if the binding at this index is not evaluated yet, as its params have not been read.
    pub fn awaits_params_of(&self, index: usize) -> bool {
        self.awaiting_params.binary_search(&index).is_ok()
    }
}

/// Snapshot with its live hooks, numbered. Every request has an `Arc` of it from beginning to end.
#[derive(Debug)]
pub struct Generation {
    /// Number of the swap, from 1.
    pub number: u64,
    /// Digest of the source's contents (hex), or "" if there were none.
    pub digest: String,
    /// Revision by the source's count; see [`Revision`] for the part that replicas share.
    pub revision: Revision,
    /// Time at which it was put in force.
    pub published: SystemTime,
    /// Compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// Live hook of each of `snapshot.hooks`, in the same order.
    pub hooks: Vec<LiveHook>,
    /// Metrics of each of `snapshot.bypasses()`, in the same order.
    pub bypassed: Vec<Arc<BypassMetrics>>,
    /// Each of `snapshot.policies()` with its metrics, in the same order.
    pub policies: Vec<LivePolicy>,
    /// Metrics of each of `snapshot.initializers()`, by name.
    pub initializers: HashMap<Arc<str>, Arc<InitializerMetrics>>,
}

impl Generation {
    /// Creates generation 1 of a snapshot, put in force now, with the metrics of its entries. It has no live
    /// hooks, digest "" and revision 1.
    pub fn of(snapshot: Arc<Snapshot>, metrics: &Metrics) -> Self {
        Self {
            number: 1,
            digest: String::new(),
            revision: Revision::Store(1),
            published: SystemTime::now(),
            hooks: Vec::new(),
            bypassed: snapshot.bypasses().iter().map(|bypass| metrics.bypass(&bypass.name)).collect(),
            policies: snapshot.policies().iter().map(|policy| LivePolicy::new(policy, metrics)).collect(),
            initializers: snapshot
                .initializer_names()
                .map(|name| (Arc::clone(name), metrics.initializer(name)))
                .collect(),
            snapshot,
        }
    }

    /// Returns the generation before the first configuration: no hooks.
    pub(super) fn empty() -> Self {
        let (revision, published) = (Revision::of_digest(""), SystemTime::UNIX_EPOCH);
        Self { number: 0, revision, published, ..Self::of(Arc::new(Snapshot::empty()), &Metrics::new(0)) }
    }

    /// Returns the configuration of the head of a stored object's list.
    pub fn head_rule(&self, object: &StoredObject) -> HeadRule {
        HeadRule::of(self.snapshot.initializers_of(&object.group, &object.resource), object)
    }
}

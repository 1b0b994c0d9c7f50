//! Generation: a snapshot with its live hooks. Immutable; the last drop means drained.

use std::{sync::Arc, time::SystemTime};

use crate::{
    hooks::Channel,
    model::{CallFailure, Hook, Revision},
    snapshot::Snapshot,
    telemetry::{BypassMetrics, HookMetrics},
};

/// Where a hook of the current generation stands. Draining and Gone hooks are no longer in any current generation.
///
/// ```text
/// Probing --passed--> Active --removed from the configuration--> Draining --last request done--> Gone
///    |                  ^  |
///    |   (at start) ----+  +--endpoint changed: Active at the old one, see [`LiveHook::replacing`]
///    +--removed--> Gone
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Added while running and not yet seen to answer: not asked.
    Probing {
        /// Since when.
        since: SystemTime,
        /// Why the last probe failed; `None` before the first has ended.
        last_failure: Option<CallFailure>,
    },
    /// Asked.
    Active {
        /// Since when.
        since: SystemTime,
    },
}

/// The new endpoint of a hook that has moved, while the old one is still asked.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// How the new endpoint is reached.
    pub channel: Arc<Channel>,
    /// Since when it is probed.
    pub since: SystemTime,
    /// Why the last probe failed; `None` before the first has ended.
    pub last_failure: Option<CallFailure>,
}

/// A hook with its connections and counters.
#[derive(Clone, Debug)]
pub struct LiveHook {
    /// What was configured.
    pub hook: Arc<Hook>,
    /// How it is reached. While it moves, the old endpoint, with the new specification in everything else.
    pub channel: Arc<Channel>,
    /// Is it asked?
    pub rotation: Rotation,
    /// Where it moves to, until that endpoint has been seen to answer.
    pub replacing: Option<Replacement>,
    /// Its counters.
    pub metrics: Arc<HookMetrics>,
}

/// A snapshot with its live hooks, numbered. Every request holds one `Arc` of it from beginning to end.
#[derive(Debug)]
pub struct Generation {
    /// Counts every swap, from 1.
    pub number: u64,
    /// Digest of the source it came from (hex), or "" when there was none.
    pub digest: String,
    /// What the source calls that state: the same on every replica.
    pub revision: Revision,
    /// When it was put in force.
    pub published: SystemTime,
    /// The compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// One for each of `snapshot.hooks`, in the same order.
    pub hooks: Vec<LiveHook>,
    /// The counters of each of `snapshot.bypasses()`, in the same order.
    pub bypassed: Vec<Arc<BypassMetrics>>,
}

impl Generation {
    /// What is in force before the first configuration: no hooks.
    pub(super) fn nothing() -> Self {
        Self {
            number: 0,
            digest: String::new(),
            revision: Revision::of_digest(""),
            published: SystemTime::UNIX_EPOCH,
            snapshot: Arc::new(Snapshot::empty()),
            hooks: Vec::new(),
            bypassed: Vec::new(),
        }
    }
}

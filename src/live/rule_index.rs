//! Rule index in force, the plugins that follow it, and the newest generation that all of them know.
//!
//! A plugin makes no call for a request outside its index. So a generation is fully in force only when no plugin uses
//! an older index: each has acknowledged the index of the generation, or is sure to have dropped the older one. A beat
//! is valid for at most [`MAX_VALIDITY`] after the plugin sent its poll, and no beat has an older index once another is
//! published. So every plugin that uses an index knows it that long after its publication.
//!
//! Nothing here holds a generation, as that would keep it from draining.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::generation::Generation;
use gatepost_api::Revision;
use gatepost_base::clock;
use gatepost_config::coverage::rule_index::RuleIndex;

/// Maximum time for which a plugin may use an index, from when it sent its poll.
pub const MAX_VALIDITY: Duration = Duration::from_secs(1);
/// Maximum number of generations that wait until the plugins know their index. Of more, the oldest are passed over.
const MAX_UNKNOWN_GENERATIONS: usize = 256;

/// Identity of a generation, without the generation itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationId {
    /// Number of the swap, from 1; 0 before the first.
    pub number: u64,
    /// Revision by the source's count.
    pub revision: Revision,
    /// Digest of the source's contents (hex), or "" if there were none.
    pub digest: String,
}

impl GenerationId {
    fn of(generation: &Generation) -> Self {
        let Generation { number, revision, digest, .. } = generation;
        Self { number: *number, revision: revision.clone(), digest: digest.clone() }
    }
}

/// The newest generation that all plugins know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGeneration {
    /// The generation.
    pub id: GenerationId,
    /// False while a newer one is published that plugins might not know.
    pub is_newest: bool,
}

/// An index, and its number among all of this process.
#[derive(Clone, Debug)]
pub struct IndexVersion {
    /// Number, from 1. An index that equals the one before it has the same number.
    pub number: u64,
    /// The rules.
    pub index: Arc<RuleIndex>,
}

/// Rule index in force, and its followers.
#[derive(Debug)]
pub struct IndexRegistry {
    state: Mutex<RegistryState>,
    /// Number of the version in force.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct RegistryState {
    version: IndexVersion,
    /// Time at which the version was published.
    since: Instant,
    followers: BTreeMap<u64, FollowerState>,
    /// Number of the last follower.
    last_follower: u64,
    /// Followers that left a moment ago may hold versions from this number on, until this time.
    departed: Option<(u64, Instant)>,
    /// Newest generation that every follower knew at the last look.
    known: GenerationId,
    /// Later generations, in order.
    unknown: VecDeque<UnknownGeneration>,
}

/// A generation that followers might not know.
#[derive(Debug)]
struct UnknownGeneration {
    id: GenerationId,
    version: u64,
    /// Time at which the version was published.
    since: Instant,
}

#[derive(Debug, Default)]
struct FollowerState {
    /// Oldest version that the follower may use; 0 if it was sent none.
    oldest: u64,
    /// Last version that it was sent.
    sent: u64,
    /// Time that it took to acknowledge the version in force.
    took: Option<Duration>,
}

impl IndexRegistry {
    /// Creates the state without followers.
    pub(super) fn new(generation: &Generation, now: Instant) -> Self {
        let version = IndexVersion { number: 1, index: Arc::new(RuleIndex::new(&generation.snapshot)) };
        let state = RegistryState {
            since: now,
            followers: BTreeMap::new(),
            last_follower: 0,
            departed: None,
            known: GenerationId::of(generation),
            unknown: VecDeque::new(),
            version,
        };
        Self { changes: watch::Sender::new(state.version.number), state: Mutex::new(state) }
    }

    /// Publishes the index of a generation, which must be in force; `None` if it is that of the generation before.
    pub(super) fn publish(&self, generation: &Generation, index: Option<RuleIndex>) {
        let mut state = self.lock();
        let now = clock::now();
        let changed = index.filter(|index| *index != *state.version.index);
        let is_changed = changed.is_some();
        if let Some(index) = changed {
            state.version = IndexVersion { number: state.version.number + 1, index: Arc::new(index) };
            state.since = now;
            state.followers.values_mut().for_each(|follower| follower.took = None);
        }
        let (version, since) = (state.version.number, state.since);
        state.unknown.push_back(UnknownGeneration { id: GenerationId::of(generation), version, since });
        state.look(now);
        if state.unknown.len() > MAX_UNKNOWN_GENERATIONS {
            state.unknown.pop_front();
        }
        drop(state);
        if is_changed {
            self.changes.send_replace(version);
        }
    }

    /// Returns the newest generation of which no plugin uses an older index. Without plugins this is the generation in
    /// force.
    pub fn known(&self, now: Instant) -> KnownGeneration {
        let mut state = self.lock();
        state.look(now);
        KnownGeneration { id: state.known.clone(), is_newest: state.unknown.is_empty() }
    }

    /// Adds a follower, until the guard is dropped.
    pub fn follow(&self) -> IndexFollower<'_> {
        let mut state = self.lock();
        state.last_follower += 1;
        let id = state.last_follower;
        state.followers.insert(id, FollowerState::default());
        IndexFollower { registry: self, id, changes: self.changes.subscribe() }
    }

    /// Returns the number of followers.
    pub fn followers(&self) -> usize {
        self.lock().followers.len()
    }

    /// Returns the longest time that a follower took to acknowledge the version in force, or has taken so far. `None`
    /// if no follower was attached when it was published.
    pub fn slowest_acknowledgement(&self, now: Instant) -> Option<Duration> {
        let state = self.lock();
        let so_far = now.saturating_duration_since(state.since);
        let took = |follower: &FollowerState| match follower.took {
            None if follower.oldest > 0 && follower.oldest < state.version.number => Some(so_far),
            took => took,
        };
        state.followers.values().filter_map(took).max()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// Finds the newest generation that is known.
    fn look(&mut self, now: Instant) {
        if self.departed.is_some_and(|(_, until)| until <= now) {
            self.departed = None;
        }
        let known = self.unknown.iter().rposition(|one| self.is_known(one, now));
        if let Some(last) = known.and_then(|at| self.unknown.drain(..=at).next_back()) {
            self.known = last.id;
        }
    }

    /// Returns true if no plugin uses an index that is older than that of the generation.
    fn is_known(&self, one: &UnknownGeneration, now: Instant) -> bool {
        let attached = || self.followers.values().map(|follower| follower.oldest).filter(|oldest| *oldest > 0);
        let departed = self.departed.map(|(oldest, _)| oldest);
        now >= one.since + MAX_VALIDITY || attached().chain(departed).all(|oldest| oldest >= one.version)
    }
}

/// A plugin that follows the index.
#[derive(Debug)]
pub struct IndexFollower<'a> {
    registry: &'a IndexRegistry,
    id: u64,
    changes: watch::Receiver<u64>,
}

impl IndexFollower<'_> {
    /// Returns the version in force, to be sent in a beat. From now on the follower may use it, unless the beat is
    /// valid for no time.
    pub fn version(&mut self, is_valid: bool) -> IndexVersion {
        self.changes.mark_unchanged();
        let mut state = self.registry.lock();
        let version = state.version.clone();
        // In one lock with the version: a version that is published later is not known before the follower says so.
        if let Some(follower) = state.followers.get_mut(&self.id) {
            follower.sent = version.number;
            if follower.oldest == 0 && is_valid {
                follower.oldest = version.number;
            }
        }
        version
    }

    /// Records that the follower uses that version and no older one. Ignores versions that it was not sent, and those
    /// that are no longer in force.
    pub fn acknowledge(&self, number: u64) {
        let mut state = self.registry.lock();
        let (in_force, so_far) = (state.version.number, clock::now().saturating_duration_since(state.since));
        if let Some(follower) = state.followers.get_mut(&self.id)
            && number == in_force
            && follower.sent == number
            && follower.oldest < number
        {
            follower.oldest = number;
            follower.took = Some(so_far);
        }
    }

    /// Waits until another version is in force than [`IndexFollower::version`] has returned.
    pub async fn changed(&mut self) {
        // The sender lives as long as the registry.
        let _ = self.changes.changed().await;
    }
}

impl Drop for IndexFollower<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        let Some(FollowerState { oldest: oldest @ 1.., .. }) = state.followers.remove(&self.id) else { return };
        // The plugin may see the end of its stream late.
        let until = clock::now() + MAX_VALIDITY;
        state.departed = Some(state.departed.map_or((oldest, until), |(other, _)| (oldest.min(other), until)));
    }
}

#[cfg(test)]
mod tests;

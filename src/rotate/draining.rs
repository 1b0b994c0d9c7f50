//! Draining: hooks and initializers that have left the configuration and still have requests, and those that are gone.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tokio::{runtime::Handle, time::Instant};

use crate::{
    hooks::Channel,
    live::{Generation, Hub, LiveHook, RetireReason, RetiredEntry, Rotation, RotationEvent},
};
use gatepost_api::Endpoint;
use gatepost_config::Snapshot;

/// Time for which a Gone entry is shown.
const GONE_RETENTION: Duration = Duration::from_secs(60 * 60);
/// Maximum number of Gone entries; the oldest are dropped first.
const MAX_GONE: usize = 256;

/// Retired hooks and initializers, and former generations in use. A generation ends with its last request.
#[derive(Debug, Default)]
pub(super) struct Drain {
    former: Vec<FormerGeneration>,
    draining: Vec<DrainingEntry>,
    /// Oldest first, each with the time at which it is dropped.
    gone: VecDeque<(RetiredEntry, Instant)>,
    /// Endpoints that proven hooks have left recently, with their channels while requests hold these.
    recently_left: HashMap<Endpoint, RecentlyLeftEndpoint>,
    /// True if an entry has changed since the last [`Drain::retired_if_changed`].
    changed: bool,
    /// Maximum duration of a drain. Requests end at their deadline, so a longer wait is pointless.
    bound: Duration,
}

#[derive(Debug)]
struct FormerGeneration {
    generation: Weak<Generation>,
    number: u64,
    /// Kept until the generation has ended, so that a blocking thread frees it. On the worker of the last request,
    /// freeing a thousand hooks would delay all other requests.
    _snapshot: Arc<Snapshot>,
}

/// Endpoint that is no longer used. It counts as proven until `until`.
#[derive(Debug)]
struct RecentlyLeftEndpoint {
    channel: Weak<Channel>,
    until: Instant,
}

#[derive(Debug)]
struct DrainingEntry {
    retired: RetiredEntry,
    /// Number of the last generation that called the hook.
    last: u64,
    until: Instant,
}

impl Drain {
    pub(super) fn new(bound: Duration) -> Self {
        Self { bound, ..Self::default() }
    }

    /// Retires hooks and initializers that are in `old` and not in `new`. Call this before `new` replaces `old`.
    pub(super) fn retire_missing(&mut self, old: &Arc<Generation>, new: &Generation, hub: &Hub) {
        let (generation, number) = (Arc::downgrade(old), old.number);
        self.former.push(FormerGeneration { generation, number, _snapshot: Arc::clone(&old.snapshot) });
        let places: HashMap<_, _> = new.hooks.iter().map(|live| (&*live.hook.id, live.target.endpoint())).collect();
        let claimed: HashSet<&Arc<str>> = new.snapshot.claimable().collect();
        let is_there = |id: &str, endpoint: &Endpoint| places.get(id).is_some_and(|place| *place == endpoint);
        let is_back = |retired: &RetiredEntry| match &retired.endpoint {
            Some(endpoint) => is_there(&retired.id, endpoint),
            None => claimed.contains(&retired.name),
        };
        let before = self.draining.len() + self.gone.len();
        self.draining.retain(|draining| !is_back(&draining.retired));
        self.gone.retain(|(gone, _)| !is_back(gone));
        self.changed |= before != self.draining.len() + self.gone.len();
        let (now, until) = (SystemTime::now(), Instant::now() + self.bound);
        let called: HashSet<_> = new.hooks.iter().map(|live| live.target.endpoint()).collect();
        for live in old.hooks.iter().filter(|live| live.is_proven() && !called.contains(live.target.endpoint())) {
            let recently_left = RecentlyLeftEndpoint { channel: Arc::downgrade(&live.target.channel), until };
            self.recently_left.insert(live.target.endpoint().clone(), recently_left);
        }
        for (index, live) in (0..).zip(&old.hooks) {
            if is_there(&live.hook.id, live.target.endpoint()) {
                continue;
            }
            if let Some(rotation) = live.rotation.after(RotationEvent::Removed, now) {
                self.retire(retired(old, index, live, rotation), old.number, new.number);
            }
        }
        let draining: HashSet<&Arc<str>> = old.snapshot.claimable().filter(|name| !claimed.contains(name)).collect();
        for name in draining {
            let rotation = match hub.desk(|desk| desk.is_unproven(name)) {
                true => Rotation::Gone { since: now, how: RetireReason::NeverCalled },
                false => Rotation::Draining { since: now },
            };
            hub.desk(|desk| desk.retire(name, until.into_std()));
            let (id, configuration) = (Arc::clone(name), "".into());
            let retired = RetiredEntry { name: Arc::clone(name), id, configuration, endpoint: None, rotation };
            self.retire(retired, old.number, new.number);
        }
    }

    /// Returns the endpoints that proven hooks left so recently that they still count as proven, each with its channel
    /// if a request still uses that.
    pub(super) fn recently_left(&mut self) -> Vec<(Endpoint, Option<Arc<Channel>>)> {
        let now = Instant::now();
        self.recently_left.retain(|_, recently_left| recently_left.until > now);
        self.recently_left
            .iter()
            .map(|(endpoint, recently_left)| (endpoint.clone(), recently_left.channel.upgrade()))
            .collect()
    }

    fn retire(&mut self, retired: RetiredEntry, last: u64, generation: u64) {
        self.changed = true;
        if retired.is_draining() {
            let endpoint = retired.endpoint.as_ref().map(tracing::field::display);
            tracing::info!(name = %retired.name, endpoint, generation, "{} leaves rotation; draining", noun(&retired));
            self.draining.push(DrainingEntry { retired, last, until: Instant::now() + self.bound });
        } else {
            self.remember(retired);
        }
    }

    fn remember(&mut self, retired: RetiredEntry) {
        if self.gone.len() == MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((retired, Instant::now() + GONE_RETENTION));
    }

    /// Detects and logs completed drains. Returns all Draining and Gone entries if they have changed since the last
    /// call.
    pub(super) fn retired_if_changed(&mut self, hub: &Hub) -> Option<Vec<RetiredEntry>> {
        let ended = self.former.extract_if(.., |former| former.generation.strong_count() == 0).collect::<Vec<_>>();
        if let Ok(runtime) = Handle::try_current()
            && !ended.is_empty()
        {
            drop(runtime.spawn_blocking(move || drop(ended)));
        }
        let oldest = self.former.iter().map(|former| former.number).min().unwrap_or(u64::MAX);
        let now = Instant::now();
        // Objects that are initialized after they were stored hold no generation, so the hub is consulted, too.
        let is_done = |draining: &DrainingEntry| {
            oldest > draining.last
                && (draining.retired.is_hook() || !hub.desk(|desk| desk.has_tasks(&draining.retired.name)))
        };
        let ended = self.draining.extract_if(.., |draining| is_done(draining) || draining.until <= now);
        for draining in ended.collect::<Vec<_>>() {
            let event = if is_done(&draining) { RotationEvent::Drained } else { RotationEvent::GivenUp };
            let retired = draining.retired;
            let (name, noun) = (&retired.name, noun(&retired));
            match event {
                RotationEvent::Drained => tracing::info!(%name, "{noun} drained"),
                _ => {
                    tracing::warn!(%name, after = ?self.bound, "{noun} has not drained in time; given up")
                }
            }
            if !retired.is_hook() {
                hub.desk(|desk| desk.drained(name));
            }
            let Some(rotation) = retired.rotation.after(event, SystemTime::now()) else { continue };
            self.remember(RetiredEntry { rotation, ..retired });
            self.changed = true;
        }
        self.recently_left.retain(|_, recently_left| recently_left.until > now);
        while self.gone.front().is_some_and(|(_, forgotten)| *forgotten <= now) {
            self.gone.pop_front();
            self.changed = true;
        }
        std::mem::take(&mut self.changed).then(|| {
            let draining = self.draining.iter().map(|draining| &draining.retired);
            draining.chain(self.gone.iter().map(|(gone, _)| gone)).cloned().collect()
        })
    }
}

fn retired(old: &Generation, index: u32, live: &LiveHook, rotation: Rotation) -> RetiredEntry {
    let configuration = old.snapshot.origin(index).map_or_else(|| "".into(), |origin| origin.configuration.clone());
    let (name, id) = (Arc::clone(&live.hook.name), Arc::clone(&live.hook.id));
    RetiredEntry { name, id, configuration, endpoint: Some(live.target.endpoint().clone()), rotation }
}

fn noun(retired: &RetiredEntry) -> &'static str {
    if retired.is_hook() { "hook" } else { "initializer" }
}

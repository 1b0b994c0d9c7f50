//! Draining: which hooks and initializers are no longer asked anew but still hold requests that began before, and
//! which are gone.

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

/// Time for which a hook that is gone is remembered, so that one can ask about it.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// Most hooks remembered; the oldest are forgotten first.
const MOST_REMEMBERED: usize = 256;

/// Former generations in use. A generation ends when the last request that began under it does.
#[derive(Debug)]
pub(super) struct Drain {
    former: Vec<Former>,
    leaving: Vec<Leaving>,
    /// The oldest first, each with the instant at which it is forgotten.
    gone: VecDeque<(RetiredEntry, Instant)>,
    /// Endpoints that proven hooks have left, and the connections to them, as long as requests hold those.
    left: HashMap<Endpoint, Left>,
    /// Has anything changed since it was last asked for?
    changed: bool,
    /// Requests end at their deadline; whatever lives longer than this is not waited for.
    bound: Duration,
}

#[derive(Debug)]
struct Former {
    generation: Weak<Generation>,
    number: u64,
    /// Held until its generation has ended, so that it is freed beside us: on the worker whose request was the last, a
    /// thousand hooks would hold up all others.
    _snapshot: Arc<Snapshot>,
}

/// An endpoint that nobody is asked at any more, proven until then.
#[derive(Debug)]
struct Left {
    channel: Weak<Channel>,
    until: Instant,
}

#[derive(Debug)]
struct Leaving {
    retired: RetiredEntry,
    /// The last generation that asked it.
    last: u64,
    until: Instant,
}

impl Drain {
    pub(super) fn new(bound: Duration) -> Self {
        Self {
            former: Vec::new(),
            leaving: Vec::new(),
            gone: VecDeque::new(),
            left: HashMap::default(),
            changed: false,
            bound,
        }
    }

    /// `old` is about to be replaced by `new`.
    pub(super) fn replaced(&mut self, old: &Arc<Generation>, new: &Generation, hub: &Hub) {
        let (generation, number) = (Arc::downgrade(old), old.number);
        self.former.push(Former { generation, number, _snapshot: Arc::clone(&old.snapshot) });
        let places: HashMap<_, _> = new.hooks.iter().map(|live| (&*live.hook.id, live.target.endpoint())).collect();
        let claimed: HashSet<&Arc<str>> = new.snapshot.claimed().collect();
        let is_there = |id: &str, endpoint: &Endpoint| places.get(id).is_some_and(|place| *place == endpoint);
        let is_back = |retired: &RetiredEntry| match &retired.endpoint {
            Some(endpoint) => is_there(&retired.id, endpoint),
            None => claimed.contains(&retired.name),
        };
        let before = self.leaving.len() + self.gone.len();
        self.leaving.retain(|leaving| !is_back(&leaving.retired));
        self.gone.retain(|(gone, _)| !is_back(gone));
        self.changed |= before != self.leaving.len() + self.gone.len();
        let (now, until) = (SystemTime::now(), Instant::now() + self.bound);
        let asked: HashSet<_> = new.hooks.iter().map(|live| live.target.endpoint()).collect();
        for live in old.hooks.iter().filter(|live| live.is_proven() && !asked.contains(live.target.endpoint())) {
            let left = Left { channel: Arc::downgrade(live.target.channel()), until };
            self.left.insert(live.target.endpoint().clone(), left);
        }
        for (index, live) in (0..).zip(&old.hooks) {
            if is_there(&live.hook.id, live.target.endpoint()) {
                continue;
            }
            if let Some(rotation) = live.rotation.after(RotationEvent::Removed, now) {
                self.leaves(retired(old, index, live, rotation), old.number, new.number);
            }
        }
        let leaving: HashSet<&Arc<str>> = old.snapshot.claimed().filter(|name| !claimed.contains(name)).collect();
        for name in leaving {
            let rotation = match hub.is_unproven(name) {
                true => Rotation::Gone { since: now, how: RetireReason::NeverAsked },
                false => Rotation::Draining { since: now },
            };
            hub.retire(name, until.into_std());
            let (id, configuration) = (Arc::clone(name), "".into());
            let retired = RetiredEntry { name: Arc::clone(name), id, configuration, endpoint: None, rotation };
            self.leaves(retired, old.number, new.number);
        }
    }

    /// The endpoints that proven hooks have left so lately that they are proven still, each with the connections to it
    /// if some request holds them.
    pub(super) fn left(&mut self) -> Vec<(Endpoint, Option<Arc<Channel>>)> {
        let now = Instant::now();
        self.left.retain(|_, left| left.until > now);
        self.left.iter().map(|(endpoint, left)| (endpoint.clone(), left.channel.upgrade())).collect()
    }

    fn leaves(&mut self, retired: RetiredEntry, last: u64, generation: u64) {
        self.changed = true;
        if retired.drains() {
            let endpoint = retired.endpoint.as_ref().map(tracing::field::display);
            tracing::info!(name = %retired.name, endpoint, generation, "{} leaves rotation; draining", noun(&retired));
            self.leaving.push(Leaving { retired, last, until: Instant::now() + self.bound });
        } else {
            self.remember(retired);
        }
    }

    fn remember(&mut self, retired: RetiredEntry) {
        if self.gone.len() == MOST_REMEMBERED {
            self.gone.pop_front();
        }
        self.gone.push_back((retired, Instant::now() + REMEMBERED));
    }

    /// Sees what has drained meanwhile, and logs it. Gives everything that is Draining or Gone where that has changed
    /// since the last time.
    pub(super) fn sweep(&mut self, hub: &Hub) -> Option<Vec<RetiredEntry>> {
        let ended = self.former.extract_if(.., |former| former.generation.strong_count() == 0).collect::<Vec<_>>();
        if let Ok(runtime) = Handle::try_current()
            && !ended.is_empty()
        {
            drop(runtime.spawn_blocking(move || drop(ended)));
        }
        let oldest = self.former.iter().map(|former| former.number).min().unwrap_or(u64::MAX);
        let now = Instant::now();
        // Objects that are initialized after they were stored hold no generation.
        let is_done = |leaving: &Leaving| {
            oldest > leaving.last && (leaving.retired.is_hook() || !hub.has_tasks(&leaving.retired.name))
        };
        let ended = self.leaving.extract_if(.., |leaving| is_done(leaving) || leaving.until <= now);
        for leaving in ended.collect::<Vec<_>>() {
            let event = if is_done(&leaving) { RotationEvent::Drained } else { RotationEvent::GivenUp };
            let retired = leaving.retired;
            let (name, noun) = (&retired.name, noun(&retired));
            match event {
                RotationEvent::Drained => tracing::info!(%name, "{noun} drained"),
                _ => tracing::warn!(%name, after = ?self.bound, "{noun} has not drained in time; given up"),
            }
            if !retired.is_hook() {
                hub.drained(name);
            }
            let Some(rotation) = retired.rotation.after(event, SystemTime::now()) else { continue };
            self.remember(RetiredEntry { rotation, ..retired });
            self.changed = true;
        }
        self.left.retain(|_, left| left.until > now);
        while self.gone.front().is_some_and(|(_, forgotten)| *forgotten <= now) {
            self.gone.pop_front();
            self.changed = true;
        }
        std::mem::take(&mut self.changed).then(|| {
            let leaving = self.leaving.iter().map(|leaving| &leaving.retired);
            leaving.chain(self.gone.iter().map(|(gone, _)| gone)).cloned().collect()
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

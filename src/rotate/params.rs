//! Params before enforcement: reads the params of new bindings of policies before these are evaluated, and those of the
//! first configuration before the process is ready.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use crate::live::{
    ClusterObjects, Generation, LivePolicy,
    cluster_objects::{MAX_READ_TIME, ObjectQuery, ObjectsError},
    configuration_status::{AwaitedBinding, AwaitedParams},
};
use gatepost_base::clock::{Backoff, chance, jittered};
use gatepost_policy::{Binding, Policy};

/// Timeout of one read; longer than the reader of the cluster takes, so that no read goes on that is not counted here.
const READ_TIMEOUT: Duration = MAX_READ_TIME.saturating_add(Duration::from_secs(1));
/// Pause after the first failed read of params; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause: an operator who has repaired the params should not have to wait for the next read.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Range of factors for pauses.
const JITTER: (f64, f64) = (0.5, 1.0);
/// Maximum number of concurrent reads; requests need the others.
const MAX_CONCURRENT_READS: usize = 4;
/// Maximum number of params that bindings wait for. Further bindings are evaluated immediately.
const MAX_AWAITED: usize = 1024;
/// Time for which results are collected: each that is applied publishes a generation.
const COLLECTED_FOR: Duration = Duration::from_millis(100);
/// Time for which the process is not ready while the params of the first configuration are unread.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Result of one read.
#[derive(Debug)]
pub(super) struct ParamsRead {
    query: ObjectQuery,
    outcome: Result<(), String>,
}

/// Params that have not been read yet.
#[derive(Debug)]
struct Unread {
    since: SystemTime,
    last_failure: Option<String>,
    /// True if bindings of the first configuration, which do not wait, have them.
    is_first: bool,
}

/// Params that bindings wait for, and the task that reads them.
#[derive(Debug)]
pub(super) struct ParamReads {
    objects: Option<Arc<ClusterObjects>>,
    unread: HashMap<ObjectQuery, Unread>,
    /// Params for the task that reads, once it has been started.
    wanted: Option<watch::Sender<Vec<ObjectQuery>>>,
    sender: mpsc::Sender<Vec<ParamsRead>>,
    results: mpsc::Receiver<Vec<ParamsRead>>,
    /// End of the time for which the process is not ready; set by the first configuration.
    ready_at: Option<Instant>,
}

impl ParamReads {
    /// Creates an empty set for params in that cluster. Without a cluster nothing is awaited.
    pub(super) fn new(objects: Option<Arc<ClusterObjects>>) -> Self {
        let (sender, results) = mpsc::channel(1);
        Self { objects, unread: HashMap::new(), wanted: None, sender, results, ready_at: None }
    }

    /// Waits for the next results.
    pub(super) async fn results(&mut self) -> Option<Vec<ParamsRead>> {
        self.results.recv().await
    }

    /// Sets which bindings of `policies` wait. `starts` is true until a whole configuration has been in force: as a
    /// restart must never enforce less, no binding waits then, but the params are read all the same.
    pub(super) fn place(&mut self, old: &Generation, policies: &mut [LivePolicy], starts: bool) {
        if self.objects.is_none() {
            return;
        }
        if policies.iter().all(|live| live.policy.definition.param_kind.is_none()) && self.unread.is_empty() {
            return;
        }
        // Bindings of different enforcements are policies of their own, of the same name.
        let key = |live: &LivePolicy| (live.policy.definition.hook_type, Arc::clone(&live.policy.definition.name));
        let mut former: HashMap<_, Vec<&LivePolicy>> = HashMap::new();
        old.policies.iter().for_each(|live| former.entry(key(live)).or_default().push(live));
        let (mut needed, before) = (HashSet::new(), self.unread.len());
        let mut is_changed = false;
        for live in policies.iter_mut().filter(|live| live.policy.definition.param_kind.is_some()) {
            let former = former.get(&key(live)).map(Vec::as_slice).unwrap_or_default();
            let unchanged = former.iter().find(|former| Arc::ptr_eq(&former.policy, &live.policy));
            let indexes: Vec<_> = match (unchanged, starts) {
                (Some(former), _) => former.awaiting_params.to_vec(),
                (None, true) => (0..live.policy.bindings.len()).collect(),
                (None, false) => new_bindings(former, &live.policy),
            };
            let mut awaiting = Vec::new();
            for index in indexes {
                let Some(query) = query_of(&live.policy, index) else { continue };
                // Those of an unchanged policy wait already, unless they have been read.
                if unchanged.is_none() && !self.unread.contains_key(&query) && self.unread.len() < MAX_AWAITED {
                    let unread = Unread { since: SystemTime::now(), last_failure: None, is_first: starts };
                    self.unread.insert(query.clone(), unread);
                    is_changed = true;
                }
                if self.unread.contains_key(&query) && !starts {
                    awaiting.push(index);
                    needed.insert(query);
                }
            }
            live.awaiting_params = awaiting.into();
        }
        self.unread.retain(|query, unread| unread.is_first || needed.contains(query));
        if starts && !self.unread.is_empty() {
            self.ready_at.get_or_insert_with(|| Instant::now() + READY_WITHIN);
        }
        if is_changed || self.unread.len() < before {
            self.read_again();
        }
    }

    /// Applies results. Returns true if bindings of `policies` might no longer wait.
    pub(super) fn apply(&mut self, reads: Vec<ParamsRead>, policies: &[LivePolicy]) -> bool {
        let mut was_unread = false;
        for read in reads {
            match read.outcome {
                Ok(()) => was_unread |= self.unread.remove(&read.query).is_some(),
                Err(why) => {
                    self.unread.entry(read.query).and_modify(|unread| unread.last_failure = Some(why));
                }
            }
        }
        was_unread && policies.iter().any(|live| !live.awaiting_params.is_empty())
    }

    /// Returns the awaited params, for operators: at most the first [`MAX_AWAITED`] bindings. `None` if there are none.
    pub(super) fn awaited(&self, policies: &[LivePolicy]) -> Option<AwaitedParams> {
        let bindings = policies.iter().flat_map(|live| {
            live.awaiting_params.iter().filter_map(|&index| {
                let unread = self.unread.get(&query_of(&live.policy, index)?)?;
                Some(AwaitedBinding {
                    policy: Arc::clone(&live.policy.definition.name),
                    binding: Arc::clone(&live.policy.bindings[index].name),
                    since: unread.since,
                    last_failure: unread.last_failure.clone(),
                })
            })
        });
        let bindings: Vec<_> = bindings.take(MAX_AWAITED).collect();
        let is_starting = self.unread.values().any(|unread| unread.is_first);
        let unready_until = self.ready_at.filter(|_| is_starting).map(Instant::into_std);
        (!bindings.is_empty() || unready_until.is_some()).then_some(AwaitedParams { bindings, unready_until })
    }

    /// Has everything read that is unread now, and nothing else.
    fn read_again(&mut self) {
        let queries: Vec<_> = self.unread.keys().cloned().collect();
        match (&self.wanted, &self.objects) {
            (Some(wanted), _) => drop(wanted.send_replace(queries)),
            (None, Some(objects)) if !queries.is_empty() => {
                let (wanted, queries) = watch::channel(queries);
                tokio::spawn(read_wanted(Arc::clone(objects), queries, self.sender.clone()));
                self.wanted = Some(wanted);
            }
            _ => {}
        }
    }
}

/// Returns the bindings that were not evaluated by the former policy. One that was evaluated is so with other params,
/// too: a change must not open a gap.
fn new_bindings(former: &[&LivePolicy], policy: &Policy) -> Vec<usize> {
    let evaluated = former.iter().flat_map(|former| {
        let bindings = former.policy.bindings.iter().enumerate();
        bindings.filter(|(index, _)| !former.awaits_params_of(*index)).map(|(_, binding)| &*binding.name)
    });
    let evaluated: HashSet<&str> = evaluated.collect();
    let bindings = policy.bindings.iter().enumerate();
    bindings.filter(|(_, binding)| !evaluated.contains(&*binding.name)).map(|(index, _)| index).collect()
}

/// Returns the params of a binding; `None` if it has none. Where the request gives the namespace, only that their kind
/// is served can be found out.
fn query_of(policy: &Policy, index: usize) -> Option<ObjectQuery> {
    let binding: &Binding = policy.bindings.get(index)?;
    Some(ObjectQuery::params(policy.definition.param_kind.as_ref()?, binding.param_ref.as_ref()?, ""))
}

/// Params that are to be read, and are not being read.
struct Pending {
    query: ObjectQuery,
    backoff: Backoff,
    failures: u32,
    due: Instant,
}

impl Pending {
    fn new(query: ObjectQuery) -> Self {
        Self { query, backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE), failures: 0, due: Instant::now() }
    }

    /// Reads once. An empty list is a result, and so is that the params do not fit the binding.
    async fn read(mut self, objects: &ClusterObjects) -> (Self, Result<(), String>) {
        let until = Instant::now() + READ_TIMEOUT;
        let outcome = match objects.read(&self.query, until.into_std()).await {
            Ok(_) | Err(ObjectsError::Unusable(_)) => Ok(()),
            Err(why @ (ObjectsError::UnknownKind(_) | ObjectsError::Unread(_))) => Err(why.to_string()),
        };
        self.failures = self.failures.saturating_add(1);
        self.due = Instant::now() + jittered(self.backoff.pause(), JITTER, chance());
        (self, outcome)
    }
}

/// Reads the wanted params until each read has had a result, for as long as its owner lives. Params with the fewest
/// failures go first: params that cannot be read do not hold up others.
async fn read_wanted(
    objects: Arc<ClusterObjects>,
    mut wanted: watch::Receiver<Vec<ObjectQuery>>,
    results: mpsc::Sender<Vec<ParamsRead>>,
) {
    let mut pending: Vec<_> = wanted.borrow_and_update().iter().cloned().map(Pending::new).collect();
    let (mut reading, mut being_read) = (FuturesUnordered::new(), HashSet::new());
    let (mut collected, mut collected_until) = (Vec::new(), None::<Instant>);
    loop {
        let now = Instant::now();
        while reading.len() < MAX_CONCURRENT_READS {
            let due = pending.iter().enumerate().filter(|(_, one)| one.due <= now);
            let Some((index, _)) = due.min_by_key(|(_, one)| one.failures) else { break };
            let one: Pending = pending.swap_remove(index);
            being_read.insert(one.query.clone());
            reading.push(one.read(&objects));
        }
        let next = pending.iter().map(|one| one.due).min().filter(|_| reading.len() < MAX_CONCURRENT_READS);
        let wake = next.into_iter().chain(collected_until).min();
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                let wanted = wanted.borrow_and_update();
                let mut queries: HashSet<_> = wanted.iter().collect();
                pending.retain(|one| queries.remove(&one.query));
                let new = queries.into_iter().filter(|query| !being_read.contains(*query));
                pending.extend(new.cloned().map(Pending::new));
            }
            Some((one, outcome)) = reading.next(), if !reading.is_empty() => {
                being_read.remove(&one.query);
                collected.push(ParamsRead { query: one.query.clone(), outcome: outcome.clone() });
                collected_until.get_or_insert_with(|| Instant::now() + COLLECTED_FOR);
                if outcome.is_err() && wanted.borrow().contains(&one.query) {
                    pending.push(one);
                }
            }
            () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
        }
        if collected_until.is_some_and(|until| until <= Instant::now()) {
            collected_until = None;
            if results.send(std::mem::take(&mut collected)).await.is_err() {
                return;
            }
        }
    }
}

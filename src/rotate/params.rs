//! Params before enforcement: reads the params of new bindings of policies before these are evaluated, and those of the
//! first configuration before the process is ready.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::live::{
    ClusterObjects, Generation, LivePolicy,
    cluster_objects::{ObjectQuery, ObjectsError},
    configuration_status::{AwaitedBinding, AwaitedParams},
};
use gatepost_base::clock::{Backoff, chance, jittered};
use gatepost_policy::{Binding, Policy};

/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after the first failed round of reads; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause: an operator who has repaired the params should not have to wait for the next round.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Range of factors for pauses.
const JITTER: (f64, f64) = (0.5, 1.0);
/// Maximum number of concurrent reads; requests need the others.
const MAX_CONCURRENT_READS: usize = 4;
/// Maximum number of params that bindings wait for. Further bindings are evaluated immediately.
const MAX_AWAITED: usize = 1024;
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
    reads: Option<AbortHandle>,
    sender: mpsc::Sender<ParamsRead>,
    results: mpsc::Receiver<ParamsRead>,
    /// End of the time for which the process is not ready; set by the first configuration.
    ready_at: Option<Instant>,
}

impl ParamReads {
    /// Creates an empty set for params in that cluster. Without a cluster nothing is awaited.
    pub(super) fn new(objects: Option<Arc<ClusterObjects>>) -> Self {
        let (sender, results) = mpsc::channel(MAX_CONCURRENT_READS);
        Self { objects, unread: HashMap::new(), reads: None, sender, results, ready_at: None }
    }

    /// Waits for the next result.
    pub(super) async fn result(&mut self) -> Option<ParamsRead> {
        self.results.recv().await
    }

    /// Sets which bindings of `policies` wait. `starts` is true until a whole configuration has been in force: as a
    /// restart must never enforce less, no binding waits then, but the params are read all the same.
    pub(super) fn place(&mut self, old: &Generation, policies: &mut [LivePolicy], starts: bool) {
        if self.objects.is_none() {
            return;
        }
        let key = |live: &LivePolicy| (live.policy.definition.hook_type, Arc::clone(&live.policy.definition.name));
        let with_params = |live: &&LivePolicy| live.policy.definition.param_kind.is_some();
        let former: HashMap<_, _> = old.policies.iter().filter(with_params).map(|live| (key(live), live)).collect();
        let (mut needed, before) = (HashSet::new(), self.unread.len());
        let mut is_changed = false;
        for live in policies.iter_mut().filter(|live| with_params(&&**live)) {
            let former = former.get(&key(live)).copied();
            let unchanged = former.filter(|former| Arc::ptr_eq(&former.policy, &live.policy));
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

    /// Applies a result. Returns true if bindings of `policies` might no longer wait.
    pub(super) fn apply(&mut self, read: ParamsRead, policies: &[LivePolicy]) -> bool {
        match read.outcome {
            Ok(()) => {
                let was_unread = self.unread.remove(&read.query).is_some();
                was_unread && policies.iter().any(|live| !live.awaiting_params.is_empty())
            }
            Err(why) => {
                if let Some(unread) = self.unread.get_mut(&read.query) {
                    unread.last_failure = Some(why);
                }
                false
            }
        }
    }

    /// Returns what is awaited, for operators: at most the first [`MAX_AWAITED`] bindings. `None` if nothing is.
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

    /// Starts to read what is unread, instead of what was unread before.
    fn read_again(&mut self) {
        if let Some(reads) = self.reads.take() {
            reads.abort();
        }
        let Some(objects) = self.objects.clone().filter(|_| !self.unread.is_empty()) else { return };
        let queries = self.unread.keys().cloned().collect();
        self.reads = Some(tokio::spawn(read_until_all(objects, queries, self.sender.clone())).abort_handle());
    }
}

impl Drop for ParamReads {
    fn drop(&mut self) {
        if let Some(reads) = &self.reads {
            reads.abort();
        }
    }
}

/// Returns the bindings that were not evaluated by the former policy. One that was evaluated is so with other params,
/// too: a change must not open a gap.
fn new_bindings(former: Option<&LivePolicy>, policy: &Policy) -> Vec<usize> {
    let evaluated: HashSet<&str> = match former {
        Some(former) => {
            let bindings = former.policy.bindings.iter().enumerate();
            bindings.filter(|(index, _)| !former.awaits_params_of(*index)).map(|(_, binding)| &*binding.name).collect()
        }
        None => HashSet::new(),
    };
    let bindings = policy.bindings.iter().enumerate();
    bindings.filter(|(_, binding)| !evaluated.contains(&*binding.name)).map(|(index, _)| index).collect()
}

/// Returns the params of a binding; `None` if it has none. Where the request gives the namespace, only that their kind
/// is served can be found out.
fn query_of(policy: &Policy, index: usize) -> Option<ObjectQuery> {
    let binding: &Binding = policy.bindings.get(index)?;
    Some(ObjectQuery::params(policy.definition.param_kind.as_ref()?, binding.param_ref.as_ref()?, ""))
}

/// Reads until every read has had a result. An empty list is one, and so is that the params do not fit the binding.
async fn read_until_all(objects: Arc<ClusterObjects>, queries: Vec<ObjectQuery>, results: mpsc::Sender<ParamsRead>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
    let mut left = queries;
    loop {
        let reads = stream::iter(left).map(|query| {
            let objects = &objects;
            async move {
                let until = Instant::now() + READ_TIMEOUT;
                let outcome = match objects.read(&query, until.into_std()).await {
                    Ok(_) | Err(ObjectsError::Unusable(_)) => Ok(()),
                    Err(why @ (ObjectsError::UnknownKind(_) | ObjectsError::Unread(_))) => Err(why.to_string()),
                };
                ParamsRead { query, outcome }
            }
        });
        let mut reads = reads.buffer_unordered(MAX_CONCURRENT_READS);
        let mut failed = Vec::new();
        while let Some(read) = reads.next().await {
            failed.extend(read.outcome.is_err().then(|| read.query.clone()));
            if results.send(read).await.is_err() {
                return;
            }
        }
        if failed.is_empty() {
            return;
        }
        left = failed;
        sleep(jittered(backoff.pause(), JITTER, chance())).await;
    }
}

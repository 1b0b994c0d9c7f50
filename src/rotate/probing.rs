//! Probing: asks a new endpoint again and again, ever more slowly, until it answers. A trial dials and probes each hook
//! of a candidate once, by the same channels, TLS and probes, without the rotation behind them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout, timeout_at},
};

use super::candidate::Candidate;
use crate::{
    hooks::{Channel, ProbeFailure, ProbePost, Resources},
    live::{Rotation, generation::Replacement},
};
use gatepost_api::{Endpoint, HttpForm};
use gatepost_base::clock::{Backoff, chance, jittered};

/// Timeout of one probe, connection and handshake included.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the first failed probe; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause: an operator who has mended a hook should not wait for it.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Factors between which pauses vary: sidecars that lost the same hook are not to come back to it in step.
const JITTER: (f64, f64) = (0.5, 1.0);

/// Result of a probe.
#[derive(Debug)]
pub(super) struct ProbeResult {
    pub(super) channel: Arc<Channel>,
    /// Review that was posted, if any was to be.
    pub(super) post: Option<ProbePost>,
    pub(super) outcome: Result<(), ProbeFailure>,
}

/// An endpoint that is being probed. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) channel: Arc<Channel>,
    /// Review that the newest configuration lets be posted there.
    post: watch::Sender<Option<ProbePost>>,
    since: SystemTime,
    last_failure: Option<ProbeFailure>,
    probes: AbortHandle,
}

impl Probing {
    /// Begins to probe in the background; each probe's result goes to `results`.
    pub(super) fn begin(channel: Arc<Channel>, post: Option<ProbePost>, results: mpsc::Sender<ProbeResult>) -> Self {
        let (post, posted) = watch::channel(post);
        let probes = tokio::spawn(probe_until_passed(Arc::clone(&channel), posted, results)).abort_handle();
        Self { channel, post, since: SystemTime::now(), last_failure: None, probes }
    }

    /// From now on, post this. A probe under way still posts what it began with, and is not believed.
    pub(super) fn change_post(&self, post: Option<&ProbePost>) {
        self.post.send_if_modified(|before| {
            let other = before.as_ref() != post;
            if other {
                *before = post.cloned();
            }
            other
        });
    }

    /// Is it of this probing, and of what is to be posted now? An endpoint may have been removed and come back.
    pub(super) fn believes(&self, result: &ProbeResult) -> bool {
        Arc::ptr_eq(&self.channel, &result.channel) && *self.post.borrow() == result.post
    }

    /// Review to post now.
    #[cfg(test)]
    pub(super) fn post(&self) -> Option<ProbePost> {
        self.post.borrow().clone()
    }

    pub(super) fn last_failure(&self) -> Option<&ProbeFailure> {
        self.last_failure.as_ref()
    }

    pub(super) fn failed(&mut self, failure: ProbeFailure) {
        self.last_failure = Some(failure);
    }

    pub(super) fn rotation(&self) -> Rotation {
        Rotation::Probing { since: self.since, last_failure: self.last_failure.clone() }
    }

    pub(super) fn replacement(&self) -> Replacement {
        Replacement { channel: Arc::clone(&self.channel), since: self.since, last_failure: self.last_failure.clone() }
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.probes.abort();
    }
}

/// Probes until the owner has heard that the endpoint has passed, and drops us. The review may be replaced at any time;
/// the new one is tried at once, as the endpoint may never pass, or has passed, with the one before.
async fn probe_until_passed(
    channel: Arc<Channel>,
    mut post: watch::Receiver<Option<ProbePost>>,
    results: mpsc::Sender<ProbeResult>,
) {
    let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
    loop {
        let posted = post.borrow_and_update().clone();
        let outcome = channel.probe(posted.as_ref(), PROBE_TIMEOUT).await;
        let passed = outcome.is_ok();
        if results.send(ProbeResult { channel: Arc::clone(&channel), post: posted, outcome }).await.is_err() {
            return;
        }
        let pause = jittered(backoff.pause(), JITTER, chance());
        let changed = match passed {
            true => post.changed().await,
            // A pause that ends by itself is the ordinary case.
            false => timeout(pause, post.changed()).await.unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Hooks that are dialled at once.
const MAX_CONCURRENT_TRIALS: usize = 16;

/// Result of the trial of one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialResult {
    /// It would enter rotation; how long that took, and whether it was posted a review.
    Passed(Duration, Option<Arc<str>>),
    /// It would not, and why.
    Failed(ProbeFailure),
    /// Its turn did not come in time.
    Late,
}

/// Endpoint and review that are dialled once, however many hooks have them.
type Key = (Endpoint, Option<(Arc<str>, HttpForm)>);

/// Tries every hook, all of it within that time: how it went, in the order of the hooks.
pub async fn trial(candidate: &Candidate, within: Duration) -> Vec<TrialResult> {
    let until = Instant::now() + within;
    let (resources, room) = (Resources::unlimited(), Arc::new(Semaphore::new(MAX_CONCURRENT_TRIALS)));
    let keys: Vec<Key> = candidate.snapshot.hooks.iter().map(|hook| key(&hook.endpoint, ProbePost::to(hook))).collect();
    let mut trials = JoinSet::new();
    let mut begun: HashMap<Key, TrialResult> = HashMap::new();
    for key in &keys {
        if begun.insert(key.clone(), TrialResult::Late).is_some() {
            continue;
        }
        let (room, resources, key) = (Arc::clone(&room), resources.clone(), key.clone());
        let tls = candidate.tls(&key.0);
        trials.spawn(async move {
            let Ok(_permit) = room.acquire().await else { return (key, TrialResult::Late) };
            let began = Instant::now();
            let channel = Channel::open_within(&resources, key.0.clone(), tls, &[Handle::current()]);
            let tried = once(&channel, key.1.clone(), began).await;
            (key, tried)
        });
    }
    // Trials that have not ended by then are dropped with the set, and their connections with them.
    while let Ok(Some(Ok((key, tried)))) = timeout_at(until, trials.join_next()).await {
        begun.insert(key, tried);
    }
    keys.iter().map(|key| begun.get(key).cloned().unwrap_or(TrialResult::Late)).collect()
}

fn key(endpoint: &Endpoint, post: Option<ProbePost>) -> Key {
    (endpoint.clone(), post.map(|post| (post.path, post.form)))
}

async fn once(channel: &Channel, post: Option<(Arc<str>, HttpForm)>, began: Instant) -> TrialResult {
    let post = post.map(|(path, form)| ProbePost { path, form });
    match channel.probe(post.as_ref(), PROBE_TIMEOUT).await {
        Ok(()) => TrialResult::Passed(began.elapsed(), post.map(|post| post.path)),
        Err(failure) => TrialResult::Failed(failure),
    }
}

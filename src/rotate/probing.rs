//! Probing: probes a new endpoint until it passes, with growing pauses. A trial probes each hook of a candidate once,
//! over the same channels, with the same TLS and probes, but without rotation.

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
use gatepost_api::Endpoint;
use gatepost_base::clock::{Backoff, chance, jittered};

/// Timeout of one probe, including connection and handshake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the first failed probe; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause: an operator who has repaired a hook should not have to wait for the next probe.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Range of factors for pauses, so that sidecars that lost the same hook do not probe it at the same time.
const JITTER: (f64, f64) = (0.5, 1.0);

/// Result of a probe.
#[derive(Debug)]
pub(super) struct ProbeResult {
    pub(super) channel: Arc<Channel>,
    /// Review that was posted; `None` if the probe posts none.
    pub(super) post: Option<ProbePost>,
    pub(super) outcome: Result<(), ProbeFailure>,
}

/// Endpoint that is being probed. Dropping this stops the probes.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) channel: Arc<Channel>,
    /// Review that the newest configuration allows to post there.
    post: watch::Sender<Option<ProbePost>>,
    since: SystemTime,
    pub(super) last_failure: Option<ProbeFailure>,
    probes: AbortHandle,
}

impl Probing {
    /// Starts to probe in the background; each probe's result is sent to `results`.
    pub(super) fn begin(channel: Arc<Channel>, post: Option<ProbePost>, results: mpsc::Sender<ProbeResult>) -> Self {
        let (post, posted) = watch::channel(post);
        let probes = tokio::spawn(probe_until_passed(Arc::clone(&channel), posted, results)).abort_handle();
        Self { channel, post, since: SystemTime::now(), last_failure: None, probes }
    }

    /// Changes the review of later probes. A probe under way still posts the old one, and its result is ignored.
    pub(super) fn change_post(&self, post: Option<&ProbePost>) {
        self.post.send_if_modified(|before| {
            let other = before.as_ref() != post;
            if other {
                *before = post.cloned();
            }
            other
        });
    }

    /// Returns true if the result is of this probing (the endpoint may have been re-added) and of the current review.
    pub(super) fn is_current(&self, result: &ProbeResult) -> bool {
        Arc::ptr_eq(&self.channel, &result.channel) && *self.post.borrow() == result.post
    }

    /// Returns the review to post now.
    #[cfg(test)]
    pub(super) fn post(&self) -> Option<ProbePost> {
        self.post.borrow().clone()
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

/// Probes until the owner, having received a passed result, drops the [`Probing`]. If the review is replaced, the new
/// one is probed immediately: the endpoint might have passed only with the old one, or might never pass with it.
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
            // The pause usually ends by its timeout.
            false => timeout(pause, post.changed()).await.unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Maximum number of hooks that are tried concurrently.
const MAX_CONCURRENT_TRIALS: usize = 16;

/// Result of the trial of one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialResult {
    /// The hook would enter rotation. Duration of the probe, and the path of its review, if one was posted.
    Passed(Duration, Option<Arc<str>>),
    /// The hook would not enter rotation.
    Failed(ProbeFailure),
    /// The trial did not end in time.
    TimedOut,
}

/// Endpoint and review of a trial. Hooks that share them share the trial.
type TrialKey = (Endpoint, Option<ProbePost>);

/// Tries every hook, all of them in the time `within`. Returns the results in the order of the hooks.
pub async fn trial(candidate: &Candidate, within: Duration) -> Vec<TrialResult> {
    let until = Instant::now() + within;
    let (resources, room) = (Resources::unlimited(), Arc::new(Semaphore::new(MAX_CONCURRENT_TRIALS)));
    let hooks = candidate.snapshot.hooks.iter();
    let keys: Vec<TrialKey> = hooks.map(|hook| (hook.endpoint.clone(), ProbePost::for_hook(hook))).collect();
    let mut trials = JoinSet::new();
    let mut results_by_key: HashMap<TrialKey, TrialResult> = HashMap::new();
    for key in &keys {
        if results_by_key.insert(key.clone(), TrialResult::TimedOut).is_some() {
            continue;
        }
        let (room, resources, key) = (Arc::clone(&room), resources.clone(), key.clone());
        let tls = candidate.tls(&key.0);
        trials.spawn(async move {
            let Ok(_permit) = room.acquire().await else { return (key, TrialResult::TimedOut) };
            let began = Instant::now();
            let channel = Channel::open_within(&resources, key.0.clone(), tls, &[Handle::current()]);
            let tried = match channel.probe(key.1.as_ref(), PROBE_TIMEOUT).await {
                Ok(()) => TrialResult::Passed(began.elapsed(), key.1.as_ref().map(|post| Arc::clone(&post.path))),
                Err(failure) => TrialResult::Failed(failure),
            };
            (key, tried)
        });
    }
    // Dropping the set cancels unfinished trials and closes their connections.
    while let Ok(Some(Ok((key, tried)))) = timeout_at(until, trials.join_next()).await {
        results_by_key.insert(key, tried);
    }
    keys.iter().map(|key| results_by_key.get(key).cloned().unwrap_or(TrialResult::TimedOut)).collect()
}

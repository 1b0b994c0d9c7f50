//! Trial: each hook of a candidate is dialled and probed once, as one that is added to a running sidecar is.
//!
//! The same channels, TLS and probes as [`probing`](super::probing), without the rotation behind them: for whoever
//! wants to know beforehand.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::JoinSet,
    time::{self, timeout_at},
};

use super::{Candidate, probing::PROBE_TIMEOUT};
use crate::{
    hooks::{Channel, ProbeFailure, ProbePost, Resources},
    model::{Endpoint, HttpForm},
};

/// Hooks that are dialled at once.
const AT_ONCE: usize = 16;

/// Result of the trial of one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
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
pub async fn trial(candidate: &Candidate, within: Duration) -> Vec<Tried> {
    let until = time::Instant::now() + within;
    let (resources, room) = (Resources::unlimited(), Arc::new(Semaphore::new(AT_ONCE)));
    let keys: Vec<Key> = candidate.snapshot.hooks.iter().map(|hook| key(&hook.endpoint, ProbePost::to(hook))).collect();
    let mut trials = JoinSet::new();
    let mut begun: HashMap<Key, Tried> = HashMap::new();
    for key in &keys {
        if begun.insert(key.clone(), Tried::Late).is_some() {
            continue;
        }
        let (room, resources, key) = (Arc::clone(&room), resources.clone(), key.clone());
        let tls = candidate.tls(&key.0);
        trials.spawn(async move {
            let Ok(_permit) = room.acquire().await else { return (key, Tried::Late) };
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
    keys.iter().map(|key| begun.get(key).cloned().unwrap_or(Tried::Late)).collect()
}

fn key(endpoint: &Endpoint, post: Option<ProbePost>) -> Key {
    (endpoint.clone(), post.map(|post| (post.path, post.form)))
}

async fn once(channel: &Channel, post: Option<(Arc<str>, HttpForm)>, began: Instant) -> Tried {
    let post = post.map(|(path, form)| ProbePost { path, form });
    match channel.probe(post.as_ref(), PROBE_TIMEOUT).await {
        Ok(()) => Tried::Passed(began.elapsed(), post.map(|post| post.path)),
        Err(failure) => Tried::Failed(failure),
    }
}

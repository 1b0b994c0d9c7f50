//! Probing: asks a new endpoint again and again, ever more slowly, until it answers.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::timeout,
};

use super::hook_placement::Placement;
use crate::{
    clock::{Backoff, chance, jittered},
    hooks::{Channel, ProbeFailure, ProbePost},
    live::{Rotation, generation::Replacement},
    model::{Endpoint, Hook},
};

/// Timeout of one probe, connection and handshake included.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the first failed probe; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// No pause is longer: an operator who has mended a hook should not wait for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Factors between which pauses vary: sidecars that lost the same hook are not to come back to it in step.
const JITTER: (f64, f64) = (0.5, 1.0);

/// Result of a probe.
#[derive(Debug)]
pub(super) struct ProbeNews {
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
    /// Begins to probe in the background; each probe's result goes to `news`.
    pub(super) fn begin(channel: Arc<Channel>, post: Option<ProbePost>, news: mpsc::Sender<ProbeNews>) -> Self {
        let (post, posted) = watch::channel(post);
        let probes = tokio::spawn(probe_until_passed(Arc::clone(&channel), posted, news)).abort_handle();
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
    pub(super) fn believes(&self, news: &ProbeNews) -> bool {
        Arc::ptr_eq(&self.channel, &news.channel) && *self.post.borrow() == news.post
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

/// Review to post to each endpoint that has to pass a probe: that of the first of its hooks in the configuration that
/// may be sent a canned review.
pub(super) fn posts<'a>(hooks: &'a [Arc<Hook>], placements: &[Placement]) -> HashMap<&'a Endpoint, ProbePost> {
    let mut posts = HashMap::new();
    for (hook, placement) in hooks.iter().zip(placements) {
        if let Placement::ProbeFirst | Placement::Migrate(_) = placement
            && let Some(post) = ProbePost::to(hook)
        {
            posts.entry(&hook.endpoint).or_insert(post);
        }
    }
    posts
}

/// Probes until the owner has heard that the endpoint has passed, and drops us. The review may be replaced at any time;
/// the new one is tried at once, as the endpoint may never pass, or has passed, with the one before.
async fn probe_until_passed(
    channel: Arc<Channel>,
    mut post: watch::Receiver<Option<ProbePost>>,
    news: mpsc::Sender<ProbeNews>,
) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let posted = post.borrow_and_update().clone();
        let outcome = channel.probe(posted.as_ref(), PROBE_TIMEOUT).await;
        let passed = outcome.is_ok();
        if news.send(ProbeNews { channel: Arc::clone(&channel), post: posted, outcome }).await.is_err() {
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

//! Probing: asks a new endpoint again and again, ever more slowly, until it answers.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    hooks::{Channel, ProbeFailure},
    live::{Rotation, generation::Replacement},
};

/// How long a hook has for one probe, connection and handshake included.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the first failed probe; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// No pause is longer: an operator who has mended a hook should not wait for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How a probe went.
#[derive(Debug)]
pub(super) struct ProbeNews {
    pub(super) channel: Arc<Channel>,
    pub(super) outcome: Result<(), ProbeFailure>,
}

/// An endpoint that is being probed. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) channel: Arc<Channel>,
    since: SystemTime,
    last_failure: Option<ProbeFailure>,
    probes: AbortHandle,
}

impl Probing {
    /// Begins to probe in the background; each probe's end is told to `news`.
    pub(super) fn begin(channel: Arc<Channel>, news: mpsc::Sender<ProbeNews>) -> Self {
        let probes = tokio::spawn(probe_until_passed(Arc::clone(&channel), news)).abort_handle();
        Self { channel, since: SystemTime::now(), last_failure: None, probes }
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

async fn probe_until_passed(channel: Arc<Channel>, news: mpsc::Sender<ProbeNews>) {
    for failures in 1.. {
        let outcome = channel.probe(PROBE_TIMEOUT).await;
        let passed = outcome.is_ok();
        let told = news.send(ProbeNews { channel: Arc::clone(&channel), outcome }).await;
        if passed || told.is_err() {
            return;
        }
        tokio::time::sleep(pause(failures, RandomState::new().build_hasher().finish())).await;
    }
}

/// The pause after so many failed probes in a row: between half and all of the doubled pause, so that sidecars that
/// lost the same hook do not come back to it in step.
fn pause(failures: u32, random: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let longest = (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
    longest / 2 + (longest / 2).mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_vary() {
        let most: Vec<_> = (1..=8).map(|failures| pause(failures, u64::MAX).as_millis()).collect();
        assert_eq!(most, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(pause(1, 0), FIRST_PAUSE / 2);
        assert_eq!(pause(u32::MAX, 0), LONGEST_PAUSE / 2);
    }
}

//! Replica: this sidecar's name, and the progress of its reports.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use super::ReplicaReport;
use crate::live::ReplicaHealth;

/// Most causes that are logged until publishing succeeds again.
const MOST_CAUSES: usize = 16;

/// This sidecar's name, and the progress of its reports.
#[derive(Debug)]
pub struct Replica {
    name: String,
    instance: String,
    publish_status: Mutex<PublishStatus>,
}

/// Progress of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishStatus {
    /// Place of the reports; `None` where they are at the admin address alone.
    pub place: Option<String>,
    /// Time of the last success.
    pub published: Option<SystemTime>,
    /// Failure at present.
    pub failure: Option<String>,
    /// Every cause of a failure since it last succeeded: each is news once, also where several take turns.
    causes: Vec<String>,
}

impl Replica {
    /// One of this name, that publishes nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        let instance = format!("{:016x}", RandomState::new().build_hasher().finish());
        Self { name: name.into(), instance, publish_status: Mutex::default() }
    }

    /// The name of this machine, by which a replica goes where nothing else is said.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identity of this run among all with the same name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Report of the present state, of at most so many hooks.
    pub fn report(&self, health: &ReplicaHealth, most_hooks: usize) -> ReplicaReport {
        ReplicaReport::of(health, self, (Instant::now(), SystemTime::now()), most_hooks)
    }

    /// Progress of publishing.
    pub fn publish_status(&self) -> PublishStatus {
        self.lock().clone()
    }

    /// Reports are published there from now on.
    pub(super) fn set_place(&self, place: &str) {
        self.lock().place = Some(place.to_owned());
    }

    /// Records the result of publishing; true where that is news.
    pub(super) fn record(&self, outcome: Result<(), String>, now: SystemTime) -> bool {
        let mut status = self.lock();
        if outcome.is_ok() {
            status.published = Some(now);
        }
        let failure = outcome.err();
        let news = match &failure {
            None => !std::mem::take(&mut status.causes).is_empty(),
            Some(cause) => !status.causes.contains(cause) && status.causes.len() < MOST_CAUSES,
        };
        status.causes.extend(failure.clone().filter(|_| news));
        status.failure = failure;
        news
    }

    fn lock(&self) -> MutexGuard<'_, PublishStatus> {
        self.publish_status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_take_turns_are_news_once_until_it_succeeds() {
        let replica = Replica::new("cp-1");
        let recorded = |outcome: Result<(), &str>| replica.record(outcome.map_err(str::to_owned), SystemTime::now());
        let news = [Ok(()), Err("reset"), Err("closed"), Err("reset"), Err("closed"), Ok(()), Ok(()), Err("reset")]
            .map(recorded);
        assert_eq!(news, [false, true, true, false, false, true, false, true]);
    }
}

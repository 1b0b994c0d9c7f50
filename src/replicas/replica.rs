//! Replica: this sidecar's name, and the progress of its reports.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use super::Report;
use crate::live::Current;

/// Most causes that are logged until publishing succeeds again.
const MOST_CAUSES: usize = 16;

/// This sidecar's name, and the progress of its reports.
#[derive(Debug)]
pub struct Replica {
    name: String,
    instance: String,
    telling: Mutex<Telling>,
}

/// Progress of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    /// Place; `None` where reports are at the admin address alone.
    pub place: Option<String>,
    /// Time of the last success.
    pub told: Option<SystemTime>,
    /// Failure at present.
    pub failure: Option<String>,
    /// Every cause of a failure since it last succeeded: each is news once, also where several take turns.
    causes: Vec<String>,
}

impl Replica {
    /// One of this name, that publishes nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        let instance = format!("{:016x}", RandomState::new().build_hasher().finish());
        Self { name: name.into(), instance, telling: Mutex::default() }
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
    pub fn report(&self, current: &Current, most_hooks: usize) -> Report {
        Report::of(current, self, (Instant::now(), SystemTime::now()), most_hooks)
    }

    /// Progress of publishing.
    pub fn telling(&self) -> Telling {
        self.lock().clone()
    }

    /// Reports are published there from now on.
    pub(super) fn tells(&self, place: &str) {
        self.lock().place = Some(place.to_owned());
    }

    /// Records the result of publishing; true where that is news.
    pub(super) fn record(&self, outcome: Result<(), String>, now: SystemTime) -> bool {
        let mut telling = self.lock();
        if outcome.is_ok() {
            telling.told = Some(now);
        }
        let failure = outcome.err();
        let news = match &failure {
            None => !std::mem::take(&mut telling.causes).is_empty(),
            Some(cause) => !telling.causes.contains(cause) && telling.causes.len() < MOST_CAUSES,
        };
        telling.causes.extend(failure.clone().filter(|_| news));
        telling.failure = failure;
        news
    }

    fn lock(&self) -> MutexGuard<'_, Telling> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_take_turns_are_news_once_until_it_succeeds() {
        let replica = Replica::new("cp-1");
        let told = |outcome: Result<(), &str>| replica.record(outcome.map_err(str::to_owned), SystemTime::now());
        let news =
            [Ok(()), Err("reset"), Err("closed"), Err("reset"), Err("closed"), Ok(()), Ok(()), Err("reset")].map(told);
        assert_eq!(news, [false, true, true, false, false, true, false, true]);
    }
}

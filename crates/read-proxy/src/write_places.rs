//! Limit on concurrent writes of opted-in resources, the age of the oldest write, and the readiness of the proxy.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Places for writes that may wait for initializers.
#[derive(Debug)]
pub(super) struct WritePlaces {
    limit: usize,
    taken: Mutex<TakenPlaces>,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    /// Start of each write, in order of arrival.
    since: BTreeMap<u64, Instant>,
    next: u64,
}

/// Place of one write, until dropped.
#[derive(Debug)]
pub(super) struct WritePlace {
    places: Arc<WritePlaces>,
    number: u64,
}

impl WritePlaces {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::default() })
    }

    /// Takes a place; `None` if all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Option<WritePlace> {
        let mut taken = self.taken();
        if taken.since.len() >= self.limit {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        taken.since.insert(number, Instant::now());
        drop(taken);
        Some(WritePlace { places: Arc::clone(self), number })
    }

    /// Returns the number of taken places, and the limit.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.taken().since.len(), self.limit)
    }

    /// Returns the age of the oldest taken place.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.taken().since.values().next().map(Instant::elapsed)
    }

    fn taken(&self) -> MutexGuard<'_, TakenPlaces> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WritePlace {
    fn drop(&mut self) {
        self.places.taken().since.remove(&self.number);
    }
}

/// Whether the proxy can serve clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyReadiness {
    /// Ready. A later outage of the apiserver does not change this: another proxy would not reach it either.
    Ready,
    /// Not yet ready: the apiserver has not answered a TokenReview.
    Unanswered,
    /// No longer ready: the process is shutting down.
    Draining,
}

impl fmt::Display for ProxyReadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ok",
            Self::Unanswered => "not ready: the apiserver has not answered a question about a user yet; see the log",
            Self::Draining => "not ready: shutting down",
        })
    }
}

/// Startup and shutdown of a proxy.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    answered: AtomicBool,
    draining: AtomicBool,
}

impl Lifecycle {
    /// Records that the apiserver has answered a TokenReview.
    pub(super) fn set_answered(&self) {
        self.answered.store(true, Relaxed);
    }

    /// Records that the proxy is shutting down.
    pub(super) fn set_draining(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(super) fn readiness(&self) -> ProxyReadiness {
        match (self.draining.load(Relaxed), self.answered.load(Relaxed)) {
            (true, _) => ProxyReadiness::Draining,
            (false, true) => ProxyReadiness::Ready,
            (false, false) => ProxyReadiness::Unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_are_given_back_and_the_oldest_is_known() {
        let places = WritePlaces::new(2);
        assert_eq!((places.load(), places.oldest()), ((0, 2), None));
        let first = places.take().expect("a place");
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = places.take().expect("another");
        assert!(places.take().is_none(), "all are taken");
        assert_eq!((places.load(), places.oldest()), ((2, 2), Some(Duration::from_secs(3))));
        drop(first);
        assert_eq!((places.load(), places.oldest()), ((1, 2), Some(Duration::ZERO)));
        assert!(places.take().is_some());
        drop(second);
        assert_eq!((places.load(), places.oldest()), ((0, 2), None));
    }
}

#[cfg(test)]
mod readiness_tests {
    use super::*;

    #[test]
    fn a_proxy_is_ready_between_the_first_answer_and_its_end() {
        let lifecycle = Lifecycle::default();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Unanswered);
        lifecycle.set_answered();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Ready);
        lifecycle.set_draining();
        lifecycle.set_answered();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Draining);
    }
}

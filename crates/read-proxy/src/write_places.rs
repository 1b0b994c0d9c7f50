//! Write places: how many writes of opted-in resources are under way at the same time, and since when.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Places of writes that may wait for initializers.
#[derive(Debug)]
pub(super) struct WritePlaces {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Arrivals, in their order.
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
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// A place; `None` where all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Option<WritePlace> {
        let mut taken = self.taken();
        if taken.since.len() >= self.most {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        taken.since.insert(number, Instant::now());
        drop(taken);
        Some(WritePlace { places: Arc::clone(self), number })
    }

    /// Places that are taken, and all of them.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.taken().since.len(), self.most)
    }

    /// For how long the oldest has been taken.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.taken().since.values().next().map(Instant::elapsed)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WritePlace {
    fn drop(&mut self) {
        self.places.taken().since.remove(&self.number);
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

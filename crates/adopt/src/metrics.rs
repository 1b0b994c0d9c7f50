//! Metrics of webhooks that are taken over from the apiserver.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::Reason;

/// Metrics of webhooks of others, as observed by this replica. Nothing is exposed before the first read.
#[derive(Debug, Default)]
pub struct AdoptionMetrics {
    webhooks: Mutex<Option<Webhooks>>,
    left: Mutex<Option<[usize; Reason::WORDS.len()]>>,
    overlap_millis: AtomicU64,
    longest_overlap_millis: AtomicU64,
    drops: AtomicU64,
}

/// Numbers of webhooks of others that carry our condition, at the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// Number of webhooks that carry the condition and are called.
    pub called: usize,
    /// Number of webhooks that carry the condition and are not called.
    pub uncalled: usize,
}

impl AdoptionMetrics {
    /// Sets the numbers of the last read.
    pub fn set(&self, webhooks: Webhooks) {
        *self.webhooks.lock().unwrap_or_else(PoisonError::into_inner) = Some(webhooks);
    }

    /// Returns the numbers of the last read; `None` before the first.
    pub fn webhooks(&self) -> Option<Webhooks> {
        *self.webhooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of webhooks left to the apiserver, by reason; `None` on replicas that do not lead.
    pub fn set_left(&self, left: Option<[usize; Reason::WORDS.len()]>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Returns the number of webhooks left to the apiserver, in the order of [`Reason::WORDS`].
    pub fn left(&self) -> Option<[usize; Reason::WORDS.len()]> {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds time during which webhooks were called here and perhaps also by the apiserver, summed over the webhooks.
    pub fn add_overlap(&self, time: Duration) {
        self.overlap_millis.fetch_add(millis(time), Relaxed);
    }

    /// Returns the total time of [`add_overlap`](Self::add_overlap), in seconds.
    pub fn overlap_seconds(&self) -> f64 {
        self.overlap_millis.load(Relaxed) as f64 / 1e3
    }

    /// Updates the maximum time for which one webhook has been called here and perhaps also by the apiserver.
    pub fn record_overlap(&self, time: Duration) {
        self.longest_overlap_millis.fetch_max(millis(time), Relaxed);
    }

    /// Returns the maximum time of [`record_overlap`](Self::record_overlap), in seconds.
    pub fn longest_overlap_seconds(&self) -> f64 {
        self.longest_overlap_millis.load(Relaxed) as f64 / 1e3
    }

    /// Sets the total number of times that owners have dropped the condition.
    pub fn set_drops(&self, drops: u64) {
        self.drops.store(drops, Relaxed);
    }

    /// Returns the total number of times that owners have dropped the condition.
    pub fn drops(&self) -> u64 {
        self.drops.load(Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

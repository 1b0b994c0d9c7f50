//! Counters of webhooks that were taken over from the apiserver.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::adopt::Reason;

/// Metrics of webhooks of others, as this replica sees them. Nothing is exposed before the first read.
#[derive(Debug, Default)]
pub struct AdoptionMetrics {
    now: Mutex<Option<Webhooks>>,
    left: Mutex<Option<Left>>,
    overlap_millis: AtomicU64,
    longest_millis: AtomicU64,
    drops: AtomicU64,
}

/// Number of webhooks that are left to the apiserver, by reason.
pub(super) type Left = [usize; Reason::WORDS.len()];

/// Numbers of webhooks of others that carry our condition, at the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// They carry the condition, and are called.
    pub called: usize,
    /// They carry the condition, and are not called.
    pub uncalled: usize,
}

impl AdoptionMetrics {
    /// Sets the numbers of the last read.
    pub fn set(&self, webhooks: Webhooks) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some(webhooks);
    }

    /// Sets the number of webhooks left to the apiserver, by reason; `None` on replicas that do not lead.
    pub fn set_left(&self, left: Option<[usize; Reason::WORDS.len()]>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    pub(super) fn left(&self) -> Option<Left> {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds time for which webhooks were called here and perhaps by the apiserver as well, summed over the webhooks.
    pub fn overlap(&self, time: Duration) {
        self.overlap_millis.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Records the time for which one webhook has been called here and perhaps by the apiserver as well.
    pub fn overlap_lasts(&self, time: Duration) {
        self.longest_millis.fetch_max(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Sets the total number of times that owners have dropped the condition.
    pub fn set_drops(&self, drops: u64) {
        self.drops.store(drops, Relaxed);
    }

    pub(super) fn webhooks(&self) -> Option<Webhooks> {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn overlap_seconds(&self) -> f64 {
        self.overlap_millis.load(Relaxed) as f64 / 1e3
    }

    pub(super) fn longest_overlap_seconds(&self) -> f64 {
        self.longest_millis.load(Relaxed) as f64 / 1e3
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops.load(Relaxed)
    }
}

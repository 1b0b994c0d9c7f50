//! Counters of one bypass, resolved once a generation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::model::BypassEffect;

/// Counts of requests that a bypass has applied to, by its effect, which a change of the configuration may change.
#[derive(Debug, Default)]
pub struct BypassMetrics([AtomicU64; BypassEffect::ALL.len()]);

impl BypassMetrics {
    /// It applied to one request.
    pub fn record(&self, effect: BypassEffect) {
        self.0[effect.index()].fetch_add(1, Relaxed);
    }

    /// Count for each effect.
    pub(super) fn counts(&self) -> impl Iterator<Item = (BypassEffect, u64)> {
        BypassEffect::ALL.into_iter().zip(&self.0).map(|(effect, cell)| (effect, cell.load(Relaxed)))
    }
}

//! Overlap: time in which both the apiserver and this replica may call webhooks.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::{
    adopt::{CalledWebhook, Cause},
    telemetry::AdoptionMetrics,
};

/// Webhooks that both may have called at the last read.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// Time of the last read.
    last: Option<Instant>,
    /// Time from which both may have called a webhook, by its id.
    both: BTreeMap<String, Instant>,
}

impl Overlap {
    /// Counts the time since the last read, given what is called in fact.
    pub(super) fn count(&mut self, asked: &[CalledWebhook], in_force: &BTreeSet<String>, metrics: &AdoptionMetrics) {
        let now = Instant::now();
        let both = asked.iter().filter(|asked| asked.cause != Cause::Carries);
        let both: BTreeSet<_> = both.map(|asked| &asked.id).filter(|id| in_force.contains(*id)).cloned().collect();
        if let Some(last) = self.last.replace(now) {
            metrics.overlap((now - last).saturating_mul(u32::try_from(both.len()).unwrap_or(u32::MAX)));
        }
        self.both.retain(|id, _| both.contains(id));
        for id in both {
            self.both.entry(id).or_insert(now);
        }
        if let Some(longest) = self.both.values().map(|since| now - *since).max() {
            metrics.overlap_lasts(longest);
        }
    }
}

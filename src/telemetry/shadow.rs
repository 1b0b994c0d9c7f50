//! Counts of what a hook or policy in shadow decides, and the last requests that it would have rejected.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use gatepost_base::labels;

labels! {
    /// Outcome of a hook or policy in shadow for one request.
    pub enum ShadowOutcome {
        /// It would allow the request, unchanged.
        Allowed = "allowed",
        /// It would change the object.
        WouldPatch = "would_patch",
        /// It would deny the request.
        WouldDeny = "would_deny",
        /// Its call or evaluation failed.
        Failed = "failed",
        /// It has not decided: the process stopped before, or had no memory or thread to spare.
        Abandoned = "abandoned",
    }
}

labels! {
    /// Reason why a request was not decided in shadow, or not by everything.
    pub enum ShadowDrop {
        /// Too many requests were being decided in shadow.
        Slots = "slots",
        /// The memory budget was in use.
        Memory = "memory",
        /// Other work was running beside the workers, or the time ended while waiting for a turn.
        Threads = "threads",
    }
}

/// Maximum number of requests that are kept of one hook or policy.
const MAX_KEPT: usize = 8;

/// A request that a hook or policy in shadow would have denied. It has nothing of the object's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WouldBeDenial {
    /// Time of the decision.
    pub at: SystemTime,
    /// Operation and kind, and name of the object, such as `CREATE Pod shop/web`.
    pub request: String,
    /// Message of the rejection; `None` if texts of hooks are not kept.
    pub message: Option<String>,
}

/// Counts of one hook or policy in shadow.
#[derive(Debug, Default)]
pub struct ShadowMetrics {
    counts: [AtomicU64; ShadowOutcome::LABELS.len()],
    denials: Mutex<VecDeque<WouldBeDenial>>,
}

impl ShadowMetrics {
    /// Records a decision.
    pub fn record(&self, outcome: ShadowOutcome) {
        self.counts[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Records a request that would have been denied. Of many, the last are kept.
    pub fn record_denial(&self, denial: WouldBeDenial) {
        self.record(ShadowOutcome::WouldDeny);
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if denials.len() == MAX_KEPT {
            denials.pop_front();
        }
        denials.push_back(denial);
    }

    /// Returns the number of decisions by outcome.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ShadowOutcome::LABELS.iter().zip(&self.counts).map(|(label, count)| (*label, count.load(Relaxed)))
    }

    /// Returns the last requests that would have been denied, oldest first.
    pub fn denials(&self) -> Vec<WouldBeDenial> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_denials_are_kept_and_all_are_counted() {
        let shadow = ShadowMetrics::default();
        let denial = |number: usize| WouldBeDenial {
            at: SystemTime::UNIX_EPOCH,
            request: format!("CREATE Pod shop/{number}"),
            message: None,
        };
        (0..20).for_each(|number| shadow.record_denial(denial(number)));
        shadow.record(ShadowOutcome::Failed);
        assert_eq!(shadow.denials(), (12..20).map(denial).collect::<Vec<_>>());
        let counts: Vec<_> = shadow.counts().map(|(_, count)| count).collect();
        assert_eq!(counts, [0, 0, 20, 1, 0]);
    }
}

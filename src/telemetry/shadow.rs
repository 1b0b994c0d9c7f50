//! Counts of the decisions of a hook or policy in shadow, and the last requests that it would have rejected.

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
        /// It has not decided: the process stopped before, or had no memory or idle thread.
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

/// A request that is kept to be listed. It has nothing of the object's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// Time of the decision.
    pub at: SystemTime,
    /// Operation and kind, and name of the object, such as `CREATE Pod shop/web`.
    pub request: String,
    /// Message of the rejection, or the difference; `None` if texts of hooks are not kept.
    pub message: Option<String>,
}

impl KeptRequest {
    /// Creates one of a request that was decided now.
    pub fn now(request: String, message: Option<String>) -> Self {
        Self { at: SystemTime::now(), request, message }
    }
}

/// The last requests of one kind.
#[derive(Debug, Default)]
struct LastRequests(Mutex<VecDeque<KeptRequest>>);

impl LastRequests {
    fn keep(&self, request: KeptRequest) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(request);
    }

    fn oldest_first(&self) -> Vec<KeptRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Counts of one hook or policy in shadow.
#[derive(Debug, Default)]
pub struct ShadowMetrics {
    counts: [AtomicU64; ShadowOutcome::LABELS.len()],
    denials: LastRequests,
    /// Requests that a canary and the one that it is to replace decided alike.
    same: AtomicU64,
    /// Requests that they decided otherwise.
    different: AtomicU64,
    differences: LastRequests,
}

impl ShadowMetrics {
    /// Records a decision.
    pub fn record(&self, outcome: ShadowOutcome) {
        self.counts[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Records a request that would have been denied. Of many, the last are kept.
    pub fn record_denial(&self, denial: KeptRequest) {
        self.record(ShadowOutcome::WouldDeny);
        self.denials.keep(denial);
    }

    /// Records a request that this canary and the one that it is to replace decided alike.
    pub fn record_same(&self) {
        self.same.fetch_add(1, Relaxed);
    }

    /// Records a request that they decided otherwise. Of many, the last are kept.
    pub fn record_difference(&self, difference: KeptRequest) {
        self.different.fetch_add(1, Relaxed);
        self.differences.keep(difference);
    }

    /// Returns the number of requests that a canary and the one that it is to replace decided alike, and otherwise.
    pub fn comparisons(&self) -> [(&'static str, u64); 2] {
        [("same", self.same.load(Relaxed)), ("different", self.different.load(Relaxed))]
    }

    /// Returns the last requests that they decided otherwise, oldest first.
    pub fn differences(&self) -> Vec<KeptRequest> {
        self.differences.oldest_first()
    }

    /// Returns the number of decisions by outcome.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ShadowOutcome::LABELS.iter().zip(&self.counts).map(|(label, count)| (*label, count.load(Relaxed)))
    }

    /// Returns the last requests that would have been denied, oldest first.
    pub fn denials(&self) -> Vec<KeptRequest> {
        self.denials.oldest_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_denials_are_kept_and_all_are_counted() {
        let shadow = ShadowMetrics::default();
        let denial = |number: usize| KeptRequest {
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

//! Recent: results of a hook's calls, or of an initializer's turns, over the last minutes.
//!
//! Counters only grow; whoever wants to know what fails now needs to know what they were a while ago. They are sampled
//! beside the calls, so that a call pays for none of it.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// Time between two samples.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(30);
/// Calls that ended longer ago no longer count as recent.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// Counters as they were at times, the oldest first, none of them older than is needed.
#[derive(Debug)]
pub(super) struct Recent(VecDeque<Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    counts: Counts,
}

/// Calls that have ended with an answer or a failure, those of them that failed, and others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    /// Calls that ended so or were cancelled.
    pub(super) in_vain: u64,
}

/// Calls of a mutating hook ahead of its turn that did not count lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentInVain {
    /// Number of calls in vain.
    pub in_vain: u64,
    /// All calls in that time, these included.
    pub calls: u64,
    /// Length of that time.
    pub over: Duration,
}

/// Calls of a hook, or turns of an initializer, that failed lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentCallFailures {
    /// Number of failed calls.
    pub failed: u64,
    /// Calls that ended in that time, those that failed included.
    pub calls: u64,
    /// Length of that time.
    pub over: Duration,
    /// The last one, where it is known.
    pub last: Option<LastFailure>,
    /// Calls that have succeeded since the last failure; `None` where none has.
    pub recovery: Option<Recovery>,
}

impl RecentCallFailures {
    /// Have as many calls succeeded since the last failure as had failed?
    pub fn has_recovered(&self) -> bool {
        self.recovery.is_some_and(|recovery| recovery.successes >= self.failed)
    }
}

/// Calls that have succeeded since the last failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Number of them.
    pub successes: u64,
    /// Time of the last one, to the second.
    pub last: SystemTime,
}

/// The last call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// In what way, as `gatepost_hook_call_failures_total` names it.
    pub kind: &'static str,
    /// Time of the call, to the second.
    pub at: SystemTime,
}

/// Counters over the last minutes, the last failure, and the successes after it.
#[derive(Debug)]
pub(super) struct RecentResults {
    /// No call locks it.
    samples: Mutex<Recent>,
    /// The last failure: seconds since 1970, and the number of its kind in the last byte; 0 before the first.
    last_failure: AtomicU64,
    /// Calls that had succeeded before it.
    succeeded_before: AtomicU64,
    /// The last success after the first failure, in seconds since 1970.
    last_success: AtomicU64,
}

impl RecentResults {
    /// Nothing was counted before.
    pub(super) fn since(at: Instant) -> Self {
        Self {
            samples: Mutex::new(Recent::since(at)),
            last_failure: AtomicU64::new(0),
            succeeded_before: AtomicU64::new(0),
            last_success: AtomicU64::new(0),
        }
    }

    /// A call has failed in this way; the counters are those before it.
    pub(super) fn failed(&self, kind: u8, counts: Counts) {
        self.succeeded_before.store(counts.succeeded(), Relaxed);
        self.last_failure.store(seconds() << 8 | u64::from(kind), Relaxed);
    }

    /// A call has succeeded. Of what has never failed this costs one load.
    #[inline]
    pub(super) fn succeeded(&self) {
        if self.last_failure.load(Relaxed) == 0 {
            return;
        }
        let now = seconds();
        // The line is written once a second, not once a call.
        if self.last_success.load(Relaxed) != now {
            self.last_success.store(now, Relaxed);
        }
    }

    /// The counters are this now.
    pub(super) fn sample(&self, now: Instant, counts: Counts) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).sample(now, counts);
    }

    /// Time since the oldest sample, and what was counted since.
    pub(super) fn grown(&self, now: Instant, counts: Counts) -> (Duration, Counts) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).grown(now, counts)
    }

    /// True once something has failed.
    pub(super) fn have_failed(&self) -> bool {
        self.last_failure.load(Relaxed) != 0
    }

    /// Failures within the last minutes; `None` where nothing has failed.
    pub(super) fn failures(
        &self,
        (now, counts): (Instant, Counts),
        kind: impl Fn(u8) -> Option<&'static str>,
    ) -> Option<RecentCallFailures> {
        let last = self.last_failure.load(Relaxed);
        let (over, grown) = self.grown(now, counts);
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let successes = counts.succeeded().saturating_sub(self.succeeded_before.load(Relaxed));
        let recovery = Recovery { successes, last: at(self.last_success.load(Relaxed)) };
        (last != 0 && grown.failed > 0).then_some(RecentCallFailures {
            failed: grown.failed,
            calls: grown.calls,
            over,
            last: kind((last & 0xff) as u8).map(|kind| LastFailure { kind, at: at(last >> 8) }),
            recovery: (successes > 0).then_some(recovery),
        })
    }
}

/// Seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Counts {
    /// Calls that have ended without a failure.
    fn succeeded(&self) -> u64 {
        self.calls.saturating_sub(self.failed)
    }
}

impl Recent {
    /// Nothing was counted before.
    pub(super) fn since(at: Instant) -> Self {
        Self(VecDeque::from([Sample { at, counts: Counts::default() }]))
    }

    /// The counters are this now.
    pub(super) fn sample(&mut self, at: Instant, counts: Counts) {
        if self.0.back().is_some_and(|last| at.saturating_duration_since(last.at) < SAMPLE_EVERY / 2) {
            return;
        }
        self.0.push_back(Sample { at, counts });
        // One that is older than the window is kept: what happened since is counted from there.
        while self.0.get(1).is_some_and(|next| at.saturating_duration_since(next.at) >= WINDOW) {
            self.0.pop_front();
        }
    }

    /// Time since the oldest sample, and what was counted since.
    pub(super) fn grown(&self, now: Instant, counts: Counts) -> (Duration, Counts) {
        let recent = |sample: &&Sample| now.saturating_duration_since(sample.at) <= WINDOW + SAMPLE_EVERY;
        let Some(from) = self.0.iter().find(recent).or(self.0.back()) else { return (Duration::ZERO, counts) };
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let grown = Counts {
            calls: since(counts.calls, from.counts.calls),
            failed: since(counts.failed, from.counts.failed),
            cancelled: since(counts.cancelled, from.counts.cancelled),
            in_vain: since(counts.in_vain, from.counts.in_vain),
        };
        (now.saturating_duration_since(from.at), grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_results_are_those_of_the_last_minutes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let counts = |calls, failed| Counts { calls, failed, ..Counts::default() };
        let mut recent = Recent::since(start);
        assert_eq!(recent.grown(at(10), counts(4, 1)), (Duration::from_secs(10), counts(4, 1)), "from the beginning");
        for minute in 1..=20_u64 {
            for half in [0, 30] {
                // One call a second, and the first ten minutes of them fail.
                let second = minute * 60 + half;
                recent.sample(at(second), counts(second, second.min(600)));
            }
            assert!(recent.0.len() <= 12, "{}", recent.0.len());
        }
        assert_eq!(recent.grown(at(1230), counts(1230, 600)), (Duration::from_secs(300), counts(300, 0)));
        assert_eq!(recent.grown(at(1235), counts(1240, 605)), (Duration::from_secs(305), counts(310, 5)));
        let (over, _) = recent.grown(at(100_000), counts(1, 1));
        assert!(over > WINDOW, "a machine that has slept has no sample of late: {over:?}");
    }
}

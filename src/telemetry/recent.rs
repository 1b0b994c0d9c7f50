//! Recent results of a hook's calls, or of an initializer's turns.
//!
//! Counters only grow, so recent results are the difference to a former sample. Samples are taken outside of calls,
//! which therefore cost no more.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// Interval between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(30);
/// Age from which calls no longer count as recent.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// Samples of the counters with their times, the oldest first. At most the oldest is older than the window.
#[derive(Debug)]
struct Recent(VecDeque<(Instant, Counts)>);

/// Counts of calls. `calls` ended with an answer or a failure; `failed` are part of them, `cancelled` are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    /// Discarded calls, which are part of `cancelled`.
    pub(super) discarded: u64,
}

/// Recent speculative calls of a mutating hook that were discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentDiscards {
    /// Number of discarded calls.
    pub discarded: u64,
    /// Number of all calls in that time.
    pub calls: u64,
    /// Length of that time.
    pub over: Duration,
}

/// Recent failed calls of a hook, or failed turns of an initializer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentCallFailures {
    /// Number of failed calls.
    pub failed: u64,
    /// Number of calls that ended in that time, including failed ones.
    pub calls: u64,
    /// Length of that time.
    pub over: Duration,
    /// Last failure, if its kind is known.
    pub last: Option<LastFailure>,
    /// Successful calls since the last failure; `None` if there are none.
    pub recovery: Option<Recovery>,
}

impl RecentCallFailures {
    /// Returns true if at least as many calls have succeeded since the last failure as had failed.
    pub fn has_recovered(&self) -> bool {
        self.recovery.is_some_and(|recovery| recovery.successes >= self.failed)
    }
}

/// Successful calls since the last failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Number of successful calls.
    pub successes: u64,
    /// Time of the last success, in whole seconds.
    pub last: SystemTime,
}

/// Last failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// Kind of the failure, as in `gatepost_hook_call_failures_total`.
    pub kind: &'static str,
    /// Time of the failure, in whole seconds.
    pub at: SystemTime,
}

/// Samples of the counters, the last failure, and the successes after it. All counters are zero at the beginning.
#[derive(Debug, Default)]
pub(super) struct RecentResults {
    /// Samples. Calls do not lock this.
    samples: Mutex<Recent>,
    /// Last failure: seconds since 1970, and the number of its kind in the last byte; 0 before the first.
    last_failure: AtomicU64,
    /// Number of successful calls before the last failure.
    succeeded_before: AtomicU64,
    /// Time of the last success after the first failure, in seconds since 1970.
    last_success: AtomicU64,
}

impl RecentResults {
    /// Records a failed call of this kind; `counts` are the counters before it.
    pub(super) fn record_failure(&self, kind: u8, counts: Counts) {
        self.succeeded_before.store(counts.succeeded(), Relaxed);
        self.last_failure.store(seconds() << 8 | u64::from(kind), Relaxed);
    }

    /// Records a successful call. Costs one load if no call has failed yet.
    #[inline]
    pub(super) fn record_success(&self) {
        if self.last_failure.load(Relaxed) == 0 {
            return;
        }
        let now = seconds();
        // Writes the cache line once a second, not for each call.
        if self.last_success.load(Relaxed) != now {
            self.last_success.store(now, Relaxed);
        }
    }

    /// Samples the counters.
    pub(super) fn sample(&self, now: Instant, counts: Counts) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).sample(now, counts);
    }

    /// Returns the time since the oldest recent sample, and the growth of the counters since then.
    pub(super) fn grown(&self, now: Instant, counts: Counts) -> (Duration, Counts) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).grown(now, counts)
    }

    /// Returns true if any call has failed.
    pub(super) fn have_failed(&self) -> bool {
        self.last_failure.load(Relaxed) != 0
    }

    /// Returns the recent failures; `None` if there are none.
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

/// Returns the seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Counts {
    /// Returns the number of successful calls.
    fn succeeded(&self) -> u64 {
        self.calls.saturating_sub(self.failed)
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Recent {
    /// Creates the state with all counters zero at `at`.
    fn since(at: Instant) -> Self {
        Self(VecDeque::from([(at, Counts::default())]))
    }

    /// Adds a sample, unless the last one is very recent.
    fn sample(&mut self, at: Instant, counts: Counts) {
        if self.0.back().is_some_and(|(last, _)| at.saturating_duration_since(*last) < SAMPLE_INTERVAL / 2) {
            return;
        }
        self.0.push_back((at, counts));
        // Keeps one sample that is older than the window, as the start of it.
        while self.0.get(1).is_some_and(|(next, _)| at.saturating_duration_since(*next) >= WINDOW) {
            self.0.pop_front();
        }
    }

    /// Returns the time since the oldest recent sample, and the growth of the counters since then.
    fn grown(&self, now: Instant, counts: Counts) -> (Duration, Counts) {
        let recent = |(at, _): &&(Instant, Counts)| now.saturating_duration_since(*at) <= WINDOW + SAMPLE_INTERVAL;
        let Some((at, from)) = self.0.iter().find(recent).or(self.0.back()) else { return (Duration::ZERO, counts) };
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let grown = Counts {
            calls: since(counts.calls, from.calls),
            failed: since(counts.failed, from.failed),
            cancelled: since(counts.cancelled, from.cancelled),
            discarded: since(counts.discarded, from.discarded),
        };
        (now.saturating_duration_since(*at), grown)
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

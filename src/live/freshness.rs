//! Freshness: the age of the configuration in force, and the age from which it is not trusted.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use gatepost_base::clock::{Age, Moment, Slept};

/// Older than this, the configuration is not trusted and requests are refused.
// source: dynamic-admission-control-configuration.md, "If there isn't any successful read in the last 5s".
pub const STALE_AFTER: Duration = Duration::from_secs(5);

/// Time since the start of the last good read, and the bound on it.
#[derive(Debug)]
pub struct Freshness {
    read: Age,
    /// Age from which the configuration is not trusted, in milliseconds.
    trusted: AtomicU64,
}

impl Freshness {
    /// No good read yet; with that clock of the time that the machine has slept.
    pub fn new(now: Instant, slept: Slept) -> Self {
        Self { read: Age::new(now, slept), trusted: AtomicU64::new(millis(STALE_AFTER)) }
    }

    /// A consistent read that *started* at `started` has succeeded, and the machine has not slept since.
    pub fn stamp(&self, started: Instant) {
        self.read.renew_awake(started);
    }

    /// A consistent read that *started* at `started` has succeeded, and what it found is in force.
    pub fn stamp_read(&self, started: Moment) {
        self.read.renew(started);
    }

    /// Time since the start of the last good read, time slept included; `None` before the first.
    ///
    /// Ask before the generation is loaded: what is loaded then is at least as new as the age says.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.read.at(now)
    }

    /// Sets the age from which the configuration is not trusted: [`STALE_AFTER`], or less.
    pub fn trust_for(&self, age: Duration) {
        self.trusted.store(millis(age), Ordering::Release);
    }

    /// Age from which the configuration is not trusted.
    pub fn trusted_for(&self) -> Duration {
        Duration::from_millis(self.trusted.load(Ordering::Acquire)).min(STALE_AFTER)
    }

    /// True while the configuration is younger than [that](Self::trusted_for).
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < self.trusted_for())
    }
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn configuration_is_fresh_until_five_seconds_after_the_start_of_the_last_good_read() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let freshness = Freshness::new(epoch, slept);
        assert!(!freshness.is_fresh(at(0)), "never read");
        freshness.stamp(at(1000));
        assert!(freshness.is_fresh(at(5999)));
        assert!(!freshness.is_fresh(at(6000)));
        freshness.stamp(at(500));
        assert!(freshness.is_fresh(at(5999)), "an older read that ends late does not age us");
        freshness.stamp(at(6500));
        assert!(freshness.is_fresh(at(11_499)));
        freshness.trust_for(Duration::from_millis(1400));
        assert!(freshness.is_fresh(at(7899)) && !freshness.is_fresh(at(7900)));
    }

    thread_local! {
        static SLEPT: Cell<u64> = const { Cell::new(0) };
    }

    fn slept() -> Duration {
        Duration::from_secs(SLEPT.get())
    }

    #[test]
    fn freshness_counts_time_slept_although_the_monotonic_clock_stood_still() {
        SLEPT.set(100);
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let freshness = Freshness::new(epoch, slept);
        freshness.stamp(at(1000));
        assert_eq!(freshness.age(at(1500)), Some(Duration::from_millis(500)), "what was slept before does not count");
        SLEPT.set(3700);
        assert_eq!(freshness.age(at(1500)), Some(Duration::from_millis(3_600_500)));
        assert!(!freshness.is_fresh(at(1500)));
        freshness.stamp(at(2000));
        assert_eq!(freshness.age(at(2100)), Some(Duration::from_millis(100)), "read after it woke");
    }

    #[test]
    fn freshness_of_a_read_that_was_slept_through_counts_from_its_start() {
        SLEPT.set(0);
        let epoch = Instant::now();
        let freshness = Freshness::new(epoch, slept);
        let started = Moment::awake_since(epoch, slept);
        SLEPT.set(60);
        freshness.stamp_read(started);
        assert_eq!(freshness.age(epoch), Some(Duration::from_secs(60)));
    }
}

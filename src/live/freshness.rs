//! Freshness: age of the configuration in force, the age from which it is stale, and changes that are not read yet.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout_at};

use gatepost_base::clock::{Age, Moment, SuspendedTime};

/// Age from which the configuration is stale, and requests are refused.
// source: dynamic-admission-control-configuration.md, "If there isn't any successful read in the last 5s".
pub const STALE_AFTER: Duration = Duration::from_secs(5);

/// Maximum time for which a request waits for a change that was noticed and is not in force.
// source: dynamic-admission-control-configuration.md, "block incoming requests if … haven't acknowledged a recent change".
pub const MAX_HOLD: Duration = Duration::from_secs(1);

/// Age of the last good read, and the age from which the configuration is stale.
#[derive(Debug)]
pub struct Freshness {
    read: Age,
    /// Age from which the configuration is stale, in milliseconds.
    stale_after: AtomicU64,
    /// True if requests wait for changes that were noticed.
    holds: AtomicBool,
    /// True while a change is noticed that no read in force contains; always false if requests do not wait.
    behind: AtomicBool,
    /// Last noticed change, and start of the last good read.
    changes: watch::Sender<(Option<Instant>, Option<Instant>)>,
}

impl Freshness {
    /// Creates the state without a good read. `suspended_time` is the clock of suspended time.
    pub fn new(now: Instant, suspended_time: SuspendedTime) -> Self {
        Self {
            read: Age::new(now, suspended_time),
            stale_after: AtomicU64::new(millis(STALE_AFTER)),
            holds: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            changes: watch::channel((None, None)).0,
        }
    }

    /// Records a consistent read that *started* at `started`, since which the machine has not been suspended. For
    /// tests.
    pub fn stamp_awake(&self, started: Instant) {
        self.read.renew_awake(started);
    }

    /// Records a consistent read that *started* at `started` and whose result is in force.
    pub fn stamp(&self, started: Moment) {
        self.renew(started);
        self.changes.send_modify(|(noticed, read)| {
            *read = Some(started.instant);
            self.behind.store(*noticed > *read, Ordering::Release);
        });
    }

    /// Records a consistent read that *started* at `started`, and whose changes are not in force yet.
    pub fn renew(&self, started: Moment) {
        self.read.renew(started);
    }

    /// Makes requests wait for changes that are noticed from now on.
    pub fn hold_for_changes(&self) {
        self.holds.store(true, Ordering::Release);
    }

    /// Records that the source has changed. A read that starts later contains the change.
    pub fn notice_change(&self, now: Instant) {
        if self.holds.load(Ordering::Acquire) {
            self.changes.send_modify(|(noticed, _)| {
                *noticed = Some(now);
                self.behind.store(true, Ordering::Release);
            });
        }
    }

    /// Returns true while a change is noticed that no read in force contains, and requests wait for it.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Waits until the changes noticed so far are in force. Returns false if they are not at the time `until`.
    pub async fn catch_up(&self, until: Instant) -> bool {
        let mut changes = self.changes.subscribe();
        let (noticed, _) = *changes.borrow_and_update();
        let caught_up = changes.wait_for(|(_, read)| *read >= noticed);
        timeout_at(until.into(), caught_up).await.is_ok_and(|known| known.is_ok())
    }

    /// Returns the time since the start of the last good read, including time suspended; `None` before the first.
    ///
    /// Call this before loading the generation, which is then at least as new as the age says.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.read.at(now)
    }

    /// Sets the age from which the configuration is stale. Values above [`STALE_AFTER`] have the same effect as that.
    pub fn set_stale_after(&self, age: Duration) {
        self.stale_after.store(millis(age), Ordering::Release);
    }

    /// Returns the age from which the configuration is stale.
    pub fn stale_after(&self) -> Duration {
        Duration::from_millis(self.stale_after.load(Ordering::Acquire)).min(STALE_AFTER)
    }

    /// Returns true while the configuration is younger than [`stale_after`](Self::stale_after).
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < self.stale_after())
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
    fn configuration_is_fresh_for_5s_after_the_last_good_read() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let freshness = Freshness::new(epoch, suspended_time);
        assert!(!freshness.is_fresh(at(0)), "never read");
        freshness.stamp_awake(at(1000));
        assert!(freshness.is_fresh(at(5999)));
        assert!(!freshness.is_fresh(at(6000)));
        freshness.stamp_awake(at(500));
        assert!(freshness.is_fresh(at(5999)), "an older read that ends late does not age us");
        freshness.stamp_awake(at(6500));
        assert!(freshness.is_fresh(at(11_499)));
        freshness.set_stale_after(Duration::from_millis(1400));
        assert!(freshness.is_fresh(at(7899)) && !freshness.is_fresh(at(7900)));
    }

    #[test]
    fn only_a_read_in_force_that_began_after_a_change_contains_it() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let read = |millis| Moment::awake_since(at(millis), suspended_time);
        let freshness = Freshness::new(epoch, suspended_time);
        freshness.notice_change(at(10));
        assert!(!freshness.is_behind(), "nobody waits for changes");
        freshness.hold_for_changes();
        freshness.notice_change(at(20));
        freshness.stamp(read(10));
        assert!(freshness.is_behind(), "it began before the change");
        freshness.renew(read(30));
        assert!(freshness.is_behind(), "what it has read is not in force");
        freshness.stamp(read(30));
        assert!(!freshness.is_behind());
    }

    thread_local! {
        static SLEPT: Cell<u64> = const { Cell::new(0) };
    }

    fn suspended_time() -> Duration {
        Duration::from_secs(SLEPT.get())
    }

    #[test]
    fn freshness_counts_suspended_time() {
        SLEPT.set(100);
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let freshness = Freshness::new(epoch, suspended_time);
        freshness.stamp_awake(at(1000));
        assert_eq!(freshness.age(at(1500)), Some(Duration::from_millis(500)), "what was slept before does not count");
        SLEPT.set(3700);
        assert_eq!(freshness.age(at(1500)), Some(Duration::from_millis(3_600_500)));
        assert!(!freshness.is_fresh(at(1500)));
        freshness.stamp_awake(at(2000));
        assert_eq!(freshness.age(at(2100)), Some(Duration::from_millis(100)), "read after it woke");
    }

    #[test]
    fn freshness_of_a_read_during_suspension_counts_from_its_start() {
        SLEPT.set(0);
        let epoch = Instant::now();
        let freshness = Freshness::new(epoch, suspended_time);
        let started = Moment::awake_since(epoch, suspended_time);
        SLEPT.set(60);
        freshness.stamp(started);
        assert_eq!(freshness.age(epoch), Some(Duration::from_secs(60)));
    }
}

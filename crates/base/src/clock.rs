//! Time: ages that include suspensions of the machine, backoff, and a budget for yielding.
//!
//! An [`Instant`] reads CLOCK_MONOTONIC, which stops while the machine is suspended. CLOCK_BOOTTIME continues; the
//! difference between the two is the time suspended. Setting the wall clock changes neither.

use std::{
    cell::Cell,
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The current time on tokio's clock, which drives all timers and which tests can pause.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A source of the time that the machine has been suspended since boot. Only differences are meaningful.
///
/// Tests pass their own function instead of [`suspended_time`].
pub type SuspendedTime = fn() -> Duration;

/// A point in time whose age includes suspensions of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time on the monotonic clock.
    pub instant: Instant,
    /// The time that the machine had been suspended by then.
    pub suspended_time: Duration,
}

impl Moment {
    /// Returns the current moment.
    ///
    /// An age must never be too small, so this must not overstate the time suspended: it uses the smaller of two
    /// readings. (If the process is stopped between the two clocks of one reading, the pause counts as sleep.)
    pub fn now(suspended_time: SuspendedTime) -> Self {
        let before = suspended_time();
        let instant = now();
        Self { instant, suspended_time: before.min(suspended_time()) }
    }

    /// Returns the moment of `instant`, assuming that the machine has not been suspended since.
    pub fn awake_since(instant: Instant, suspended_time: SuspendedTime) -> Self {
        Self { instant, suspended_time: suspended_time() }
    }

    /// Returns the time since `earlier`, including time suspended; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.instant.saturating_duration_since(earlier.instant)
            + self.suspended_time.saturating_sub(earlier.suspended_time)
    }
}

/// The reading of [`suspended_time`] on a machine that was never suspended, in milliseconds: a year. In a time
/// namespace (a container that was moved from another machine) the difference of the two clocks may be negative.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ORIGIN: i64 = 365 * 24 * 3600 * 1000;

/// Returns the time that this machine has been suspended since boot plus a constant, in whole milliseconds. Never too
/// small.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn suspended_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    // In this order, a pause between the two readings counts as sleep, and sleep is never missed.
    let awake = clock_gettime(ClockId::Monotonic);
    let all = clock_gettime(ClockId::Boottime);
    let nanos = (all.tv_sec - awake.tv_sec) * 1_000_000_000 + (all.tv_nsec - awake.tv_nsec);
    // The nanoseconds between the two readings are not sleep, and would make ages differ between calls.
    Duration::from_millis((nanos / 1_000_000).saturating_add(ORIGIN).max(0) as u64)
}

/// Returns zero: on this platform the monotonic clock includes sleep, or this function does not measure it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn suspended_time() -> Duration {
    Duration::ZERO
}

/// The age of something that is renewed repeatedly, including time suspended. Threads read it without a lock.
#[derive(Debug)]
pub struct Age {
    epoch: Moment,
    suspended_time: SuspendedTime,
    /// Nanoseconds from `epoch` to the last renewal, plus one; 0 before the first.
    renewed: AtomicU64,
}

impl Age {
    /// Creates the age of something that was never renewed.
    pub fn new(now: Instant, suspended_time: SuspendedTime) -> Self {
        Self { epoch: Moment::awake_since(now, suspended_time), suspended_time, renewed: AtomicU64::new(0) }
    }

    /// Records a renewal at that moment. A moment before the last renewal changes nothing.
    pub fn renew(&self, at: Moment) {
        self.renewed.fetch_max(self.nanos_to(at) + 1, Ordering::Release);
    }

    /// Records a renewal at that instant, assuming that the machine has not been suspended since.
    pub fn renew_awake(&self, at: Instant) {
        self.renew(Moment::awake_since(at, self.suspended_time));
    }

    /// Returns the time since the last renewal; `None` before the first.
    pub fn at(&self, now: Instant) -> Option<Duration> {
        let renewed = self.renewed.load(Ordering::Acquire).checked_sub(1)?;
        let now = self.nanos_to(Moment::awake_since(now, self.suspended_time));
        Some(Duration::from_nanos(now.saturating_sub(renewed)))
    }

    fn nanos_to(&self, moment: Moment) -> u64 {
        moment.since(self.epoch).as_nanos() as u64
    }
}

/// A point in time whose age another process on this machine can compute. It counts from boot, so setting the wall
/// clock does not move it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootMoment {
    /// Identity of this boot of the machine.
    pub boot: String,
    /// Nanoseconds since boot, or since the start of the time namespace.
    pub nanos: u64,
}

impl BootMoment {
    /// Converts a moment; `None` if the machine does not identify its boots.
    pub fn of(moment: Moment) -> Option<Self> {
        let age = Moment::now(suspended_time).since(moment).as_nanos();
        let nanos = nanos_since_boot()?.saturating_sub(u64::try_from(age).ok()?);
        Some(Self { boot: boot_id()?, nanos })
    }

    /// Returns a moment whose age is never known.
    pub fn unknown() -> Self {
        Self { boot: String::new(), nanos: 0 }
    }

    /// Returns the age of the moment; `None` if it belongs to another boot, or lies in the future.
    pub fn age(self) -> Option<Duration> {
        (boot_id()? == self.boot).then_some(())?;
        nanos_since_boot()?.checked_sub(self.nanos).map(Duration::from_nanos)
    }
}

fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn nanos_since_boot() -> Option<u64> {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(now.tv_nsec).ok()?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn nanos_since_boot() -> Option<u64> {
    None
}

/// Pauses between attempts, which double up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a backoff whose first pause is `first` and whose pauses never exceed `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the pause to make now, and doubles the next one.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Starts again with the first pause.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Scales a pause by a factor between `least` and `most`, chosen by `chance` (from 0 to 1), so that processes that lost
/// the same peer do not reconnect at the same time.
pub fn jittered(pause: Duration, (least, most): (f64, f64), chance: f64) -> Duration {
    pause.mul_f64(least + (most - least) * chance)
}

/// Returns a random number from 0 to 1.
pub fn chance() -> f64 {
    let seed = RandomState::new().build_hasher().finish();
    (seed >> 11) as f64 / (1_u64 << 53) as f64
}

/// A budget of time for yielding the core to other threads during long work.
///
/// A thread keeps its time slice of some milliseconds, whatever its priority, unless it yields. Yielding is free on an
/// idle machine; on a busy core each yield costs a slice. Only the time that other threads took counts, so work of any
/// length goes on yielding until the budget is spent, and is delayed by no more than the budget.
#[derive(Debug)]
pub struct Pauses {
    left: Cell<Duration>,
}

impl Pauses {
    /// Creates a budget of `time`.
    pub fn of(time: Duration) -> Self {
        Self { left: Cell::new(time) }
    }

    /// Yields to other threads, unless the budget is spent.
    pub fn pause(&self) {
        self.pause_with(thread::yield_now, Instant::now);
    }

    fn pause_with(&self, give_way: impl FnOnce(), now: impl Fn() -> Instant) {
        if self.left.get().is_zero() {
            return;
        }
        let began = now();
        give_way();
        self.left.set(self.left.get().saturating_sub(now() - began));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SAID: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// Says the first number once, then the second.
    fn scripted() -> Duration {
        let (first, then) = SAID.get();
        SAID.set((then, then));
        Duration::from_millis(first)
    }

    #[test]
    fn pause_between_clock_readings_is_not_counted_as_sleep() {
        for readings in [(7, 900), (900, 7)] {
            SAID.set(readings);
            assert_eq!(Moment::now(scripted).suspended_time, Duration::from_millis(7));
        }
    }

    #[test]
    fn suspended_time_does_not_grow_while_awake() {
        let began = suspended_time();
        let later = suspended_time();
        assert!(later >= began && later < began + Duration::from_secs(60), "{began:?} {later:?}");
    }

    #[test]
    fn backoff_doubles_up_to_the_longest_and_resets() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_millis(250));
    }

    #[test]
    fn jitter_stays_between_its_factors_and_varies() {
        let pause = Duration::from_secs(2);
        assert_eq!(jittered(pause, (0.5, 1.0), 0.0), Duration::from_secs(1));
        assert_eq!(jittered(pause, (0.5, 1.0), 1.0), pause);
        let mut chances: Vec<_> = (0..50).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..1.0).contains(chance)), "{chances:?}");
        chances.sort_by(f64::total_cmp);
        chances.dedup();
        assert!(chances.len() > 10, "{chances:?}");
    }

    #[test]
    fn boot_moment_has_no_age_after_another_boot() {
        let Some(now) = BootMoment::of(Moment::now(suspended_time)) else { return };
        let age = now.clone().age().unwrap();
        assert!(age < Duration::from_secs(60), "{age:?}");
        assert_eq!(BootMoment { boot: "another".into(), ..now.clone() }.age(), None);
        assert_eq!(BootMoment { nanos: u64::MAX, ..now }.age(), None, "it has not come yet");
    }

    #[test]
    fn pauses_count_only_the_time_that_other_threads_took() {
        let (now, given) = (Cell::new(Instant::now()), Cell::new(0));
        let pauses = Pauses::of(Duration::from_millis(9));
        for _ in 0..5 {
            // Work, however long.
            now.set(now.get() + Duration::from_secs(1));
            let give_way = || {
                given.set(given.get() + 1);
                now.set(now.get() + Duration::from_millis(3));
            };
            pauses.pause_with(give_way, || now.get());
        }
        assert_eq!(given.get(), 3);
    }
}

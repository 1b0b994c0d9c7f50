//! Clock: time, and the time that the machine has slept. The monotonic clock stands still meanwhile; the world does
//! not.
//!
//! An [`Instant`] is CLOCK_MONOTONIC. An age that spans a suspension of an hour would be only the seconds before and
//! after it. CLOCK_BOOTTIME goes on; the difference between the two is the time slept. Neither is moved by setting the
//! wall clock.

mod age;
mod backoff;
mod boot_moment;
mod pauses;

use std::time::{Duration, Instant};

pub use age::Age;
pub use backoff::{Backoff, chance, jittered};
pub use boot_moment::BootMoment;
pub use pauses::Pauses;

/// Now, on tokio's clock: the clock of all timers, which a test may pause.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Time that the machine has slept since it was started. Only differences mean something.
///
/// A function and not a trait, so that a test can put its own in place of [`slept`].
pub type Slept = fn() -> Duration;

/// A point in time whose age is right even if the machine slept in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// On the monotonic clock.
    pub instant: Instant,
    /// Time that the machine had slept by then.
    pub slept: Duration,
}

impl Moment {
    /// Now, at the beginning of something whose age will be asked for.
    ///
    /// An age must never come out too small, and so this must not say that more was slept than was: of two readings the
    /// smaller counts. (A process that is stopped between the two clocks of one reading takes the wait for sleep.)
    pub fn now(slept: Slept) -> Self {
        let before = slept();
        let instant = now();
        Self { instant, slept: before.min(slept()) }
    }

    /// Moment of `instant`, where the machine has not slept since.
    pub fn awake_since(instant: Instant, slept: Slept) -> Self {
        Self { instant, slept: slept() }
    }

    /// Time from `earlier` to this, time slept included; zero where that one is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.instant.saturating_duration_since(earlier.instant) + self.slept.saturating_sub(earlier.slept)
    }
}

/// Reading before the machine has ever slept, in milliseconds: a year. In a time namespace (a container that was moved
/// from another machine) the difference of the two clocks may be negative.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ORIGIN: i64 = 365 * 24 * 3600 * 1000;

/// Time that this machine has slept since it was started, and [`ORIGIN`]; in whole milliseconds, never too little.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn slept() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    // In this order: what passes between the two is taken for sleep, never sleep for nothing.
    let awake = clock_gettime(ClockId::Monotonic);
    let all = clock_gettime(ClockId::Boottime);
    let nanos = (all.tv_sec - awake.tv_sec) * 1_000_000_000 + (all.tv_nsec - awake.tv_nsec);
    // Some nanoseconds between the two readings are no sleep, and would make ages differ from one question to the next.
    Duration::from_millis((nanos / 1_000_000).saturating_add(ORIGIN).max(0) as u64)
}

/// Nothing to add, since the monotonic clock goes on while the machine sleeps, or no clock shows the sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn slept() -> Duration {
    Duration::ZERO
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
    fn a_process_stopped_while_it_reads_the_clocks_has_not_slept_longer() {
        for readings in [(7, 900), (900, 7)] {
            SAID.set(readings);
            assert_eq!(Moment::now(scripted).slept, Duration::from_millis(7));
        }
    }

    #[test]
    fn what_was_slept_only_grows_and_not_while_awake() {
        let began = slept();
        let later = slept();
        assert!(later >= began && later < began + Duration::from_secs(60), "{began:?} {later:?}");
    }

    /// `cargo test --release --lib -- --ignored --nocapture slept_costs` prints the price of one question.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn slept_costs() {
        let rounds = 10_000_000_u32;
        let start = Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(slept());
        }
        println!("{:?} a question", start.elapsed() / rounds);
    }
}

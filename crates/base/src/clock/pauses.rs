//! Pauses: between the steps of what takes long, whoever waits for this core goes first.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// Pauses that together take some time at most.
///
/// A thread keeps its slice of some milliseconds however nice it is, unless it offers it. Where nobody waits, that
/// costs nothing. Where a core is never free, each time costs a slice; and a configuration has to be read and in force
/// within seconds. So what counts is the time that others took, not the time that the work takes: long work goes on
/// pausing.
#[derive(Debug)]
pub struct Pauses {
    left: Cell<Duration>,
}

impl Pauses {
    /// Pauses that together take so long.
    pub fn of(time: Duration) -> Self {
        Self { left: Cell::new(time) }
    }

    /// Lets others go first, until they had all of the time.
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
    use super::*;

    #[test]
    fn only_the_time_that_others_took_is_counted() {
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

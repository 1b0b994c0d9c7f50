//! Age: age of something that is renewed now and then, read by many threads without a lock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::{Moment, Slept};

/// Age of what is renewed now and then, time slept included.
#[derive(Debug)]
pub struct Age {
    epoch: Moment,
    slept: Slept,
    /// Nanoseconds from `epoch` to the last renewal, plus one; 0 before the first.
    renewed: AtomicU64,
}

impl Age {
    /// Of what was never renewed so far; `slept` gives the time that the machine has slept.
    pub fn new(now: Instant, slept: Slept) -> Self {
        Self { epoch: Moment::awake_since(now, slept), slept, renewed: AtomicU64::new(0) }
    }

    /// It is as new as that moment. An earlier one than before changes nothing.
    pub fn renew(&self, at: Moment) {
        self.renewed.fetch_max(self.nanos_to(at) + 1, Ordering::Release);
    }

    /// It is as new as that instant, since when the machine has not slept.
    pub fn renew_awake(&self, at: Instant) {
        self.renew(Moment::awake_since(at, self.slept));
    }

    /// Its age; `None` before the first renewal.
    pub fn at(&self, now: Instant) -> Option<Duration> {
        let renewed = self.renewed.load(Ordering::Acquire).checked_sub(1)?;
        let now = self.nanos_to(Moment::awake_since(now, self.slept));
        Some(Duration::from_nanos(now.saturating_sub(renewed)))
    }

    fn nanos_to(&self, moment: Moment) -> u64 {
        moment.since(self.epoch).as_nanos() as u64
    }
}

//! Pauses: between the steps of what takes long, whoever waits for this core goes first.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Pauses for some time at most.
///
/// A thread keeps its slice of some milliseconds however nice it is, unless it offers it. Where nobody waits, that costs
/// nothing. Where a core is never free, each time costs a slice; and a configuration has to be read and in force within
/// seconds.
#[derive(Debug)]
pub struct Pauses {
    until: Instant,
}

impl Pauses {
    /// From now on, for so long.
    pub fn within(time: Duration) -> Self {
        Self { until: Instant::now() + time }
    }

    /// Lets others go first, until the time is over.
    pub fn pause(&self) {
        if Instant::now() < self.until {
            thread::yield_now();
        }
    }
}

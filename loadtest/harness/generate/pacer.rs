//! The clock of the open loop: a thread that wakes exactly when the next review is due.
//!
//! The runtime's own timer ticks in milliseconds, which at 2 KiB is several times the latency to be measured.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc::UnboundedSender;

/// Lets later threads sleep to the microsecond: Linux rounds sleeps up by 50 microseconds unless asked not to.
/// Best effort; without it both sides are measured equally late.
pub(super) fn sharpen_timers() {
    let _ = fs::write("/proc/self/timerslack_ns", "1");
}

/// Times at which reviews are due: evenly, from `start`, for `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) start: Instant,
    pub(super) rate: f64,
    pub(super) end: Duration,
}

impl Schedule {
    /// Announces each due time when it comes; ends with the schedule or when nobody listens.
    pub(super) fn run(self, due: &UnboundedSender<Instant>) {
        for index in 0_u32.. {
            let offset = Duration::from_secs_f64(f64::from(index) / self.rate);
            if offset >= self.end {
                return;
            }
            let intended = self.start + offset;
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            if due.send(intended).is_err() {
                return;
            }
        }
    }
}

//! Throttle: limits the log to one line a second for one cause.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// Allows one line a second and counts the suppressed ones. Each cause that callers or hooks can trigger has a
/// throttle: a `static` in the code, or a field of a hook's metrics. Otherwise a dead hook under load would log
/// thousands of lines a second, and important lines would be lost among them.
#[derive(Debug, Default)]
pub struct Throttle {
    epoch: OnceLock<Instant>,
    /// The second (since `epoch`, from 1) of the last allowed line; 0 before the first.
    last: AtomicU64,
    suppressed: AtomicU64,
}

impl Throttle {
    /// Creates a throttle that has allowed no line yet.
    pub const fn new() -> Self {
        Self { epoch: OnceLock::new(), last: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns the number of lines suppressed since the last one if a line may be written now, otherwise `None`.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let epoch = *self.epoch.get_or_init(|| now);
        let second = now.saturating_duration_since(epoch).as_secs() + 1;
        let last = self.last.load(Relaxed);
        if second > last && self.last.compare_exchange(last, second, Relaxed, Relaxed).is_ok() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_a_second_and_the_rest_are_counted() {
        let throttle = Throttle::new();
        let start = Instant::now();
        let at = |millis| throttle.pass_at(start + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(1), at(999), at(1000), at(1500), at(5000)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}

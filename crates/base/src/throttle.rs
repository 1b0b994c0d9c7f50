//! Throttle: one log line a second for one cause, however much there is to say.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// Lets one line a second through and counts the rest. Each cause that callers or hooks can bring about has one: a
/// place in the code as a `static`, a hook in its metrics. Otherwise a dead hook under load would write thousands of
/// lines a second, and what matters would be lost among them.
#[derive(Debug, Default)]
pub struct Throttle {
    epoch: OnceLock<Instant>,
    /// The second (since `epoch`, from 1) in which a line was let through last; 0 before the first.
    last: AtomicU64,
    held: AtomicU64,
}

impl Throttle {
    /// Nothing was let through yet.
    pub const fn new() -> Self {
        Self { epoch: OnceLock::new(), last: AtomicU64::new(0), held: AtomicU64::new(0) }
    }

    /// May a line be written now? Then: how many were held back since the last one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let epoch = *self.epoch.get_or_init(|| now);
        let second = now.saturating_duration_since(epoch).as_secs() + 1;
        let last = self.last.load(Relaxed);
        if second > last && self.last.compare_exchange(last, second, Relaxed, Relaxed).is_ok() {
            return Some(self.held.swap(0, Relaxed));
        }
        self.held.fetch_add(1, Relaxed);
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

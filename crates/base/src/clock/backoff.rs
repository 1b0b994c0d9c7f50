//! Backoff: pauses between tries, each twice as long as the one before.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// Pauses that double from a first one to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses between these two.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The pause to be made now.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// Begins anew with the first pause.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A pause times a factor between these two, by chance (from 0 to 1): processes that lost the same peer are not to come
/// back to it in step.
pub fn jittered(pause: Duration, (least, most): (f64, f64), chance: f64) -> Duration {
    pause.mul_f64(least + (most - least) * chance)
}

/// Number by chance, from 0 to 1.
pub fn chance() -> f64 {
    let seed = RandomState::new().build_hasher().finish();
    (seed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
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
}

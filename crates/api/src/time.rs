//! Deadline: the instant by which a request must be answered.

use std::time::{Duration, Instant};

/// An instant by which something must be done. Stamped once, at the front, and never recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `budget` after `now`.
    pub fn after(now: Instant, budget: Duration) -> Self {
        Self(now + budget)
    }

    /// Time left at `now`; zero when the deadline has passed.
    pub fn left(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// The earlier of this and `now + limit`.
    pub fn within(self, now: Instant, limit: Duration) -> Self {
        Self(self.0.min(now + limit))
    }

    /// The instant itself.
    pub fn instant(self) -> Instant {
        self.0
    }
}

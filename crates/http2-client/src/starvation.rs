//! Starvation: a connection on which the server gives no room for what it is to be sent.

use std::time::{Duration, Instant};

/// Time without room after which a connection takes no new requests.
const STARVED_AFTER: Duration = Duration::from_secs(10);
/// The same once [`UNSENT_ENDS`] requests have ended.
const STARVED_AFTER_ENDS: Duration = Duration::from_secs(3);
/// Requests that ended without a byte of their body sent.
const UNSENT_ENDS: u32 = 2;

/// Time for which a connection has sent no byte of a body, since one first waited for the server's window. Pauses
/// between requests count: the server could have given room in them.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    since: Option<Instant>,
    unsent_ends: u32,
    starved: bool,
}

impl Starvation {
    /// Part of a body was queued, or the server has answered.
    pub(super) fn end(&mut self) {
        (self.since, self.unsent_ends) = (None, 0);
    }

    /// A request waits for the server's window.
    pub(super) fn begin(&mut self, now: impl FnOnce() -> Instant) {
        self.since.get_or_insert_with(now);
    }

    /// Requests have ended at their deadlines, or because nobody waited for them, of whose bodies nothing was sent.
    pub(super) fn unsent_ended(&mut self, count: usize) {
        if self.since.is_some() {
            self.unsent_ends = self.unsent_ends.saturating_add(count as u32);
        }
    }

    /// Time from which the connection is starved, unless that ends before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let after = if self.unsent_ends >= UNSENT_ENDS { STARVED_AFTER_ENDS } else { STARVED_AFTER };
        self.since.filter(|_| !self.starved).map(|since| since + after)
    }

    /// Gives the connection up where its time is over.
    pub(super) fn check(&mut self, now: Instant) {
        self.starved |= self.deadline().is_some_and(|deadline| deadline <= now);
    }

    /// It has been given up.
    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }
}

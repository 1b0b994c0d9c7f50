//! Limits: how much work a server may cause, and how long it may give no room for requests.

use std::time::{Duration, Instant};

/// Credit of a new connection.
const INITIAL_CREDIT: usize = 1024;
/// Maximum credit that a connection can save up.
const MAX_CREDIT: usize = 16_384;
/// Credit for each request.
pub(super) const CREDIT_PER_REQUEST: usize = 256;
/// Credit for each second: for changed settings and PINGs of an idle connection.
const CREDIT_PER_SECOND: u64 = 256;
/// Bytes of a response, or of a request (the server gives window back for them), that earn credit for one frame.
const BYTES_PER_CREDIT: usize = 256;
/// Payload bytes of other frames that cost as much as one more frame.
const PAYLOAD_BYTES_PER_FRAME: usize = 1024;

/// Number of frames that answer nothing and that a server may still send.
///
/// Each frame costs something to process: a PING, an empty DATA, a reset of a stream that is gone. Requests earn far
/// more credit than any sound server spends on them, so a server without credit keeps us busy and serves no request.
#[derive(Debug)]
pub(super) struct FrameCredit {
    left: usize,
    /// Time until which seconds have earned credit.
    counted: Instant,
}

impl FrameCredit {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: INITIAL_CREDIT, counted: now }
    }

    /// Adds credit for something useful.
    pub(super) fn earn(&mut self, frames: usize) {
        self.left = self.left.saturating_add(frames).min(MAX_CREDIT);
    }

    /// Adds credit for bytes of messages.
    pub(super) fn earn_bytes(&mut self, bytes: usize) {
        self.earn(bytes / BYTES_PER_CREDIT);
    }

    /// Pays for a frame; false if there is no credit left. The clock is read only before it returns false.
    #[must_use]
    pub(super) fn spend(&mut self, payload: usize, now: impl FnOnce() -> Instant) -> bool {
        let cost = 1 + payload / PAYLOAD_BYTES_PER_FRAME;
        if self.left < cost {
            let now = now();
            let earned = now.duration_since(self.counted).as_millis() as u64 * CREDIT_PER_SECOND / 1000;
            if earned > 0 {
                self.counted = now;
                self.earn(usize::try_from(earned).unwrap_or(MAX_CREDIT));
            }
        }
        let enough = self.left >= cost;
        self.left = self.left.saturating_sub(cost);
        enough
    }
}

/// Time without room for request bodies after which a connection takes no new requests.
const STARVED_AFTER: Duration = Duration::from_secs(10);
/// As [`STARVED_AFTER`], once [`UNSENT_ENDS`] requests have ended.
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

    /// Time at which the connection becomes starved, unless the server gives room before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let after = if self.unsent_ends >= UNSENT_ENDS { STARVED_AFTER_ENDS } else { STARVED_AFTER };
        self.since.filter(|_| !self.starved).map(|since| since + after)
    }

    /// Marks the connection as starved if its time is over.
    pub(super) fn check(&mut self, now: Instant) {
        self.starved |= self.deadline().is_some_and(|deadline| deadline <= now);
    }

    /// True if the connection takes no new requests because the server gives no room for them.
    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_send_what_its_requests_and_the_time_are_worth() {
        let began = Instant::now();
        let mut credit = FrameCredit::new(began);
        let count = |credit: &mut FrameCredit, now: Instant| {
            (0..2 * MAX_CREDIT).take_while(|_| credit.spend(0, || now)).count()
        };
        assert_eq!(count(&mut credit, began), INITIAL_CREDIT);
        credit.earn(CREDIT_PER_REQUEST);
        assert_eq!(count(&mut credit, began), CREDIT_PER_REQUEST);
        assert_eq!(count(&mut credit, began + Duration::from_secs(2)), 2 * CREDIT_PER_SECOND as usize);
        assert_eq!(count(&mut credit, began + Duration::from_secs(2)), 0, "time counts once");
        credit.earn_bytes(BYTES_PER_CREDIT);
        assert_eq!(count(&mut credit, began + Duration::from_secs(2)), 1);
        credit.earn(usize::MAX);
        assert_eq!(count(&mut credit, began), MAX_CREDIT, "and no more can be saved up");
    }

    #[test]
    fn long_frames_cost_more() {
        let mut credit = FrameCredit::new(Instant::now());
        let now = Instant::now();
        assert_eq!((0..MAX_CREDIT).take_while(|_| credit.spend(16_384, || now)).count(), INITIAL_CREDIT / 17);
    }
}

//! Limits on the work that a server may cause, and on the time without window for request bodies.

use std::time::{Duration, Instant};

/// Credit of a new connection, in frames.
const INITIAL_CREDIT: usize = 1024;
/// Maximum credit that a connection can accumulate.
const MAX_CREDIT: usize = 16_384;
/// Credit earned per request.
pub(super) const CREDIT_PER_REQUEST: usize = 256;
/// Credit earned per second, for changed settings and PINGs of an idle connection.
const CREDIT_PER_SECOND: u64 = 256;
/// Bytes of a response or request that earn credit for one frame. A server sends WINDOW_UPDATEs for those of a request.
const BYTES_PER_CREDIT: usize = 256;
/// Payload bytes of a frame without DATA that cost as much as one more frame.
const PAYLOAD_BYTES_PER_FRAME: usize = 1024;

/// Number of frames that a server may still send.
///
/// Processing each frame has a cost, also a PING, an empty DATA, or a reset of a closed stream. Requests earn far more
/// credit than a correct server spends on them, so a server without credit floods the client.
#[derive(Debug)]
pub(super) struct FrameCredit {
    left: usize,
    /// Time up to which elapsed seconds have earned credit.
    counted: Instant,
}

impl FrameCredit {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: INITIAL_CREDIT, counted: now }
    }

    /// Adds credit for `frames` frames.
    pub(super) fn earn(&mut self, frames: usize) {
        self.left = self.left.saturating_add(frames).min(MAX_CREDIT);
    }

    /// Adds credit for `bytes` bytes of bodies.
    pub(super) fn earn_bytes(&mut self, bytes: usize) {
        self.earn(bytes / BYTES_PER_CREDIT);
    }

    /// Pays for a frame. Returns false if there is not enough credit. Reads the clock only if credit is short.
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

/// Time without window for request bodies after which a connection accepts no new requests.
const STARVATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Replaces [`STARVATION_TIMEOUT`] after [`UNSENT_ENDS_THRESHOLD`] requests ended without a byte of their body sent.
const SHORT_STARVATION_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of requests that ended without a byte of their body sent, for [`SHORT_STARVATION_TIMEOUT`].
const UNSENT_ENDS_THRESHOLD: u32 = 2;

/// Time since a body first waited for the server's window, if no byte of a body was sent since. Pauses between requests
/// count, because the server could have given window during them.
#[derive(Debug, Default)]
pub(super) struct Starvation {
    since: Option<Instant>,
    unsent_ends: u32,
    /// True if the connection accepts no new requests because the server gives no window for them.
    pub(super) is_starved: bool,
}

impl Starvation {
    /// Ends the starvation: part of a body was queued, or the server has completed a response.
    pub(super) fn end(&mut self) {
        (self.since, self.unsent_ends) = (None, 0);
    }

    /// Begins the starvation if it has not begun: a request waits for the server's window.
    pub(super) fn begin(&mut self, now: impl FnOnce() -> Instant) {
        self.since.get_or_insert_with(now);
    }

    /// Counts requests that were cancelled, or ended at their deadline, without a byte of their body sent.
    pub(super) fn unsent_ended(&mut self, count: usize) {
        if self.since.is_some() {
            self.unsent_ends = self.unsent_ends.saturating_add(count as u32);
        }
    }

    /// Returns the time at which the connection becomes starved, unless the server gives window before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let after =
            if self.unsent_ends >= UNSENT_ENDS_THRESHOLD { SHORT_STARVATION_TIMEOUT } else { STARVATION_TIMEOUT };
        self.since.filter(|_| !self.is_starved).map(|since| since + after)
    }

    /// Marks the connection as starved if its deadline has passed.
    pub(super) fn check(&mut self, now: Instant) {
        self.is_starved |= self.deadline().is_some_and(|deadline| deadline <= now);
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

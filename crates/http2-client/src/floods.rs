//! Floods: credit for frames of a server that answer nothing.
//!
//! Every frame costs something to take: a PING, an empty DATA, a reset of a stream that is gone. Requests earn credit,
//! far more than any sound server spends on them, so a server that has spent it all keeps us busy and serves no
//! request.

use std::time::Instant;

/// Credit that a connection begins with, and the most it can save up.
const AT_FIRST: usize = 1024;
const MOST: usize = 16_384;
/// Credit for each request.
pub(super) const REQUEST: usize = 256;
/// Credit for a second: for settings that change, PINGs of an idle connection.
const SECOND: u64 = 256;
/// Bytes of an answer, or of what we send (for which the hook gives window back), that earn credit for one frame.
const BYTES: usize = 256;
/// Of other frames, so many bytes cost as much as one more.
const HEADER_BYTES: usize = 1024;

/// Number of frames that a server may still send.
#[derive(Debug)]
pub(super) struct Floods {
    left: usize,
    /// Time until then has been counted.
    counted: Instant,
}

impl Floods {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: AT_FIRST, counted: now }
    }

    /// The connection has done something of use, worth so many frames.
    pub(super) fn earn(&mut self, frames: usize) {
        self.left = self.left.saturating_add(frames).min(MOST);
    }

    /// As [`Floods::earn`], for bytes of messages.
    pub(super) fn earn_bytes(&mut self, bytes: usize) {
        self.earn(bytes / BYTES);
    }

    /// A frame has come whose payload is so long. False when it is one too many; the clock is only looked at before
    /// that is said.
    #[must_use]
    pub(super) fn spend(&mut self, payload: usize, now: impl FnOnce() -> Instant) -> bool {
        let cost = 1 + payload / HEADER_BYTES;
        if self.left < cost {
            let now = now();
            let earned = now.duration_since(self.counted).as_millis() as u64 * SECOND / 1000;
            if earned > 0 {
                self.counted = now;
                self.earn(usize::try_from(earned).unwrap_or(MOST));
            }
        }
        let enough = self.left >= cost;
        self.left = self.left.saturating_sub(cost);
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_may_send_what_its_requests_and_the_time_are_worth() {
        let began = Instant::now();
        let mut floods = Floods::new(began);
        let count = |floods: &mut Floods, now: Instant| (0..2 * MOST).take_while(|_| floods.spend(0, || now)).count();
        assert_eq!(count(&mut floods, began), AT_FIRST);
        floods.earn(REQUEST);
        assert_eq!(count(&mut floods, began), REQUEST);
        assert_eq!(count(&mut floods, began + Duration::from_secs(2)), 2 * SECOND as usize);
        assert_eq!(count(&mut floods, began + Duration::from_secs(2)), 0, "time counts once");
        floods.earn_bytes(BYTES);
        assert_eq!(count(&mut floods, began + Duration::from_secs(2)), 1);
        floods.earn(usize::MAX);
        assert_eq!(count(&mut floods, began), MOST, "and no more can be saved up");
    }

    #[test]
    fn long_frames_cost_more() {
        let mut floods = Floods::new(Instant::now());
        let now = Instant::now();
        assert_eq!((0..MOST).take_while(|_| floods.spend(16_384, || now)).count(), AT_FIRST / 17);
    }
}

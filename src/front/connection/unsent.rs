//! Unsent: the verdicts of one connection that are not written yet, by the second in which they expire.
//!
//! A verdict that its caller does not read ends with its deadline. The front cannot wait for each one's being written:
//! that would be one more timer and one more wake-up a review. So they are counted by the second of their expiry, and
//! the connection looks once a second whether one of a second gone by is still there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Time for a verdict beyond its deadline to be written.
const GRACE: Duration = Duration::from_secs(2);
/// Seconds with slots of their own; a verdict expires after fewer.
const SECONDS: usize = 128;
/// The longest a verdict waits to be written: the seconds looked at late must not be taken for seconds to come.
const LONGEST: u64 = SECONDS as u64 - 8;

/// The unwritten verdicts of one connection.
#[derive(Debug)]
pub(crate) struct Unsent {
    began: Instant,
    by_second: [AtomicU32; SECONDS],
}

impl Unsent {
    /// None yet, on a connection that begins now.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { began: now, by_second: [const { AtomicU32::new(0) }; SECONDS] })
    }

    /// Counts one that has to be written by `deadline`, give or take the grace, until the guard is dropped.
    pub(crate) fn add(self: &Arc<Self>, now: Instant, deadline: Instant) -> Expiring {
        let second = self.second(deadline + GRACE) + 1;
        let second = second.min(self.second(now) + LONGEST) as usize % SECONDS;
        self.by_second[second].fetch_add(1, Relaxed);
        Expiring { unsent: Arc::clone(self), second }
    }

    /// Is none there?
    pub(crate) fn is_empty(&self) -> bool {
        self.by_second.iter().all(|count| count.load(Relaxed) == 0)
    }

    /// Is one there that should have been written before `now`? To be asked every few seconds.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        let second = self.second(now);
        (second.saturating_sub(SECONDS as u64 - 1 - LONGEST)..=second)
            .any(|second| self.by_second[second as usize % SECONDS].load(Relaxed) > 0)
    }

    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }
}

/// One verdict that is not written yet.
#[derive(Debug)]
pub(crate) struct Expiring {
    unsent: Arc<Unsent>,
    second: usize,
}

impl Drop for Expiring {
    fn drop(&mut self) {
        self.unsent.by_second[self.second].fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_expires_soon_after_its_deadline_and_never_once_it_is_written() {
        let began = Instant::now();
        let unsent = Unsent::new(began);
        let at = |seconds| began + Duration::from_secs(seconds);
        let (short, long) = (unsent.add(at(0), at(1)), unsent.add(at(0), at(100_000)));
        assert!(!unsent.is_empty());
        let when = |unsent: &Unsent| (0..1000).find(|second| unsent.has_expired(at(*second)));
        assert_eq!(when(&unsent), Some(4));
        drop(short);
        assert_eq!(when(&unsent), Some(LONGEST), "the longest there is");
        drop(long);
        assert_eq!((when(&unsent), unsent.is_empty()), (None, true));
        // However long the connection has been there.
        let late = unsent.add(at(5000), at(5010));
        assert_eq!((5000..6000).find(|second| unsent.has_expired(at(*second))), Some(5013));
        drop(late);
    }
}

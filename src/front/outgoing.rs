//! Outgoing: the body of an answer, held in the memory budget until the connection has written it.
//!
//! A verdict that its caller does not read ends with its deadline. The front cannot wait until each one is written:
//! that would be one more timer and one more wake-up a review. So they are counted by the second of their expiry
//! ([`Unsent`]), and the connection looks once a second for one that has expired and is still there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};

use gatepost_base::memory::Reservation;
use gatepost_initializers::hub::TaskMessage;

/// Time for a verdict beyond its deadline to be written.
const WRITE_GRACE: Duration = Duration::from_secs(2);
/// Seconds with slots of their own; a verdict expires after fewer.
const SECONDS: usize = 128;
/// Seconds within which a verdict expires: seconds that are looked at late must not be taken for seconds to come.
const MAX_SECONDS: u64 = SECONDS as u64 - 8;

/// The body of an answer. Its reservation is given back when it is dropped: once it is written, or its stream is reset,
/// or its connection ends.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Bytes,
    /// Its bytes in the memory budget.
    _reserved: Option<Reservation>,
    /// The task whose bytes are in the memory budget for every instance that gets them.
    _task: Option<Arc<TaskMessage>>,
    /// Its deadline on its connection.
    _expiring: Option<Expiring>,
}

impl Outgoing {
    /// A verdict with its place in the memory budget, and by when it has to be written.
    pub(super) fn held(bytes: Bytes, reserved: Reservation, expiring: Expiring) -> Self {
        Self { bytes, _reserved: Some(reserved), _expiring: Some(expiring), ..Self::default() }
    }

    /// The review of a task, and by when it has to be written.
    pub(super) fn of_task(task: Arc<TaskMessage>, expiring: Expiring) -> Self {
        Self { bytes: task.review.clone(), _task: Some(task), _expiring: Some(expiring), ..Self::default() }
    }

    /// This body, which has to be written by then.
    pub(super) fn until(self, expiring: Expiring) -> Self {
        Self { _expiring: Some(expiring), ..self }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Small texts of ours.
impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// The unwritten verdicts of one connection.
#[derive(Debug)]
pub(crate) struct Unsent {
    began: Instant,
    by_second: [AtomicU32; SECONDS],
}

impl Unsent {
    /// No verdicts yet, on a connection that begins now.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { began: now, by_second: [const { AtomicU32::new(0) }; SECONDS] })
    }

    /// Counts one that has to be written by `deadline`, give or take the grace, until the guard is dropped.
    pub(crate) fn add(self: &Arc<Self>, now: Instant, deadline: Instant) -> Expiring {
        let second = self.second(deadline + WRITE_GRACE) + 1;
        let second = second.min(self.second(now) + MAX_SECONDS) as usize % SECONDS;
        self.by_second[second].fetch_add(1, Relaxed);
        Expiring { unsent: Arc::clone(self), second }
    }

    /// True if all are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_second.iter().all(|count| count.load(Relaxed) == 0)
    }

    /// True if one should have been written before `now`. To be asked every few seconds.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        let second = self.second(now);
        (second.saturating_sub(SECONDS as u64 - 1 - MAX_SECONDS)..=second)
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
    fn unsent_verdict_expires_after_its_deadline_unless_written() {
        let began = Instant::now();
        let unsent = Unsent::new(began);
        let at = |seconds| began + Duration::from_secs(seconds);
        let (short, long) = (unsent.add(at(0), at(1)), unsent.add(at(0), at(100_000)));
        assert!(!unsent.is_empty());
        let when = |unsent: &Unsent| (0..1000).find(|second| unsent.has_expired(at(*second)));
        assert_eq!(when(&unsent), Some(4));
        drop(short);
        assert_eq!(when(&unsent), Some(MAX_SECONDS), "the latest expiry");
        drop(long);
        assert_eq!((when(&unsent), unsent.is_empty()), (None, true));
        // However long the connection has been there.
        let late = unsent.add(at(5000), at(5010));
        assert_eq!((5000..6000).find(|second| unsent.has_expired(at(*second))), Some(5013));
        drop(late);
    }
}

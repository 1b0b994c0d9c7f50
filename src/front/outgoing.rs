//! Body of an answer, reserved in the memory budget until the connection has written it.
//!
//! A verdict that its caller does not read expires at its deadline. The front does not wait until each verdict is
//! written, which would cost one more timer and wake-up per review. Instead [`Unsent`] counts verdicts by the second of
//! their expiry, and the connection checks once a second for an expired verdict that is not written.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use tokio::runtime::Handle;

use crate::review::ShadowReview;
use gatepost_base::memory::Reservation;
use gatepost_initializers::hub::TaskMessage;

/// Time beyond its deadline for a verdict to be written.
const WRITE_GRACE: Duration = Duration::from_secs(2);
/// Number of slots, one a second; a verdict expires in fewer seconds.
const SECONDS: usize = 128;
/// Maximum seconds until a verdict expires: a second that is checked late must not be mistaken for a future one.
const MAX_SECONDS: u64 = SECONDS as u64 - 8;

/// Body of an answer. Dropping it releases its reservation: when it is written, when its stream is reset, or when its
/// connection ends.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Bytes,
    /// Reservation for the bytes in the memory budget.
    _reserved: Option<Reservation>,
    /// Task whose bytes are reserved once for all instances that are sent it.
    _task: Option<Arc<TaskMessage>>,
    /// Guard of the deadline for the write.
    _expiring: Option<UnsentGuard>,
    /// Started once the body is dropped.
    _shadow: AfterWrite,
}

impl Outgoing {
    /// Creates a body with its reservation and its deadline.
    pub(super) fn held(bytes: Bytes, reserved: Reservation, expiring: UnsentGuard) -> Self {
        Self { bytes, _reserved: Some(reserved), _expiring: Some(expiring), ..Self::default() }
    }

    /// Creates the body of a task's review with its deadline.
    pub(super) fn of_task(task: Arc<TaskMessage>, expiring: UnsentGuard) -> Self {
        Self { bytes: task.review.clone(), _task: Some(task), _expiring: Some(expiring), ..Self::default() }
    }

    /// Starts the decision in shadow once the body is written, or will never be.
    pub(super) fn then(self, shadow: Option<ShadowReview>) -> Self {
        Self { _shadow: AfterWrite(shadow), ..self }
    }

    /// Sets the deadline for the write.
    pub(super) fn until(self, expiring: UnsentGuard) -> Self {
        Self { _expiring: Some(expiring), ..self }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Decision in shadow that its drop starts. The connection, which drops it, writes before it gives way to other tasks.
#[derive(Debug, Default)]
struct AfterWrite(Option<ShadowReview>);

impl Drop for AfterWrite {
    fn drop(&mut self) {
        if let (Some(shadow), Ok(worker)) = (self.0.take(), Handle::try_current()) {
            worker.spawn(shadow.run());
        }
    }
}

/// Small texts of Gatepost itself.
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

/// Unwritten verdicts of one connection.
#[derive(Debug)]
pub(crate) struct Unsent {
    began: Instant,
    by_second: [AtomicU32; SECONDS],
}

impl Unsent {
    /// Creates the counters of a connection that begins at `now`.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { began: now, by_second: [const { AtomicU32::new(0) }; SECONDS] })
    }

    /// Counts one verdict that must be written by `deadline` plus a grace, until the guard is dropped.
    pub(crate) fn add(self: &Arc<Self>, now: Instant, deadline: Instant) -> UnsentGuard {
        let second = self.second(deadline + WRITE_GRACE) + 1;
        let second = second.min(self.second(now) + MAX_SECONDS) as usize % SECONDS;
        self.by_second[second].fetch_add(1, Relaxed);
        UnsentGuard { unsent: Arc::clone(self), second }
    }

    /// Returns true if all verdicts are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_second.iter().all(|count| count.load(Relaxed) == 0)
    }

    /// Returns true if a verdict should have been written before `now`. To be called every few seconds.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        let second = self.second(now);
        (second.saturating_sub(SECONDS as u64 - 1 - MAX_SECONDS)..=second)
            .any(|second| self.by_second[second as usize % SECONDS].load(Relaxed) > 0)
    }

    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }
}

/// Guard of one verdict that is not written yet.
#[derive(Debug)]
pub(crate) struct UnsentGuard {
    unsent: Arc<Unsent>,
    second: usize,
}

impl Drop for UnsentGuard {
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

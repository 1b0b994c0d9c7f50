//! Quota: how many calls of health and reflection there may be at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{refusal::Refusal, session::Session};
use crate::memory::{MemoryBudget, Purpose, Reservation};

/// On one connection.
const OF_CONNECTION: usize = 8;
/// Of one client, on all its connections.
const OF_CLIENT: usize = 64;
/// Of all clients.
const OF_ALL: usize = 256;

/// What one call may send, and what it holds of the memory budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) sent: usize,
    pub(super) held: usize,
}

/// The calls of all clients.
#[derive(Debug, Default)]
pub(super) struct Quota(AtomicUsize);

impl Quota {
    /// A place for one more call on that connection; given back when it is dropped.
    pub(super) fn take<'a>(
        &'a self,
        session: &'a Session,
        budget: &Arc<MemoryBudget>,
        cost: Cost,
    ) -> Result<Taken<'a>, Refusal> {
        let mut taken = Taken { of: [None; 3], _held: budget.empty(Purpose::Review) };
        let counters =
            [(&session.cold_calls, OF_CONNECTION), (&session.client().cold_calls, OF_CLIENT), (&self.0, OF_ALL)];
        for (place, (counter, most)) in taken.of.iter_mut().zip(counters) {
            *place = Some(counter);
            if counter.fetch_add(1, Relaxed) >= most {
                return Err(Refusal::ColdTooMany);
            }
        }
        let bytes = cost.held;
        taken._held = budget.reserve(Purpose::Review, bytes).ok_or(Refusal::Overloaded { bytes })?;
        Ok(taken)
    }
}

/// The place of one call.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    of: [Option<&'a AtomicUsize>; 3],
    _held: Reservation,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for counter in self.of.into_iter().flatten() {
            counter.fetch_sub(1, Relaxed);
        }
    }
}

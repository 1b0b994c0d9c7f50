//! Collected: a hook's answer while it arrives, inside the memory budget.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    memory::{MemoryBudget, Purpose, Reservation},
    model::CallFailure,
};

/// What goes without a reservation, as the few structures do that each call has anyway. Most answers are smaller, and
/// workers need not meet at the budget for them.
const SMALL: usize = 1024;

/// A hook's answer while it arrives. What it takes is reserved before it is taken, by capacity, and given back when the
/// last that shares the finished answer lets go of it.
#[derive(Debug)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    budget: Arc<MemoryBudget>,
    reserved: Option<Reservation>,
}

impl Collected {
    /// Nothing yet, and nothing reserved.
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { bytes: Vec::new(), budget: Arc::clone(budget), reserved: None }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a part. Where the budget has no room for it, the call has failed.
    pub(super) fn extend(&mut self, part: &[u8]) -> Result<(), CallFailure> {
        let needed = self.bytes.len() + part.len();
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // Twice as much, so that many small parts are not copied over and over; or, where the budget has no room
            // for that, just enough.
            let wanted = needed.max(2 * capacity);
            let room = [wanted, needed].into_iter().find(|room| self.reserves(*room));
            let room = room.ok_or(CallFailure::Overloaded)?;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Is there room for so much in all? Then it is reserved.
    fn reserves(&mut self, room: usize) -> bool {
        if room <= SMALL {
            return true;
        }
        let reserved = self.reserved.get_or_insert_with(|| self.budget.empty(Purpose::Answer));
        reserved.try_grow(room - reserved.bytes())
    }

    /// The whole answer. Its reservation lasts as long as anybody holds a part of it.
    pub(super) fn finish(self) -> Bytes {
        if self.reserved.is_none() { self.bytes.into() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for Collected {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_in_the_budget_until_the_last_part_of_it_is_let_go() {
        let budget = MemoryBudget::new(10_000);
        let mut collected = Collected::new(&budget);
        collected.extend(&[1; 1000]).expect("room");
        assert_eq!(budget.held(), 0, "a small one is not counted");
        collected.extend(&[2; 500]).expect("room");
        assert_eq!((collected.len(), budget.held_for(Purpose::Answer)), (1500, 2000), "by capacity");
        let whole = collected.finish();
        let part = whole.slice(1490..);
        drop(whole);
        assert_eq!((&part[..], budget.held()), (&[2; 10][..], 2000));
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_that_has_no_room_is_a_call_failure() {
        let budget = MemoryBudget::new(1500);
        let mut collected = Collected::new(&budget);
        collected.extend(&[0; 1000]).expect("room");
        collected.extend(&[0; 500]).expect("just enough, where there is no room for twice as much");
        assert_eq!(collected.extend(&[0]), Err(CallFailure::Overloaded));
        assert_eq!((collected.len(), budget.held()), (1500, 1500), "what had arrived is as it was");
        drop(collected);
        assert_eq!(budget.held(), 0);
    }
}

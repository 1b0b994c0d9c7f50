//! Collected: a hook's answer while it arrives, inside the memory budget.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    memory::{MemoryBudget, Purpose, Reservation},
    model::CallFailure,
};

/// A hook's answer while it arrives. What it takes is reserved before it is taken, by capacity, and given back when the
/// last that shares the finished answer lets go of it.
#[derive(Debug)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    reserved: Reservation,
}

impl Collected {
    /// Nothing yet, and nothing reserved.
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { bytes: Vec::new(), reserved: budget.empty(Purpose::Answer) }
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
            let room = [wanted, needed].into_iter().find(|room| self.reserved.try_grow(room - capacity));
            let room = room.ok_or(CallFailure::Overloaded)?;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// The whole answer. Its reservation lasts as long as anybody holds a part of it.
    pub(super) fn finish(self) -> Bytes {
        if self.bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
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
        let budget = MemoryBudget::new(1000);
        let mut collected = Collected::new(&budget);
        collected.extend(&[1; 100]).expect("room");
        collected.extend(&[2; 50]).expect("room");
        assert_eq!((collected.len(), budget.held_for(Purpose::Answer)), (150, 200), "by capacity");
        let whole = collected.finish();
        let part = whole.slice(140..);
        drop(whole);
        assert_eq!((&part[..], budget.held()), (&[2; 10][..], 200));
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_that_has_no_room_is_a_call_failure() {
        let budget = MemoryBudget::new(150);
        let mut collected = Collected::new(&budget);
        collected.extend(&[0; 100]).expect("room");
        collected.extend(&[0; 50]).expect("just enough, where there is no room for twice as much");
        assert_eq!(collected.extend(&[0]), Err(CallFailure::Overloaded));
        assert_eq!((collected.len(), budget.held()), (150, 150), "what had arrived is as it was");
        drop(collected);
        assert_eq!(budget.held(), 0);
    }
}

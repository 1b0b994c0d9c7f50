//! Collected: a hook's answer while it arrives, in its hook's room.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::answer_room::{AnswerRoom, Taken};
use crate::model::CallFailure;

/// Bytes without a reservation, like the few structures that each call has anyway. Most answers are smaller, and
/// workers need not meet at the budget for them.
const SMALL: usize = 1024;

/// A hook's answer while it arrives. Memory is reserved before it is taken, by capacity, and given back when the last
/// clone of the finished answer is dropped.
#[derive(Debug)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    room: Arc<AnswerRoom>,
    taken: Option<Arc<Mutex<Taken>>>,
}

/// Share of its hook's room that an answer has taken. It lasts until the last clone is dropped, also without the
/// answer: slices of the answer may be in use still.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    _taken: Option<Arc<Mutex<Taken>>>,
}

impl Collected {
    /// Nothing yet, and nothing reserved.
    pub(super) fn new(room: &Arc<AnswerRoom>) -> Self {
        Self { bytes: Vec::new(), room: Arc::clone(room), taken: None }
    }

    /// Share of the room taken so far.
    pub(super) fn hold(&self) -> Hold {
        Hold { _taken: self.taken.clone() }
    }

    /// Room of its hook's answers.
    pub(super) fn room(&self) -> Arc<AnswerRoom> {
        Arc::clone(&self.room)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a part. Where there is no room for it, the call has failed.
    pub(super) fn extend(&mut self, part: &[u8]) -> Result<(), CallFailure> {
        let needed = self.bytes.len() + part.len();
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // Twice as much, or a quarter more where there is no room for that; never by less, as an answer in many
            // small parts would be copied for each of them.
            let wanted = [2 * capacity, capacity + capacity / 4].map(|wanted| needed.max(wanted));
            let room = wanted.into_iter().find(|room| self.reserves(*room));
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
        let taken = self.taken.get_or_insert_with(|| Arc::new(Mutex::new(self.room.nothing())));
        taken.lock().unwrap_or_else(PoisonError::into_inner).reaches(room)
    }

    /// The whole answer. Its reservation lasts as long as anybody holds a part of it.
    pub(super) fn finish(self) -> Bytes {
        if self.taken.is_none() { self.bytes.into() } else { Bytes::from_owner(self) }
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
    use crate::memory::{MemoryBudget, Purpose};

    #[test]
    fn an_answer_is_in_the_budget_until_the_last_part_of_it_is_let_go() {
        let budget = MemoryBudget::new(10_000);
        let mut collected = Collected::new(&AnswerRoom::of_one_hook(&budget));
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
    fn a_hold_lasts_without_the_answer() {
        let budget = MemoryBudget::new(10_000);
        let mut collected = Collected::new(&AnswerRoom::of_one_hook(&budget));
        collected.extend(&[1; 2000]).expect("room");
        let hold = collected.hold();
        drop(collected.finish());
        assert_eq!(budget.held_for(Purpose::Answer), 2000);
        drop(hold);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_that_has_no_room_is_a_call_failure() {
        let budget = MemoryBudget::new(6000);
        let mut collected = Collected::new(&AnswerRoom::of_one_hook(&budget));
        collected.extend(&[0; 1000]).expect("room");
        collected.extend(&[0; 500]).expect("what is needed, where there is no room for twice as much");
        assert_eq!(collected.extend(&[0]), Err(CallFailure::Overloaded));
        assert_eq!((collected.len(), budget.held()), (1500, 1500), "what had arrived is as it was");
        drop(collected);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_in_small_parts_is_copied_a_few_times_even_where_room_is_short() {
        // Twice a mebibyte has no room in a hook's share of 1.5 MiB.
        let budget = MemoryBudget::new(6 << 20);
        let mut collected = Collected::new(&AnswerRoom::of_one_hook(&budget));
        let (mut copied, mut capacity) = (0, 0);
        while collected.extend(&[0; 100]).is_ok() {
            if collected.bytes.capacity() > capacity {
                (copied, capacity) = (copied + collected.len(), collected.bytes.capacity());
            }
        }
        assert!(collected.len() > 1 << 20 && copied < 5 * collected.len(), "{copied} of {}", collected.len());
    }
}

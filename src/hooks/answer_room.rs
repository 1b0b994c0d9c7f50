//! Answer room: one hook's share of the memory for all hooks' answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::memory::{MemoryBudget, Purpose, Reservation};

/// The room of one hook's answers, over all its connections.
///
/// A hook may hold as much as it leaves free: half of the room when it is alone, a third each when two fill it, a ninth
/// when eight do. So there is always some left for a hook that holds nothing, and nothing has to be divided ahead.
#[derive(Debug)]
pub(super) struct AnswerRoom {
    budget: Arc<MemoryBudget>,
    held: AtomicUsize,
}

impl AnswerRoom {
    pub(super) fn of_one_hook(budget: &Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self { budget: Arc::clone(budget), held: AtomicUsize::new(0) })
    }

    /// Without a limit.
    pub(super) fn unlimited() -> Arc<Self> {
        Self::of_one_hook(&MemoryBudget::unlimited())
    }

    /// Reservation of an answer in this room: empty at first.
    pub(super) fn nothing(self: &Arc<Self>) -> Taken {
        Taken { of: Arc::clone(self), reserved: self.budget.empty(Purpose::Answer) }
    }
}

/// Share of one answer in its hook's room; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    of: Arc<AnswerRoom>,
    reserved: Reservation,
}

impl Taken {
    /// Takes until there is so much; `false`, and nothing changed, when there is no room.
    #[must_use]
    pub(super) fn reaches(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.reserved.bytes());
        let own = self.of.held.fetch_add(more, Relaxed).saturating_add(more);
        let left = self.of.budget.free(Purpose::Answer).saturating_sub(more);
        if own > left || !self.reserved.try_grow(more) {
            self.of.held.fetch_sub(more, Relaxed);
            return false;
        }
        true
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.reserved.bytes(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hook_alone_has_half_of_the_room_of_all_answers() {
        let budget = MemoryBudget::new(200);
        let room = AnswerRoom::of_one_hook(&budget);
        let (mut first, mut second) = (room.nothing(), room.nothing());
        assert!(first.reaches(30) && second.reaches(20));
        assert!(!second.reaches(21), "on whichever connection");
        assert!(first.reaches(30) && first.reaches(10), "it has that");
        assert_eq!(budget.held_for(Purpose::Answer), 50);
        drop(first);
        assert!(second.reaches(50));
        drop(second);
        assert_eq!((budget.held(), room.held.load(Relaxed)), (0, 0));
    }

    #[test]
    fn hooks_that_take_what_they_get_leave_room_for_others_and_for_reviews() {
        let budget = MemoryBudget::new(20_000);
        let mut greedy: Vec<_> = (0..8).map(|_| AnswerRoom::of_one_hook(&budget).nothing()).collect();
        let mut held = [0; 8];
        // Each byte by byte, in turn, until nobody gets more.
        let mut more = true;
        while more {
            more = false;
            for (hook, held) in greedy.iter_mut().zip(&mut held) {
                if hook.reaches(*held + 1) {
                    (*held, more) = (*held + 1, true);
                }
            }
        }
        assert!(held.iter().all(|held| (1100..1200).contains(held)), "a ninth each: {held:?}");
        let mut modest = AnswerRoom::of_one_hook(&budget).nothing();
        assert!(modest.reaches(500));
        assert!(budget.reserve(Purpose::Review, 10_000).is_some());
    }

    #[test]
    fn hooks_leave_room_for_others_beside_reviews_too() {
        let budget = MemoryBudget::new(1000);
        let _reviews = budget.reserve(Purpose::Review, 750);
        let (mut greedy, mut modest) =
            (AnswerRoom::of_one_hook(&budget).nothing(), AnswerRoom::of_one_hook(&budget).nothing());
        assert!(greedy.reaches(125) && !greedy.reaches(126));
        assert!(modest.reaches(60));
    }
}

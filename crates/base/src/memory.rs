//! The memory budget: one limit for everything that callers and the services they are forwarded to can make grow.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A review that is being read or decided.
    Review,
    /// A hook's answer that is being read or judged.
    Answer,
    /// Bytes queued for a hook whose call nobody waits for any more.
    Queue,
    /// A verdict that its caller has not read yet.
    Verdict,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Review, Self::Answer, Self::Queue, Self::Verdict];

    /// Value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Review => "review",
            Self::Answer => "answer",
            Self::Queue => "queue",
            Self::Verdict => "verdict",
        }
    }
}

/// The memory budget of the whole process, in bytes as they are held (capacity, not length).
///
/// It has two parts that overlap. Reviews are let in while callers (reviews, verdicts) hold less than three quarters:
/// were they to fill all of it, no hook's answer could be read any more, and every one of them would fail. Hooks
/// (answers, queues) may hold half: whatever they send, the other half is there for reviews that have nothing to do
/// with them.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    held: AtomicUsize,
    by_purpose: [AtomicUsize; Purpose::ALL.len()],
}

impl MemoryBudget {
    /// Nothing held; at most `limit` bytes later.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), by_purpose: Default::default() })
    }

    /// Without a limit: for callers that hold what they ask for anyway.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// The most that may be held.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held for all purposes.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Bytes held for one purpose.
    pub fn held_for(&self, purpose: Purpose) -> usize {
        self.by_purpose[purpose as usize].load(Relaxed)
    }

    /// A reservation that holds nothing yet.
    pub fn empty(self: &Arc<Self>, purpose: Purpose) -> Reservation {
        Reservation { budget: Arc::clone(self), purpose, bytes: 0 }
    }

    /// Room for that many bytes; `None` when there is none.
    pub fn reserve(self: &Arc<Self>, purpose: Purpose, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.empty(purpose);
        reservation.try_grow(bytes).then_some(reservation)
    }

    /// The most that the purposes of its part may hold together while something is still reserved for this one.
    pub fn ceiling(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Review => self.limit - self.limit / 4,
            Purpose::Answer | Purpose::Queue => self.limit / 2,
            Purpose::Verdict => self.limit,
        }
    }

    /// Bytes that could still be reserved for that purpose.
    pub fn free(&self, purpose: Purpose) -> usize {
        let of_part = self.ceiling(purpose).saturating_sub(self.held_beside(purpose) + self.held_for(purpose));
        of_part.min(self.limit.saturating_sub(self.held()))
    }

    /// Bytes held for the other purpose of the same part.
    fn held_beside(&self, purpose: Purpose) -> usize {
        self.held_for(match purpose {
            Purpose::Review => Purpose::Verdict,
            Purpose::Verdict => Purpose::Review,
            Purpose::Answer => Purpose::Queue,
            Purpose::Queue => Purpose::Answer,
        })
    }

    fn try_take(&self, purpose: Purpose, bytes: usize, ceiling: usize) -> bool {
        // Optimistic: two that overlap at the very limit may both be refused, none is let in beyond it. (Two of one
        // part and of different purposes may both be let in at the part's ceiling; never beyond the limit.)
        let before = self.held.fetch_add(bytes, Relaxed);
        let of_purpose = self.by_purpose[purpose as usize].fetch_add(bytes, Relaxed);
        let of_part = of_purpose.saturating_add(self.held_beside(purpose));
        if before.saturating_add(bytes) > self.limit || of_part.saturating_add(bytes) > ceiling {
            self.give_back(purpose, bytes);
            return false;
        }
        true
    }

    fn give_back(&self, purpose: Purpose, bytes: usize) {
        self.by_purpose[purpose as usize].fetch_sub(bytes, Relaxed);
        self.held.fetch_sub(bytes, Relaxed);
    }
}

/// Bytes held for one thing; given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    purpose: Purpose,
    bytes: usize,
}

impl Reservation {
    /// Bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Room for that many bytes more; `false`, and nothing changed, when there is none.
    #[must_use]
    pub fn try_grow(&mut self, more: usize) -> bool {
        self.try_grow_below(self.budget.ceiling(self.purpose), more)
    }

    /// The same for somebody to whom the budget ends at `ceiling` already.
    #[must_use]
    pub fn try_grow_below(&mut self, ceiling: usize, more: usize) -> bool {
        let ceiling = ceiling.min(self.budget.ceiling(self.purpose));
        if more > 0 && !self.budget.try_take(self.purpose, more, ceiling) {
            return false;
        }
        self.bytes += more;
        true
    }

    /// From now on so many bytes for another purpose; `false`, and nothing changed, when there is no room for what that
    /// is more than now.
    #[must_use]
    pub fn turn_into(&mut self, purpose: Purpose, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.budget.try_take(purpose, more, self.budget.ceiling(purpose)) {
            return false;
        }
        self.shrink_to(bytes);
        self.budget.by_purpose[self.purpose as usize].fetch_sub(self.bytes, Relaxed);
        self.budget.by_purpose[purpose as usize].fetch_add(self.bytes, Relaxed);
        (self.purpose, self.bytes) = (purpose, bytes);
        true
    }

    /// Gives back what is held beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes);
        self.budget.give_back(self.purpose, excess);
        self.bytes -= excess;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.purpose, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_up_to_the_limit_and_taken_back_when_a_reservation_ends() {
        let budget = MemoryBudget::new(100);
        let mut first = budget.reserve(Purpose::Verdict, 60).unwrap();
        assert!(budget.reserve(Purpose::Answer, 41).is_none());
        let second = budget.reserve(Purpose::Answer, 40).unwrap();
        assert_eq!((budget.held(), budget.held_for(Purpose::Verdict), budget.held_for(Purpose::Answer)), (100, 60, 40));
        assert!(!first.try_grow(1));
        drop(second);
        assert!(first.try_grow(1));
        first.shrink_to(10);
        first.shrink_to(50);
        assert_eq!((first.bytes(), budget.held()), (10, 10));
        drop(first);
        assert_eq!((budget.held(), budget.held_for(Purpose::Answer)), (0, 0));
    }

    #[test]
    fn hooks_leave_half_of_it_to_reviews() {
        let budget = MemoryBudget::new(100);
        let queue = budget.reserve(Purpose::Queue, 10).unwrap();
        let _answers = budget.reserve(Purpose::Answer, 40).unwrap();
        assert_eq!((budget.free(Purpose::Answer), budget.free(Purpose::Review)), (0, 50));
        assert!(budget.reserve(Purpose::Answer, 1).is_none() && budget.reserve(Purpose::Queue, 1).is_none());
        let reviews = budget.reserve(Purpose::Review, 50).unwrap();
        drop(queue);
        assert!(budget.reserve(Purpose::Answer, 11).is_none());
        assert!(budget.reserve(Purpose::Answer, 10).is_some());
        drop(reviews);
        assert_eq!((budget.held(), budget.free(Purpose::Review)), (40, 60));
        assert!(budget.reserve(Purpose::Answer, usize::MAX).is_none());
        assert_eq!(budget.held(), 40);
    }

    #[test]
    fn bytes_are_held_for_another_purpose_without_being_given_back_first() {
        let budget = MemoryBudget::new(100);
        let mut held = budget.reserve(Purpose::Review, 70).unwrap();
        let _others = budget.reserve(Purpose::Answer, 20).unwrap();
        assert!(!held.turn_into(Purpose::Verdict, 81));
        assert!(held.turn_into(Purpose::Verdict, 80));
        assert_eq!((budget.held(), budget.held_for(Purpose::Review), budget.held_for(Purpose::Verdict)), (100, 0, 80));
        assert!(held.turn_into(Purpose::Queue, 5));
        assert_eq!((budget.held(), budget.held_for(Purpose::Verdict), budget.held_for(Purpose::Queue)), (25, 0, 5));
        drop(held);
        assert_eq!((budget.held(), budget.held_for(Purpose::Queue)), (20, 0));
    }

    #[test]
    fn the_budget_can_end_earlier_for_some() {
        let budget = MemoryBudget::new(100);
        let mut held = budget.empty(Purpose::Review);
        assert!(held.try_grow_below(50, 50));
        assert!(!held.try_grow_below(50, 1));
        assert!(!held.try_grow_below(90, 26), "no later than for all");
        assert!(held.try_grow_below(90, 25));
    }

    #[test]
    fn reviews_leave_room_for_what_they_lead_to() {
        let budget = MemoryBudget::new(100);
        let _reviews = budget.reserve(Purpose::Review, 75).unwrap();
        assert!(budget.reserve(Purpose::Review, 1).is_none());
        assert!(budget.reserve(Purpose::Answer, 25).is_some());
        assert!(budget.reserve(Purpose::Answer, usize::MAX).is_none(), "no overflow");
    }
}

//! The memory budget: one limit for all memory that callers and hooks can make grow.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A review that is being read or decided.
    Review,
    /// A hook's answer that is being read or checked.
    Answer,
    /// Data queued for a recipient: bytes of cancelled calls, tasks of initializers, and stored objects to initialize.
    Queue,
    /// A verdict that its caller has not received yet.
    Verdict,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 4] = [Self::Review, Self::Answer, Self::Queue, Self::Verdict];
}

/// Part of the budget, one in so many, beyond which answers and queues leave no room for spare work.
const SPARE_SHARE: usize = 8;

/// The memory budget of the whole process, in bytes of capacity (not length).
///
/// It has two parts, which overlap. Reviews are admitted while callers (reviews, verdicts) use less than three quarters
/// of the budget: if they could fill all of it, no hook's answer could be read, and every review would fail. Hooks
/// (answers, queues) may use half of the budget, so that they leave the other half to reviews for other hooks.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    held: AtomicUsize,
    by_purpose: [AtomicUsize; Purpose::ALL.len()],
}

impl MemoryBudget {
    /// Creates an empty budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), by_purpose: Default::default() })
    }

    /// Creates a budget without a limit.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// Returns the size of the budget in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the bytes reserved for all purposes.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Returns the bytes reserved for one purpose.
    pub fn held_for(&self, purpose: Purpose) -> usize {
        self.by_purpose[purpose as usize].load(Relaxed)
    }

    /// Creates a reservation of no bytes.
    pub fn empty(self: &Arc<Self>, purpose: Purpose) -> Reservation {
        Reservation { budget: Arc::clone(self), purpose, bytes: 0 }
    }

    /// Reserves bytes; `None` if there is no room for them.
    pub fn reserve(self: &Arc<Self>, purpose: Purpose, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.empty(purpose);
        reservation.try_grow(bytes).then_some(reservation)
    }

    /// Returns the limit that a reservation for `purpose` must keep: the maximum number of bytes reserved for both
    /// purposes of its part.
    pub fn ceiling(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Review => self.limit - self.limit / 4,
            Purpose::Answer | Purpose::Queue => self.limit / 2,
            Purpose::Verdict => self.limit,
        }
    }

    /// Returns the bytes that can still be reserved for this purpose.
    pub fn free(&self, purpose: Purpose) -> usize {
        let of_part = self.ceiling(purpose).saturating_sub(self.held_for_other(purpose) + self.held_for(purpose));
        of_part.min(self.limit.saturating_sub(self.held()))
    }

    /// Returns the bytes reserved for the other purpose of the same part.
    fn held_for_other(&self, purpose: Purpose) -> usize {
        self.held_for(match purpose {
            Purpose::Review => Purpose::Verdict,
            Purpose::Verdict => Purpose::Review,
            Purpose::Answer => Purpose::Queue,
            Purpose::Queue => Purpose::Answer,
        })
    }

    fn try_take(&self, purpose: Purpose, bytes: usize, ceiling: usize) -> bool {
        // Optimistic: two concurrent reservations may both fail near the limit, but cannot exceed it. (Two for
        // different purposes of one part may exceed the part's ceiling together, but not the limit.)
        let before = self.held.fetch_add(bytes, Relaxed);
        let of_purpose = self.by_purpose[purpose as usize].fetch_add(bytes, Relaxed);
        let of_part = of_purpose.saturating_add(self.held_for_other(purpose));
        if before.saturating_add(bytes) > self.limit || of_part.saturating_add(bytes) > ceiling {
            self.release(purpose, bytes);
            return false;
        }
        true
    }

    fn release(&self, purpose: Purpose, bytes: usize) {
        self.by_purpose[purpose as usize].fetch_sub(bytes, Relaxed);
        self.held.fetch_sub(bytes, Relaxed);
    }
}

/// Bytes reserved for one purpose. Dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    purpose: Purpose,
    bytes: usize,
}

impl Reservation {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `more` bytes. Returns false, and changes nothing, if there is no room for them.
    #[must_use]
    pub fn try_grow(&mut self, more: usize) -> bool {
        self.try_grow_below(self.budget.ceiling(self.purpose), more)
    }

    /// Like [`Reservation::try_grow`], for a caller with a lower `ceiling`.
    #[must_use]
    pub fn try_grow_below(&mut self, ceiling: usize, more: usize) -> bool {
        let ceiling = ceiling.min(self.budget.ceiling(self.purpose));
        if more > 0 && !self.budget.try_take(self.purpose, more, ceiling) {
            return false;
        }
        self.bytes += more;
        true
    }

    /// Like [`Reservation::try_grow`], for spare work, which is the first to go without: half of the budget stays free,
    /// and most of what answers and queues may have is left to the answers on which verdicts depend.
    #[must_use]
    pub fn try_grow_spare(&mut self, more: usize) -> bool {
        let limit = self.budget.limit;
        more <= (limit / 2).saturating_sub(self.budget.held()) && self.try_grow_below(limit / SPARE_SHARE, more)
    }

    /// Changes the purpose of the reservation, and its number of bytes. Returns false, and changes nothing, if there is
    /// no room for the additional bytes.
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

    /// Releases the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes);
        self.budget.release(self.purpose, excess);
        self.bytes -= excess;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.purpose, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_work_leaves_half_of_the_budget_and_most_of_the_answers_part() {
        let budget = MemoryBudget::new(800);
        let mut spare = budget.empty(Purpose::Answer);
        assert!(spare.try_grow_spare(60) && !spare.try_grow_spare(41), "an eighth");
        let answer = budget.reserve(Purpose::Queue, 30).unwrap();
        assert!(!spare.try_grow_spare(11) && spare.try_grow_spare(10), "with answers and queues");
        drop(answer);
        let reviews = budget.reserve(Purpose::Review, 320).unwrap();
        assert!(!spare.try_grow_spare(11) && spare.try_grow_spare(10), "half of all");
        assert_eq!((spare.bytes(), budget.held()), (80, 400));
        drop(reviews);
    }

    #[test]
    fn reservations_stop_at_the_limit() {
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
    fn hooks_leave_half_of_the_budget_to_reviews() {
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
    fn turn_into_keeps_bytes_reserved() {
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
    fn try_grow_below_respects_lower_ceiling() {
        let budget = MemoryBudget::new(100);
        let mut held = budget.empty(Purpose::Review);
        assert!(held.try_grow_below(50, 50));
        assert!(!held.try_grow_below(50, 1));
        assert!(!held.try_grow_below(90, 26), "no later than for all");
        assert!(held.try_grow_below(90, 25));
    }

    #[test]
    fn reviews_leave_a_quarter_for_answers() {
        let budget = MemoryBudget::new(100);
        let _reviews = budget.reserve(Purpose::Review, 75).unwrap();
        assert!(budget.reserve(Purpose::Review, 1).is_none());
        assert!(budget.reserve(Purpose::Answer, 25).is_some());
        assert!(budget.reserve(Purpose::Answer, usize::MAX).is_none(), "no overflow");
    }
}

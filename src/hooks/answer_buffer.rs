//! AnswerBuffer: a hook's answer while it arrives, within that hook's share of the memory for answers.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;

use gatepost_api::CallFailure;
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};

/// Memory for the answers of one hook, over all its connections.
///
/// A hook may hold as much as it leaves free: half of the budget if it is alone, a third each if two hooks hold all
/// they may, a ninth each if eight do. So there is always memory for a hook that holds nothing, and nothing is divided
/// ahead.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    memory: Arc<MemoryBudget>,
    held: AtomicUsize,
    /// Budget of answers on which no verdict depends; `None` in that budget itself.
    spare: Option<Arc<Self>>,
}

impl AnswerBudget {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Arc<Self> {
        let of = |spare| Arc::new(Self { memory: Arc::clone(memory), held: AtomicUsize::new(0), spare });
        of(Some(of(None)))
    }

    /// Returns the budget of an answer, on which a verdict depends or, if it is spare, does not.
    pub(super) fn of_answer(self: &Arc<Self>, is_spare: bool) -> &Arc<Self> {
        self.spare.as_ref().filter(|_| is_spare).unwrap_or(self)
    }

    pub(super) fn unlimited() -> Arc<Self> {
        Self::new(&MemoryBudget::unlimited())
    }

    fn reservation(self: &Arc<Self>) -> AnswerReservation {
        AnswerReservation { budget: Arc::clone(self), reserved: self.memory.empty(Purpose::Answer) }
    }
}

/// Memory reserved for one answer. It is released on drop.
#[derive(Debug)]
struct AnswerReservation {
    budget: Arc<AnswerBudget>,
    reserved: Reservation,
}

impl AnswerReservation {
    /// Grows to that size. Returns false and changes nothing if there is not enough memory.
    #[must_use]
    fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.reserved.bytes());
        let own = self.budget.held.fetch_add(more, Relaxed).saturating_add(more);
        let left = self.budget.memory.free(Purpose::Answer).saturating_sub(more);
        let mut try_grow = || match self.budget.spare {
            None => self.reserved.try_grow_spare(more),
            Some(_) => self.reserved.try_grow(more),
        };
        if own > left || !try_grow() {
            self.budget.held.fetch_sub(more, Relaxed);
            return false;
        }
        true
    }
}

impl Drop for AnswerReservation {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.reserved.bytes(), Relaxed);
    }
}

/// Maximum size of an answer without a reservation, in bytes. Most answers are smaller, and need no access to the
/// shared budget.
const UNRESERVED: usize = 1024;

/// A hook's answer while it arrives. Memory is reserved by capacity before it is allocated, and released when the last
/// clone of the finished answer is dropped.
#[derive(Debug)]
pub(super) struct AnswerBuffer {
    bytes: Vec<u8>,
    pub(super) budget: Arc<AnswerBudget>,
    memory: AnswerMemory,
}

/// Memory that an answer has reserved, until the last clone is dropped. It outlives the answer, as slices of the answer
/// may still be in use.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerMemory(Option<Arc<Mutex<AnswerReservation>>>);

impl AnswerBuffer {
    pub(super) fn new(budget: &Arc<AnswerBudget>) -> Self {
        Self { bytes: Vec::new(), budget: Arc::clone(budget), memory: AnswerMemory::default() }
    }

    /// Returns the memory reserved so far.
    pub(super) fn memory(&self) -> AnswerMemory {
        self.memory.clone()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a part.
    ///
    /// # Errors
    /// There is not enough memory: the call has failed.
    pub(super) fn extend(&mut self, part: &[u8]) -> Result<(), CallFailure> {
        let needed = self.bytes.len() + part.len();
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // Twice the capacity, or a quarter more if there is no memory for that. Never less, or an answer in many
            // small parts would be copied for each of them.
            let wanted = [2 * capacity, capacity + capacity / 4].map(|wanted| needed.max(wanted));
            let capacity =
                wanted.into_iter().find(|capacity| self.reserve(*capacity)).ok_or(CallFailure::Overloaded)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Reserves memory for that capacity. Returns false if there is not enough.
    fn reserve(&mut self, capacity: usize) -> bool {
        if capacity <= UNRESERVED {
            return true;
        }
        let reserved = self.memory.0.get_or_insert_with(|| Arc::new(Mutex::new(self.budget.reservation())));
        reserved.lock().unwrap_or_else(PoisonError::into_inner).grow_to(capacity)
    }

    /// Returns the whole answer. Its memory stays reserved as long as a part of it exists.
    pub(super) fn finish(self) -> Bytes {
        if self.memory.0.is_none() { self.bytes.into() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for AnswerBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hook_alone_has_half_of_the_answer_memory() {
        let budget = MemoryBudget::new(200);
        let room = AnswerBudget::new(&budget);
        let (mut first, mut second) = (room.reservation(), room.reservation());
        assert!(first.grow_to(30) && second.grow_to(20));
        assert!(!second.grow_to(21), "on whichever connection");
        assert!(first.grow_to(30) && first.grow_to(10), "it has that");
        assert_eq!(budget.held_for(Purpose::Answer), 50);
        drop(first);
        assert!(second.grow_to(50));
        drop(second);
        assert_eq!((budget.held(), room.held.load(Relaxed)), (0, 0));
    }

    #[test]
    fn answers_in_shadow_leave_memory_for_others() {
        let budget = MemoryBudget::new(80_000);
        let room = AnswerBudget::new(&budget);
        let answer = |in_shadow| AnswerBuffer::new(room.of_answer(in_shadow));
        let (mut shadow, mut enforcing) = (answer(true), answer(false));
        shadow.extend(&[0; 9000]).expect("less than an eighth");
        assert_eq!(shadow.extend(&[0; 2000]), Err(CallFailure::Overloaded));
        enforcing.extend(&[0; 11_000]).expect("room");
    }

    #[test]
    fn greedy_hooks_leave_answer_memory_for_others_and_for_reviews() {
        let budget = MemoryBudget::new(20_000);
        let mut greedy: Vec<_> = (0..8).map(|_| AnswerBudget::new(&budget).reservation()).collect();
        let mut held = [0; 8];
        // Each byte by byte, in turn, until nobody gets more.
        let mut more = true;
        while more {
            more = false;
            for (hook, held) in greedy.iter_mut().zip(&mut held) {
                if hook.grow_to(*held + 1) {
                    (*held, more) = (*held + 1, true);
                }
            }
        }
        assert!(held.iter().all(|held| (1100..1200).contains(held)), "a ninth each: {held:?}");
        let mut modest = AnswerBudget::new(&budget).reservation();
        assert!(modest.grow_to(500));
        assert!(budget.reserve(Purpose::Review, 10_000).is_some());
    }

    #[test]
    fn greedy_hooks_leave_answer_memory_for_others_beside_reviews() {
        let budget = MemoryBudget::new(1000);
        let _reviews = budget.reserve(Purpose::Review, 750);
        let (mut greedy, mut modest) =
            (AnswerBudget::new(&budget).reservation(), AnswerBudget::new(&budget).reservation());
        assert!(greedy.grow_to(125) && !greedy.grow_to(126));
        assert!(modest.grow_to(60));
    }

    #[test]
    fn an_answer_is_in_the_budget_until_its_last_slice_is_dropped() {
        let budget = MemoryBudget::new(10_000);
        let mut answer = AnswerBuffer::new(&AnswerBudget::new(&budget));
        answer.extend(&[1; 1000]).expect("room");
        assert_eq!(budget.held(), 0, "a small one is not counted");
        answer.extend(&[2; 500]).expect("room");
        assert_eq!((answer.len(), budget.held_for(Purpose::Answer)), (1500, 2000), "by capacity");
        let whole = answer.finish();
        let part = whole.slice(1490..);
        drop(whole);
        assert_eq!((&part[..], budget.held()), (&[2; 10][..], 2000));
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn answer_memory_outlives_the_answer() {
        let budget = MemoryBudget::new(10_000);
        let mut answer = AnswerBuffer::new(&AnswerBudget::new(&budget));
        answer.extend(&[1; 2000]).expect("room");
        let memory = answer.memory();
        drop(answer.finish());
        assert_eq!(budget.held_for(Purpose::Answer), 2000);
        drop(memory);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_answer_beyond_the_budget_is_a_call_failure() {
        let budget = MemoryBudget::new(6000);
        let mut answer = AnswerBuffer::new(&AnswerBudget::new(&budget));
        answer.extend(&[0; 1000]).expect("room");
        answer.extend(&[0; 500]).expect("what is needed, where there is no room for twice as much");
        assert_eq!(answer.extend(&[0]), Err(CallFailure::Overloaded));
        assert_eq!((answer.len(), budget.held()), (1500, 1500), "what had arrived is as it was");
        drop(answer);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn fragmented_answer_is_copied_rarely_even_with_little_memory() {
        // Twice a mebibyte has no room in a hook's share of 1.5 MiB.
        let budget = MemoryBudget::new(6 << 20);
        let mut answer = AnswerBuffer::new(&AnswerBudget::new(&budget));
        let (mut copied, mut capacity) = (0, 0);
        while answer.extend(&[0; 100]).is_ok() {
            if answer.bytes.capacity() > capacity {
                (copied, capacity) = (copied + answer.len(), answer.bytes.capacity());
            }
        }
        assert!(answer.len() > 1 << 20 && copied < 5 * answer.len(), "{copied} of {}", answer.len());
    }
}

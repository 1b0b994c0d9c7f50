//! Inflight: the reviews being read or decided, and what they hold of the memory budget.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::memory::{MemoryBudget, Purpose, Reservation};

/// What is in flight in the whole process.
#[derive(Debug)]
pub struct Inflight {
    budget: Arc<MemoryBudget>,
    requests: AtomicUsize,
}

impl Inflight {
    /// Nothing in flight; what comes is held in that budget.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self { budget, requests: AtomicUsize::new(0) })
    }

    /// One more request; it ends when the guard is dropped.
    pub fn enter(&self) -> Entered<'_> {
        self.requests.fetch_add(1, Relaxed);
        Entered { inflight: self, held: self.budget.empty(Purpose::Review) }
    }

    /// Requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Bytes reserved for them.
    pub fn bytes(&self) -> usize {
        self.budget.held_for(Purpose::Review)
    }
}

/// One request in flight with what it has reserved.
#[derive(Debug)]
pub struct Entered<'a> {
    inflight: &'a Inflight,
    held: Reservation,
}

impl Entered<'_> {
    /// Reserves room for that many bytes more; `false` when there is none.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        self.held.try_grow(bytes)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.inflight.requests.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_and_holds_its_bytes_until_it_ends() {
        let budget = MemoryBudget::new(1000);
        let inflight = Inflight::new(Arc::clone(&budget));
        let mut first = inflight.enter();
        assert!(first.reserve(600));
        let mut second = inflight.enter();
        assert!(!second.reserve(401));
        assert!(second.reserve(100));
        assert_eq!((inflight.requests(), inflight.bytes()), (2, 700));
        drop(first);
        assert_eq!((inflight.requests(), inflight.bytes()), (1, 100));
        drop(second);
        assert_eq!((inflight.requests(), inflight.bytes(), budget.held()), (0, 0, 0));
    }
}

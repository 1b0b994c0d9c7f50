//! Inflight: the reviews being read or decided, and the memory they may take together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// What is in flight in the whole process.
#[derive(Debug)]
pub struct Inflight {
    limit: usize,
    bytes: AtomicUsize,
    requests: AtomicUsize,
}

impl Inflight {
    /// Nothing in flight; at most `limit` bytes later.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, bytes: AtomicUsize::new(0), requests: AtomicUsize::new(0) })
    }

    /// One more request; it ends when the guard is dropped.
    pub fn enter(&self) -> Entered<'_> {
        self.requests.fetch_add(1, Relaxed);
        Entered { inflight: self, bytes: 0 }
    }

    /// Requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Bytes reserved for them.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// One request in flight with what it has reserved.
#[derive(Debug)]
pub struct Entered<'a> {
    inflight: &'a Inflight,
    bytes: usize,
}

impl Entered<'_> {
    /// Reserves room for that many bytes more; `false` when there is none.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        // Optimistic: two callers that overlap at the very limit may both be refused, none is let in beyond it.
        let before = self.inflight.bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.inflight.limit {
            self.inflight.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.inflight.bytes.fetch_sub(self.bytes, Relaxed);
        self.inflight.requests.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_up_to_the_limit_and_taken_back_when_the_request_ends() {
        let inflight = Inflight::new(100);
        let mut first = inflight.enter();
        assert!(first.reserve(60));
        let mut second = inflight.enter();
        assert!(!second.reserve(41));
        assert!(second.reserve(40));
        assert_eq!((inflight.requests(), inflight.bytes()), (2, 100));
        drop(first);
        assert_eq!((inflight.requests(), inflight.bytes()), (1, 40));
        assert!(second.reserve(60));
        drop(second);
        assert_eq!((inflight.requests(), inflight.bytes()), (0, 0));
    }
}

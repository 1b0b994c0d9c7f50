//! GenerationGuard: the generation that a request goes through, as cheap to take as a count of the thread's own.
//!
//! Every request takes what is in force and keeps it to its end. Counted in one place, that would be a cache line that
//! all workers write, twice a request. So each thread keeps what it took last, under a count of its own, and takes it
//! again as long as nothing newer was published: one load of a number that nobody writes meanwhile, and one count that
//! no other thread touches.
//!
//! A guard kept by a thread stays alive without a request. "The last drop means drained" holds all the same, as the
//! publisher then has each worker [`refresh`](super::Current::refresh).

use std::{
    cell::RefCell,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::generation::Generation;

/// The generation that one request goes through. The outer count belongs to the thread that entered, the inner one is
/// everybody's and rests.
#[derive(Clone, Debug)]
pub struct GenerationGuard(Arc<Own>);

/// Generation with a count of this thread's own.
#[derive(Debug)]
struct Own(Arc<Generation>);

impl Deref for GenerationGuard {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.0
    }
}

/// Identity of a published generation among all of the process, of whichever [`Current`](super::Current).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

/// Which generation is in force, as a number.
#[derive(Debug)]
pub(super) struct Newest(AtomicU64);

thread_local! {
    /// Guard of the generation that this thread entered last.
    static LAST: RefCell<Option<(Stamp, GenerationGuard)>> = const { RefCell::new(None) };
}

impl Newest {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(Stamp::next().0))
    }

    /// Another generation was put in force. Called after it was: who sees the new stamp finds it.
    pub(super) fn changed(&self) {
        self.0.store(Stamp::next().0, Ordering::Release);
    }

    /// Guard of the generation that this thread entered last, where it is still in force; else of the one that `load`
    /// gives.
    pub(super) fn enter(&self, load: impl Fn() -> Arc<Generation>) -> GenerationGuard {
        // Read before what is loaded: if something is published in between, the next look finds another stamp.
        let newest = Stamp(self.0.load(Ordering::Acquire));
        let entered = LAST.try_with(|last| {
            if let Some((stamp, entered)) = &*last.borrow()
                && *stamp == newest
            {
                return entered.clone();
            }
            let entered = GenerationGuard(Arc::new(Own(load())));
            // The former is dropped when it is no longer borrowed: with it may go the last of a generation.
            let _former = last.replace(Some((newest, entered.clone())));
            entered
        });
        // A thread that is ending keeps nothing.
        entered.unwrap_or_else(|_| GenerationGuard(Arc::new(Own(load()))))
    }
}

impl Stamp {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Weak, atomic::AtomicBool},
        thread,
        time::Instant,
    };

    use crate::live::{Current, Generation};

    use super::*;

    fn published(current: &Current, number: u64) -> Weak<Generation> {
        let generation = Arc::new(Generation { number, ..Generation::nothing() });
        let weak = Arc::downgrade(&generation);
        current.publish(generation);
        weak
    }

    #[test]
    fn generation_guard_holds_the_generation_in_force() {
        let (one, other) = (Current::new(Instant::now()), Current::new(Instant::now()));
        for number in 1..4 {
            published(&one, number);
            published(&other, number + 10);
            assert_eq!([one.enter().number, one.enter().number, other.enter().number], [number, number, number + 10]);
            assert_eq!(one.enter().number, number, "each keeps to its own");
        }
    }

    #[test]
    fn a_generation_is_gone_with_its_last_request_once_every_thread_has_looked() {
        let current = Current::new(Instant::now());
        let first = published(&current, 1);
        let request = current.enter();
        published(&current, 2);
        current.refresh();
        assert_eq!(request.number, 1, "a request keeps what it entered");
        drop(request);
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn generation_guard_never_holds_a_replaced_generation() {
        let current = Current::new(Instant::now());
        let (newest, over) = (AtomicU64::new(0), AtomicBool::new(false));
        published(&current, 0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let at_least = newest.load(Ordering::Acquire);
                        assert!(current.enter().number >= at_least);
                    }
                });
            }
            for number in 1..20_000 {
                published(&current, number);
                newest.store(number, Ordering::Release);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(current.enter().number, 19_999);
    }
}

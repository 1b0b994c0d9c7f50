//! Deadlines: time at which the next of a connection's exchanges expires.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

/// Key of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExchangeKey {
    /// Without a stream, by its ticket.
    Waiting(u64),
    /// On this stream.
    Stream(u32),
}

/// Deadlines of a connection's exchanges. Most end before: theirs stay until they come to the front, or are too many.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, ExchangeKey)>>,
}

/// Fewer are not worth tidying.
const FEW: usize = 256;

impl Deadlines {
    pub(super) fn push(&mut self, deadline: Instant, place: ExchangeKey) {
        self.heap.push(Reverse((deadline, place)));
    }

    /// Forgets exchanges that are over, where there are too many of them beside `live` ones.
    pub(super) fn tidy(&mut self, live: usize, is_live: impl Fn(ExchangeKey) -> bool) {
        if self.heap.len() > FEW + 2 * live {
            self.heap.retain(|Reverse((_, place))| is_live(*place));
        }
    }

    /// The next exchange that is under way and has no time left; those that are over are passed by.
    pub(super) fn next_late(&mut self, now: Instant, is_live: impl Fn(ExchangeKey) -> bool) -> Option<ExchangeKey> {
        while let Some(&Reverse((deadline, place))) = self.heap.peek() {
            let live = is_live(place);
            if live && deadline > now {
                return None;
            }
            self.heap.pop();
            if live {
                return Some(place);
            }
        }
        None
    }

    /// The first of them; it may be of an exchange that is over.
    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_that_are_over_are_passed_by() {
        let began = Instant::now();
        let at = |secs| began + Duration::from_secs(secs);
        let mut deadlines = Deadlines::default();
        for (secs, id) in [(3, 1), (1, 3), (2, 5)] {
            deadlines.push(at(secs), ExchangeKey::Stream(id));
        }
        assert_eq!(deadlines.first(), Some(at(1)));
        let is_live = |place| place != ExchangeKey::Stream(3);
        assert_eq!(deadlines.next_late(at(1), is_live), None);
        assert_eq!(deadlines.first(), Some(at(2)));
        assert_eq!(deadlines.next_late(at(2), is_live), Some(ExchangeKey::Stream(5)));
        assert_eq!(deadlines.next_late(at(3), is_live), Some(ExchangeKey::Stream(1)));
        assert_eq!(deadlines.next_late(at(9), is_live), None);
    }

    #[test]
    fn what_is_over_does_not_pile_up() {
        let mut deadlines = Deadlines::default();
        for id in 0..100_000 {
            deadlines.push(Instant::now(), ExchangeKey::Stream(id));
            deadlines.tidy(1, |place| place == ExchangeKey::Stream(id));
        }
        assert!(deadlines.heap.len() <= FEW + 2, "{}", deadlines.heap.len());
    }
}

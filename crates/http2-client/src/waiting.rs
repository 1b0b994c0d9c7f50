//! Waiting: exchanges for which there is no stream yet.

use std::{collections::VecDeque, time::Instant};

use super::exchange::Exchange;

/// Exchanges for which there is no stream yet, first come, first served. Each has a ticket, by which it can be taken
/// out.
#[derive(Debug)]
pub(super) struct Waiting<E> {
    /// Entries taken out leave their place free until they would have been in front.
    queue: VecDeque<Option<E>>,
    /// The ticket of the one in front, and of the first whose deadline is not tracked yet.
    first: u64,
    untracked: u64,
    len: usize,
}

impl<E: Exchange> Waiting<E> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), first: 0, untracked: 0, len: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lets one wait, and returns its ticket.
    pub(super) fn push(&mut self, exchange: E) -> u64 {
        self.queue.push_back(Some(exchange));
        self.len += 1;
        self.first + self.queue.len() as u64 - 1
    }

    /// The next one that waits and whose deadline is not tracked yet: its ticket, and the deadline. Most begin before
    /// anybody asks.
    pub(super) fn next_untracked(&mut self) -> Option<(u64, Instant)> {
        self.untracked = self.untracked.max(self.first);
        loop {
            let place = usize::try_from(self.untracked - self.first).ok()?;
            let exchange = self.queue.get(place)?;
            self.untracked += 1;
            if let Some(exchange) = exchange {
                return Some((self.untracked - 1, exchange.deadline()));
            }
        }
    }

    /// The one that has waited longest.
    pub(super) fn pop(&mut self) -> Option<E> {
        while let Some(place) = self.queue.pop_front() {
            self.first += 1;
            if let Some(exchange) = place {
                self.len -= 1;
                return Some(exchange);
            }
        }
        None
    }

    /// Takes out the one with that ticket, where it still waits.
    pub(super) fn take(&mut self, ticket: u64) -> Option<E> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let exchange = self.queue.get_mut(place)?.take()?;
        self.len -= 1;
        self.tidy();
        Some(exchange)
    }

    pub(super) fn waits(&self, ticket: u64) -> bool {
        let place = ticket.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.queue.get(place)).is_some_and(Option::is_some)
    }

    /// Lets go of those for which nobody waits any more.
    pub(super) fn drop_abandoned(&mut self) {
        for place in &mut self.queue {
            if place.as_ref().is_some_and(E::is_abandoned) {
                *place = None;
                self.len -= 1;
            }
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Made, *};

    #[test]
    fn they_go_in_order_and_by_ticket() {
        let mut waiting = Waiting::new();
        let tickets: Vec<u64> = (0..5).map(|tag| waiting.push(Made::of(tag))).collect();
        let tag = |exchange: Option<Made>| exchange.map(|exchange| exchange.tag);
        assert_eq!(tag(waiting.pop()), Some(0));
        assert_eq!(tag(waiting.take(tickets[0])), None, "gone already");
        assert_eq!(tag(waiting.take(tickets[1])), Some(1));
        assert_eq!(tag(waiting.take(tickets[3])), Some(3));
        assert!(waiting.waits(tickets[2]) && !waiting.waits(tickets[3]));
        assert_eq!((tag(waiting.pop()), tag(waiting.pop()), tag(waiting.pop())), (Some(2), Some(4), None));
        let ticket = waiting.push(Made::of(9));
        assert_eq!((waiting.len(), tag(waiting.take(ticket)), waiting.len()), (1, Some(9), 0));
    }

    #[test]
    fn each_deadline_is_tracked_once() {
        let mut waiting = Waiting::new();
        let tickets: Vec<u64> = (0..4).map(|tag| waiting.push(Made::of(tag))).collect();
        waiting.pop();
        waiting.take(tickets[2]);
        let next = |waiting: &mut Waiting<Made>| waiting.next_untracked().map(|(ticket, _)| ticket);
        assert_eq!(
            [next(&mut waiting), next(&mut waiting), next(&mut waiting)],
            [Some(tickets[1]), Some(tickets[3]), None]
        );
        let ticket = waiting.push(Made::of(4));
        assert_eq!([next(&mut waiting), next(&mut waiting)], [Some(ticket), None]);
    }
}

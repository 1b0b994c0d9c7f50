//! The exchanges that a connection has not settled yet, with and without a stream, and their deadlines.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Instant,
};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::{
    exchange::{Exchange, ExchangeFailure},
    frame::{FrameHead, MAX_WINDOW, ProtocolFault, flag, kind},
    outgoing::Outgoing,
};

/// Receive window of a stream, in bytes.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// Maximum number of deadlines that are kept besides twice the number of unsettled exchanges.
const MAX_STALE_DEADLINES: usize = 256;

/// The exchanges that a connection has not settled yet. Exchanges that are unsettled when the connection is dropped,
/// because its task is dropped or panics, fail.
#[derive(Debug)]
pub(super) struct Exchanges<E: Exchange> {
    pub(super) streams: FxHashMap<u32, Stream<E>>,
    pub(super) waiting: Waiting<E>,
    /// Deadlines of exchanges. That of a settled exchange stays until it is the earliest one or there are too many.
    deadlines: BinaryHeap<Reverse<(Instant, ExchangeKey)>>,
}

/// Key of an exchange in the heap of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExchangeKey {
    /// Exchange without a stream, by its ticket.
    Waiting(u64),
    /// Exchange on this stream.
    Stream(u32),
}

impl<E: Exchange> Exchanges<E> {
    pub(super) fn new() -> Self {
        Self { streams: FxHashMap::default(), waiting: Waiting::new(), deadlines: BinaryHeap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len() + self.waiting.len
    }

    /// Adds an exchange with its stream.
    pub(super) fn begin(&mut self, id: u32, stream: Stream<E>) {
        self.deadlines.push(Reverse((stream.exchange.deadline(), ExchangeKey::Stream(id))));
        self.streams.insert(id, stream);
        if self.deadlines.len() > MAX_STALE_DEADLINES + 2 * self.len() {
            let (streams, waiting) = (&self.streams, &self.waiting);
            self.deadlines.retain(|Reverse((_, key))| key.is_live(streams, waiting));
        }
    }

    /// Tracks the deadlines of exchanges without a stream. Most exchanges get a stream immediately and are tracked
    /// then.
    pub(super) fn track_waiting(&mut self) {
        while let Some((ticket, deadline)) = self.waiting.next_untracked() {
            self.deadlines.push(Reverse((deadline, ExchangeKey::Waiting(ticket))));
        }
    }

    /// Returns the earliest tracked deadline, which may be that of a settled exchange.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Returns the next exchange whose deadline has passed.
    pub(super) fn next_late(&mut self, now: Instant) -> Option<ExchangeKey> {
        while let Some(&Reverse((deadline, key))) = self.deadlines.peek() {
            let live = key.is_live(&self.streams, &self.waiting);
            if live && deadline > now {
                return None;
            }
            self.deadlines.pop();
            if live {
                return Some(key);
            }
        }
        None
    }

    /// Fails all exchanges for the reason `why`.
    pub(super) fn fail(&mut self, why: &str) {
        let waiting = std::iter::from_fn(|| self.waiting.pop());
        for exchange in self.streams.drain().map(|(_, stream)| stream.exchange).chain(waiting) {
            exchange.fail(ExchangeFailure::Lost(why));
        }
    }
}

impl<E: Exchange> Drop for Exchanges<E> {
    fn drop(&mut self) {
        self.fail("gatepost gave the connection up");
    }
}

impl ExchangeKey {
    fn is_live<E: Exchange>(self, streams: &FxHashMap<u32, Stream<E>>, waiting: &Waiting<E>) -> bool {
        match self {
            Self::Waiting(ticket) => waiting.waits(ticket),
            Self::Stream(id) => streams.contains_key(&id),
        }
    }
}

/// An exchange with a stream.
#[derive(Debug)]
pub(super) struct Stream<E> {
    pub(super) exchange: E,
    /// Index of the piece of the body that is queued next, and the offset in it.
    piece: usize,
    offset: usize,
    /// Number of bytes of the body that are not queued yet.
    pub(super) unsent: usize,
    /// Send window of this stream, in bytes.
    pub(super) window: i64,
    /// True while the stream is in the connection's ready queue.
    pub(super) ready: bool,
    /// End of its queued bytes, for [`Outgoing::holds`].
    pub(super) queued_to: u64,
    /// Receive window of this stream.
    pub(super) receive_window: ReceiveWindow,
    /// True once the final response header block has arrived. The next header block is trailers.
    pub(super) has_head: bool,
}

impl<E: Exchange> Stream<E> {
    pub(super) fn new(exchange: E, window: i64) -> Self {
        let unsent = exchange.body().iter().map(Bytes::len).sum();
        Self {
            exchange,
            piece: 0,
            offset: 0,
            unsent,
            window,
            ready: false,
            queued_to: 0,
            receive_window: ReceiveWindow::new(STREAM_WINDOW),
            has_head: false,
        }
    }

    /// Queues one DATA frame of `len` bytes of the body.
    pub(super) fn send(&mut self, id: u32, len: usize, out: &mut Outgoing) {
        self.unsent -= len;
        let flags = if self.unsent == 0 { flag::END_STREAM } else { 0 };
        out.data(FrameHead { len, kind: kind::DATA, flags, stream: id });
        let mut left = len;
        while left > 0 {
            let Some(piece) = self.exchange.body().get(self.piece) else { return };
            let n = left.min(piece.len() - self.offset);
            if n > 0 {
                out.shared(piece.slice(self.offset..self.offset + n));
            }
            left -= n;
            self.offset += n;
            if self.offset == piece.len() {
                self.piece += 1;
                self.offset = 0;
            }
        }
        self.queued_to = out.end;
    }

    /// Returns true if the exchange has a body and none of it is queued.
    pub(super) fn is_unsent(&self) -> bool {
        self.unsent > 0 && self.piece == 0 && self.offset == 0
    }

    /// Changes the send window of this stream. Returns true if the stream must be added to the ready queue.
    ///
    /// # Errors
    /// The window is larger than allowed.
    pub(super) fn change_window(&mut self, change: i64) -> Result<bool, ProtocolFault> {
        self.window += change;
        if self.window > MAX_WINDOW {
            return Err(ProtocolFault::flow("overflowed a window"));
        }
        let joins = !self.ready && self.unsent > 0 && self.window > 0;
        self.ready |= joins;
        Ok(joins)
    }
}

/// Receive window of one stream or of the whole connection.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    size: u32,
    pub(super) left: u32,
    /// Number of received bytes for which no WINDOW_UPDATE was sent yet.
    unreturned: u32,
}

impl ReceiveWindow {
    pub(super) fn new(size: u32) -> Self {
        Self { size, left: size, unreturned: 0 }
    }

    /// Counts a DATA frame of `len` bytes. Returns false if it exceeds the window.
    #[must_use]
    pub(super) fn take(&mut self, len: usize) -> bool {
        let Some(left) = self.left.checked_sub(len as u32) else { return false };
        self.left = left;
        self.unreturned += len as u32;
        true
    }

    /// Returns the increment of a WINDOW_UPDATE to send, once half of the window is used.
    pub(super) fn give_back(&mut self) -> Option<u32> {
        if self.unreturned < self.size / 2 {
            return None;
        }
        let back = std::mem::take(&mut self.unreturned);
        self.left += back;
        Some(back)
    }
}

/// FIFO queue of exchanges without a stream. Each can be removed by its ticket.
#[derive(Debug)]
pub(super) struct Waiting<E> {
    /// Exchanges; `None` for a removed one until it is in front.
    queue: VecDeque<Option<E>>,
    /// Ticket of the exchange in front.
    first: u64,
    /// Ticket of the first exchange whose deadline is not tracked yet.
    untracked: u64,
    /// Number of exchanges.
    pub(super) len: usize,
}

impl<E: Exchange> Waiting<E> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), first: 0, untracked: 0, len: 0 }
    }

    /// Adds an exchange and returns its ticket.
    pub(super) fn push(&mut self, exchange: E) -> u64 {
        self.queue.push_back(Some(exchange));
        self.len += 1;
        self.first + self.queue.len() as u64 - 1
    }

    /// Returns ticket and deadline of the next exchange whose deadline is not tracked yet.
    fn next_untracked(&mut self) -> Option<(u64, Instant)> {
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

    /// Removes the exchange that has waited longest and returns it.
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

    /// Removes the exchange with this ticket and returns it, if it still waits.
    pub(super) fn take(&mut self, ticket: u64) -> Option<E> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let exchange = self.queue.get_mut(place)?.take()?;
        self.len -= 1;
        self.tidy();
        Some(exchange)
    }

    fn waits(&self, ticket: u64) -> bool {
        let place = ticket.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.queue.get(place)).is_some_and(Option::is_some)
    }

    /// Drops abandoned exchanges.
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
    use std::time::Duration;

    use super::*;
    use crate::testing::TestExchange;

    #[test]
    fn waiting_exchanges_leave_in_order_and_by_ticket() {
        let mut waiting = Waiting::new();
        let tickets: Vec<u64> = (0..5).map(|tag| waiting.push(TestExchange::of(tag))).collect();
        let tag = |exchange: Option<TestExchange>| exchange.map(|exchange| exchange.tag);
        assert_eq!(tag(waiting.pop()), Some(0));
        assert_eq!(tag(waiting.take(tickets[0])), None, "gone already");
        assert_eq!(tag(waiting.take(tickets[1])), Some(1));
        assert_eq!(tag(waiting.take(tickets[3])), Some(3));
        assert!(waiting.waits(tickets[2]) && !waiting.waits(tickets[3]));
        assert_eq!((tag(waiting.pop()), tag(waiting.pop()), tag(waiting.pop())), (Some(2), Some(4), None));
        let ticket = waiting.push(TestExchange::of(9));
        assert_eq!((waiting.len, tag(waiting.take(ticket)), waiting.len), (1, Some(9), 0));
    }

    #[test]
    fn each_waiting_deadline_is_tracked_once() {
        let mut waiting = Waiting::new();
        let tickets: Vec<u64> = (0..4).map(|tag| waiting.push(TestExchange::of(tag))).collect();
        waiting.pop();
        waiting.take(tickets[2]);
        let next = |waiting: &mut Waiting<TestExchange>| waiting.next_untracked().map(|(ticket, _)| ticket);
        assert_eq!(
            [next(&mut waiting), next(&mut waiting), next(&mut waiting)],
            [Some(tickets[1]), Some(tickets[3]), None]
        );
        let ticket = waiting.push(TestExchange::of(4));
        assert_eq!([next(&mut waiting), next(&mut waiting)], [Some(ticket), None]);
    }

    fn exchange_until(deadline: Instant) -> Stream<TestExchange> {
        let mut exchange = TestExchange::of(0);
        exchange.deadline = deadline;
        Stream::new(exchange, 0)
    }

    #[test]
    fn deadlines_of_settled_exchanges_are_skipped() {
        let began = Instant::now();
        let at = |secs| began + Duration::from_secs(secs);
        let mut exchanges = Exchanges::new();
        for (secs, id) in [(3, 1), (1, 3), (2, 5)] {
            exchanges.begin(id, exchange_until(at(secs)));
        }
        assert_eq!(exchanges.next_deadline(), Some(at(1)));
        exchanges.streams.remove(&3);
        assert_eq!(exchanges.next_late(at(1)), None);
        assert_eq!(exchanges.next_deadline(), Some(at(2)));
        assert_eq!(exchanges.next_late(at(2)), Some(ExchangeKey::Stream(5)));
        assert_eq!(exchanges.next_late(at(3)), Some(ExchangeKey::Stream(1)));
        assert_eq!(exchanges.next_late(at(9)), None);
    }

    #[test]
    fn deadlines_of_settled_exchanges_do_not_pile_up() {
        let mut exchanges = Exchanges::new();
        for id in 0..100_000 {
            exchanges.begin(id, exchange_until(Instant::now()));
            exchanges.streams.remove(&id.wrapping_sub(1));
        }
        assert!(exchanges.deadlines.len() <= MAX_STALE_DEADLINES + 4, "{}", exchanges.deadlines.len());
    }
}

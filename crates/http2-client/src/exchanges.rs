//! Exchanges: exchanges that a connection has not settled yet.

use rustc_hash::FxHashMap;

use super::{
    deadlines::ExchangeKey,
    exchange::{Exchange, ExchangeFailure},
    stream::Stream,
    waiting::Waiting,
};

/// The exchanges that a connection has not settled yet. None is ever lost: should the connection end without having
/// settled them, because its task is dropped or panics, they have failed.
#[derive(Debug)]
pub(super) struct Exchanges<E: Exchange> {
    pub(super) streams: FxHashMap<u32, Stream<E>>,
    pub(super) waiting: Waiting<E>,
}

impl<E: Exchange> Exchanges<E> {
    pub(super) fn new() -> Self {
        Self { streams: FxHashMap::default(), waiting: Waiting::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len() + self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.waiting.is_empty()
    }

    /// Is there still an exchange at this place?
    pub(super) fn holds(&self, place: ExchangeKey) -> bool {
        match place {
            ExchangeKey::Waiting(ticket) => self.waiting.waits(ticket),
            ExchangeKey::Stream(id) => self.streams.contains_key(&id),
        }
    }

    /// None of them will have a response, and this is why.
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

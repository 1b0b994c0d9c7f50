//! Settle: end of a connection's exchanges, with a response, without one, or unprocessed.

use std::time::Instant;

use super::{
    super::{
        deadlines::ExchangeKey,
        exchange::{Exchange, ExchangeFailure},
        frame::{self, code},
        stream::Stream,
    },
    ClientConnection, Unprocessed,
};

/// A server that has begun to answer has processed the request: sending it anew might do twice what it does.
const BEGUN: &str = "it began to answer a call, and then said that it had not looked at it";

impl<E: Exchange> ClientConnection<E> {
    /// The server has ended its side of an exchange.
    pub(super) fn finish(&mut self, id: u32, trailers: Option<E::Fields>) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.answered = true;
        self.starvation.end();
        let queued = self.outgoing.holds(stream.queued_to);
        if queued {
            self.take_back(&[id]);
        }
        if queued || stream.unsent > 0 {
            // It answered without hearing us out: it needs no more.
            self.outgoing.control(|out| frame::put_reset(out, id, code::NO_ERROR));
        }
        stream.exchange.complete(trailers);
    }

    /// An exchange has failed because of what the server sent.
    pub(super) fn reject(&mut self, id: u32, code: u32, failure: ExchangeFailure<'_, E::Error>) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.reset_queued(&[(id, stream.queued_to)], code);
        stream.exchange.fail(failure);
    }

    /// The server has reset a stream.
    pub(super) fn reset(&mut self, id: u32, code: u32) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        if self.outgoing.holds(stream.queued_to) {
            self.take_back(&[id]);
        }
        match code {
            code::REFUSED_STREAM if stream.has_head => stream.exchange.fail(begun()),
            code::REFUSED_STREAM => self.unprocessed.push(Unprocessed::Refused(stream.exchange)),
            // The answer is whole when the server says it needs no more of the question; without one it is none.
            code::NO_ERROR => stream.exchange.fail(ExchangeFailure::Malformed("it ended the call without an answer")),
            other => stream.exchange.fail(ExchangeFailure::Reset(frame::code_name(other))),
        }
    }

    /// Exchanges beyond the last stream that the server will look at are unprocessed.
    pub(super) fn leave_beyond(&mut self, last: u32) {
        let beyond = self.exchanges.streams.extract_if(|id, _| *id > last).collect::<Vec<_>>();
        let ids = beyond.iter().filter(|(_, stream)| self.outgoing.holds(stream.queued_to)).map(|(id, _)| *id);
        let ids: Vec<u32> = ids.collect();
        for (_, stream) in beyond {
            if stream.has_head {
                stream.exchange.fail(begun());
            } else {
                self.unprocessed.push(Unprocessed::BeyondGoAway(stream.exchange));
            }
        }
        self.take_back(&ids);
    }

    /// Lets go of the exchanges for which nobody waits any more.
    pub fn cancel_abandoned(&mut self) {
        self.exchanges.waiting.drop_abandoned();
        let over = self.exchanges.streams.extract_if(|_, stream| stream.exchange.is_abandoned()).collect();
        self.cancel(over);
    }

    /// Lets go of the exchanges whose time is over, and of a connection that was starved for too long.
    pub fn expire(&mut self, now: Instant) {
        if self.is_shut() {
            self.starvation.check(now);
        }
        let mut late = Vec::new();
        loop {
            let exchanges = &self.exchanges;
            match self.deadlines.next_late(now, |place| exchanges.holds(place)) {
                Some(ExchangeKey::Waiting(ticket)) => drop(self.exchanges.waiting.take(ticket)),
                Some(ExchangeKey::Stream(id)) => {
                    late.extend(self.exchanges.streams.remove(&id).map(|stream| (id, stream)))
                }
                None => break,
            }
        }
        self.cancel(late);
    }

    fn cancel(&mut self, over: Vec<(u32, Stream<E>)>) {
        let unsent =
            over.iter().filter(|(_, stream)| stream.unsent > 0 && stream.unsent == stream.exchange.body().len());
        self.starvation.unsent_ended(unsent.count());
        let ends: Vec<_> = over.iter().map(|(id, stream)| (*id, stream.queued_to)).collect();
        self.reset_queued(&ends, code::CANCEL);
    }

    /// Takes back what is queued of streams that are over (each with the place up to which something may be), and
    /// resets those of which the server has heard.
    fn reset_queued(&mut self, over: &[(u32, u64)], code: u32) {
        let queued = over.iter().filter(|(_, queued_to)| self.outgoing.holds(*queued_to)).map(|(id, _)| *id);
        let unheard = self.take_back(&queued.collect::<Vec<u32>>());
        for (id, _) in over {
            if unheard.binary_search(id).is_err() {
                self.outgoing.control(|out| frame::put_reset(out, *id, code));
            }
        }
    }

    /// Takes back what is queued of these streams. Returns those of which the server has heard nothing, in order.
    fn take_back(&mut self, ids: &[u32]) -> Vec<u32> {
        if ids.is_empty() {
            return Vec::new();
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let taken = self.outgoing.take_back(|id| ids.binary_search(&id).is_ok());
        self.window += taken.data as i64;
        if taken.copied > 0 {
            // Only the frame in front is ever begun: what was copied of another one before has left by now.
            self.copied = taken.copied;
        }
        let mut unheard = taken.unheard.to_vec();
        unheard.sort_unstable();
        unheard
    }
}

fn begun<R>() -> ExchangeFailure<'static, R> {
    ExchangeFailure::Malformed(BEGUN)
}

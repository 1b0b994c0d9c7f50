//! Send: frames of a connection on their way out, and when an exchange begins.

use std::time::Instant;

use super::{
    super::{
        deadlines::ExchangeKey,
        exchange::{Exchange, RequestHead},
        floods,
        frame::{self, HEAD, MAX_ID},
        stream::Stream,
    },
    ClientConnection, LARGEST_FRAME,
};

impl<E: Exchange> ClientConnection<E> {
    /// Begins the exchanges that wait, as far as the server and the batch allow.
    pub(super) fn begin_waiting(&mut self) {
        if self.exchanges.waiting.is_empty() || !self.established || self.is_closing() {
            return;
        }
        let now = (self.config.clock)();
        if self.is_shut() {
            self.starvation.check(now);
            if self.is_starved() {
                return;
            }
        }
        while self.exchanges.streams.len() < self.peer_max_streams
            && self.next_id <= MAX_ID
            && self.outgoing.queued() < self.config.batch
        {
            let Some(exchange) = self.exchanges.waiting.pop() else { break };
            if exchange.deadline() > now && !exchange.is_abandoned() {
                self.begin(exchange, now);
            }
        }
    }

    fn begin(&mut self, exchange: E, now: Instant) {
        let id = self.next_id;
        self.next_id += 2;
        let deadline = exchange.deadline();
        let left = deadline.saturating_duration_since(now);
        let writer = &mut self.head;
        self.outgoing.block(id, |out| {
            let at = out.len();
            out.extend_from_slice(&[0; HEAD]);
            let relied_on = writer.write(&exchange, left, out);
            frame::finish_block(out, at, id);
            !relied_on
        });
        self.deadlines.push(deadline, ExchangeKey::Stream(id));
        let exchanges = &self.exchanges;
        self.deadlines.tidy(exchanges.len(), |place| exchanges.holds(place) || place == ExchangeKey::Stream(id));
        if self.ready.len() > 64 + 2 * exchanges.len() {
            // Nothing leaves it while the server gives no room.
            self.ready.retain(|id| exchanges.streams.contains_key(id));
        }
        self.floods.earn(floods::REQUEST);
        let mut stream = Stream::new(exchange, self.peer_window);
        stream.queued_to = self.outgoing.end();
        stream.ready = true;
        self.exchanges.streams.insert(id, stream);
        self.ready.push_back(id);
    }

    /// Queues frames of the ready streams in turn, until a batch is full or the windows are.
    pub(super) fn fill(&mut self) {
        let largest = self.peer_max_frame.min(LARGEST_FRAME);
        let mut waits = !self.exchanges.waiting.is_empty() && self.peer_max_streams == 0;
        while self.outgoing.queued() < self.config.batch && self.window > 0 {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(stream) = self.exchanges.streams.get_mut(&id) else { continue };
            let len = stream.unsent.min(largest).min(self.window.min(stream.window).max(0) as usize);
            // Of an empty body only the end is sent.
            if len > 0 || stream.unsent == 0 {
                stream.send(id, len, &mut self.outgoing);
                stream.window -= len as i64;
                self.window -= len as i64;
                self.floods.earn_bytes(len);
                self.starvation.end();
            }
            // A stream whose window is shut leaves the queue; a WINDOW_UPDATE brings it back.
            stream.ready = stream.unsent > 0 && stream.window > 0;
            if stream.ready {
                self.ready.push_back(id);
            }
            waits |= !stream.ready && stream.unsent > 0;
        }
        if self.window <= 0 {
            while self.ready.pop_front_if(|id| !self.exchanges.streams.contains_key(id)).is_some() {}
            waits |= !self.ready.is_empty();
        }
        if waits && self.is_shut() {
            self.starvation.begin(self.config.clock);
        }
    }
}

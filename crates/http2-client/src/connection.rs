//! The client's side of an HTTP/2 connection to one server.
//!
//! ```text
//! requests ──> waiting ──> streams ──> ready (round robin) ──> outgoing ──> one vectored write
//!                             ^                                                 │
//! responses <─────────────────┴──────────── incoming <── socket <───────────────┘
//! ```
//!
//! The ready queue contains the streams with unsent data and an open window. Each turn queues one frame of the stream
//! in front, so a small request does not wait for all of a large one. Queued bytes, up to [`Config::batch`], are sent
//! in one system call. While the socket is not writable, the owner must not call [`ClientConnection::queue_frames`]:
//! then no exchange begins, and exchanges end at their deadlines.
//!
//! `receive` processes the server's frames.

mod receive;

use std::{collections::VecDeque, io::IoSlice, time::Instant};

use super::{
    exchange::{Exchange, ExchangeFailure, RequestHead},
    exchanges::{ExchangeKey, Exchanges, ReceiveWindow, STREAM_WINDOW, Stream},
    frame::{
        self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, FrameReader, GoAway, HEAD, MAX_ID, ProtocolFault, code, kind, setting,
    },
    head::HeaderBlock,
    limits::{CREDIT_PER_REQUEST, FrameCredit, Starvation},
    outgoing::Outgoing,
};

/// Receive window of the connection, in bytes.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Maximum payload of a frame that we send, even if the server accepts larger ones. Larger frames save nothing and
/// delay the small requests behind them.
const MAX_FRAME: usize = 256 << 10;

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of bytes gathered for one write.
    pub batch: usize,
    /// Function that returns the current time.
    pub clock: fn() -> Instant,
}

/// Exchange that the server has certainly not processed, so that its request may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub enum UnprocessedExchange<E> {
    /// The server reset its stream with REFUSED_STREAM.
    Refused(E),
    /// Its stream is beyond the last one that the server processes according to its GOAWAY.
    BeyondGoAway(E),
}

/// Fault of a server that calls a request unprocessed after it began to respond. The request is not sent again, because
/// the server has processed it.
const PROCESSED: &str = "it began to answer a call, and then said that it had not looked at it";

/// One HTTP/2 connection, without its socket.
#[derive(Debug)]
pub struct ClientConnection<E: Exchange> {
    config: Config,
    incoming: FrameReader,
    outgoing: Outgoing,
    head: E::Head,
    exchanges: Exchanges<E>,
    /// Streams with unsent data and an open window, in the order of their turns.
    ready: VecDeque<u32>,
    unprocessed: Vec<UnprocessedExchange<E>>,
    next_id: u32,
    /// Send window of the connection, in bytes.
    window: i64,
    /// Initial send window of each stream, in bytes.
    peer_window: i64,
    peer_max_frame: usize,
    peer_max_streams: usize,
    /// True once the server's SETTINGS have arrived.
    established: bool,
    /// True once the server has completed a response.
    answered: bool,
    /// Receive window of the connection.
    receive_window: ReceiveWindow,
    /// Header block whose last frame has not arrived yet.
    block: Option<HeaderBlock>,
    goaway: Option<GoAway>,
    starvation: Starvation,
    credit: FrameCredit,
    /// Number of bytes that were copied: the rest of a frame whose exchange has ended.
    copied: usize,
    /// Buffer for decoding header fields.
    scratch: Vec<u8>,
}

impl<E: Exchange> ClientConnection<E> {
    /// Creates a connection with the preface and SETTINGS queued.
    pub fn new(config: Config, head: E::Head) -> Self {
        let mut outgoing = Outgoing::new();
        outgoing.control(|out| {
            out.extend_from_slice(frame::PREFACE);
            let settings = [
                (setting::HEADER_TABLE_SIZE, 0),
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            ];
            let payload: Vec<u8> = settings
                .iter()
                .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
                .collect();
            frame::put(out, kind::SETTINGS, 0, 0, &payload);
            frame::put_window_update(out, 0, CONNECTION_WINDOW - DEFAULT_WINDOW as u32);
        });
        Self {
            config,
            incoming: FrameReader::new(),
            outgoing,
            head,
            exchanges: Exchanges::new(),
            ready: VecDeque::new(),
            unprocessed: Vec::new(),
            next_id: 1,
            window: DEFAULT_WINDOW,
            peer_window: DEFAULT_WINDOW,
            peer_max_frame: DEFAULT_MAX_FRAME,
            peer_max_streams: usize::MAX,
            established: false,
            answered: false,
            receive_window: ReceiveWindow::new(CONNECTION_WINDOW),
            block: None,
            goaway: None,
            starvation: Starvation::default(),
            credit: FrameCredit::new((config.clock)()),
            copied: 0,
            scratch: Vec::new(),
        }
    }

    /// Begins an exchange as soon as the server allows it. An exchange whose deadline passes is dropped without being
    /// settled, because its owner knows the deadline too.
    pub fn submit(&mut self, exchange: E) {
        self.exchanges.waiting.push(exchange);
    }

    /// Returns the buffer for the next read, which is never empty.
    pub fn read_buffer(&mut self) -> &mut [u8] {
        self.incoming.unfilled_mut()
    }

    /// Processes the first `len` bytes of [`ClientConnection::read_buffer`].
    ///
    /// # Errors
    /// The server violated the protocol. The connection is unusable.
    pub fn receive(&mut self, len: usize) -> Result<(), ProtocolFault> {
        self.incoming.advance(len);
        while let Some((head, place)) = self.incoming.next_frame()? {
            self.frame(head, place)?;
        }
        Ok(())
    }

    /// Begins waiting exchanges and queues frames until a batch is full. Must not be called while the socket is not
    /// writable.
    pub fn queue_frames(&mut self) {
        self.begin_waiting();
        self.fill();
    }

    /// Passes queued bytes, as many as fit one system call, to `write`, which returns its result and the number of
    /// bytes written. `None` if nothing is queued.
    pub fn offer<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> (T, usize)) -> Option<T> {
        self.outgoing.offer(write)
    }

    /// Returns the number of queued bytes.
    pub fn queued(&self) -> usize {
        self.outgoing.queued
    }

    /// Returns the number of queued bytes that were copied: the rest of a partly sent frame whose exchange has ended.
    pub fn copied(&mut self) -> usize {
        if self.outgoing.queued == 0 {
            self.copied = 0;
        }
        self.copied
    }

    /// Returns the time by which to call [`ClientConnection::expire`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let starved = self.starvation.deadline().filter(|_| self.is_shut() && !self.is_idle());
        self.exchanges.next_deadline().into_iter().chain(starved).min()
    }

    /// Includes the exchanges that have not begun in [`ClientConnection::next_deadline`]. Call it after
    /// [`ClientConnection::queue_frames`], where most exchanges begin.
    pub fn track_waiting(&mut self) {
        self.exchanges.track_waiting();
    }

    /// Returns true once the server's SETTINGS have arrived.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Returns true once the server has completed a response.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Returns true if no new requests can begin on this connection.
    pub fn is_closing(&self) -> bool {
        self.goaway.is_some() || self.next_id > MAX_ID || self.is_starved()
    }

    /// Returns true if the server has given no window for request bodies for too long.
    pub fn is_starved(&self) -> bool {
        self.starvation.is_starved
    }

    /// Returns true if the server gives no window or stream to any new request.
    fn is_shut(&self) -> bool {
        self.window <= 0 || self.peer_window <= 0 || self.peer_max_streams == 0
    }

    /// Returns the server's last GOAWAY.
    pub fn goaway(&self) -> Option<GoAway> {
        self.goaway
    }

    /// Returns true if every exchange is settled.
    pub fn is_idle(&self) -> bool {
        self.exchanges.len() == 0
    }

    /// Removes and returns the exchanges that the server has certainly not processed.
    pub fn take_unprocessed(&mut self) -> Vec<UnprocessedExchange<E>> {
        std::mem::take(&mut self.unprocessed)
    }

    /// Removes and returns the exchanges that have not begun.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = E> {
        std::iter::from_fn(|| self.exchanges.waiting.pop())
    }

    /// Fails all unsettled exchanges for the reason `why`.
    pub fn fail(&mut self, why: &str) {
        self.exchanges.fail(why);
    }

    /// Queues GOAWAY with the fault's code. Does not fail the exchanges.
    pub fn send_goaway(&mut self, fault: ProtocolFault) {
        self.outgoing.control(|out| frame::put_goaway(out, fault.code));
    }

    /// Begins waiting exchanges, as many as the server and the batch allow.
    fn begin_waiting(&mut self) {
        if self.exchanges.waiting.len == 0 || !self.established || self.is_closing() {
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
            && self.outgoing.queued < self.config.batch
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
        let left = exchange.deadline().saturating_duration_since(now);
        let writer = &mut self.head;
        self.outgoing.block(id, |out| {
            let at = out.len();
            out.extend_from_slice(&[0; HEAD]);
            let relied_on = writer.write(&exchange, left, out);
            frame::finish_block(out, at, id);
            !relied_on
        });
        if self.ready.len() > 64 + 2 * self.exchanges.len() {
            // `fill` removes nothing while the server gives no window.
            self.ready.retain(|id| self.exchanges.streams.contains_key(id));
        }
        self.credit.earn(CREDIT_PER_REQUEST);
        let mut stream = Stream::new(exchange, self.peer_window);
        stream.queued_to = self.outgoing.end;
        stream.ready = true;
        self.exchanges.begin(id, stream);
        self.ready.push_back(id);
    }

    /// Queues frames of the ready streams in turn, until a batch is full or the windows are closed.
    fn fill(&mut self) {
        let largest = self.peer_max_frame.min(MAX_FRAME);
        let mut waits = self.exchanges.waiting.len > 0 && self.peer_max_streams == 0;
        while self.outgoing.queued < self.config.batch && self.window > 0 {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(stream) = self.exchanges.streams.get_mut(&id) else { continue };
            let len = stream.unsent.min(largest).min(self.window.min(stream.window).max(0) as usize);
            // An empty body is one empty frame that ends the stream.
            if len > 0 || stream.unsent == 0 {
                stream.send(id, len, &mut self.outgoing);
                stream.window -= len as i64;
                self.window -= len as i64;
                self.credit.earn_bytes(len);
                self.starvation.end();
            }
            // A stream with a closed window leaves the queue until a WINDOW_UPDATE.
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

    /// Completes an exchange whose response has ended.
    fn finish(&mut self, id: u32, trailers: Option<E::Fields>) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.answered = true;
        self.starvation.end();
        let queued = self.outgoing.holds(stream.queued_to);
        self.withdraw([(id, stream.queued_to)]);
        if queued || stream.unsent > 0 {
            // The server responded before the end of the request and does not need the rest.
            self.outgoing.control(|out| frame::put_reset(out, id, code::NO_ERROR));
        }
        stream.exchange.complete(trailers);
    }

    /// Fails an exchange because of what the server sent, and resets its stream.
    fn reject(&mut self, id: u32, code: u32, failure: ExchangeFailure<'_, E::Error>) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.reset_queued(&[(id, stream.queued_to)], code);
        stream.exchange.fail(failure);
    }

    /// Ends an exchange whose stream the server has reset.
    fn reset(&mut self, id: u32, code: u32) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.withdraw([(id, stream.queued_to)]);
        match code {
            code::REFUSED_STREAM if stream.has_head => stream.exchange.fail(ExchangeFailure::Malformed(PROCESSED)),
            code::REFUSED_STREAM => self.unprocessed.push(UnprocessedExchange::Refused(stream.exchange)),
            // NO_ERROR is allowed only after the whole response, which this server has not sent.
            code::NO_ERROR => stream.exchange.fail(ExchangeFailure::Malformed("it ended the call without an answer")),
            other => stream.exchange.fail(ExchangeFailure::Reset(frame::code_name(other))),
        }
    }

    /// Ends the exchanges beyond the last stream that the server processes.
    fn end_beyond(&mut self, last: u32) {
        let beyond = self.exchanges.streams.extract_if(|id, _| *id > last).collect::<Vec<_>>();
        self.withdraw(beyond.iter().map(|(id, stream)| (*id, stream.queued_to)));
        for (_, stream) in beyond {
            if stream.has_head {
                stream.exchange.fail(ExchangeFailure::Malformed(PROCESSED));
            } else {
                self.unprocessed.push(UnprocessedExchange::BeyondGoAway(stream.exchange));
            }
        }
    }

    /// Drops abandoned exchanges and resets their streams.
    pub fn cancel_abandoned(&mut self) {
        self.exchanges.waiting.drop_abandoned();
        let over = self.exchanges.streams.extract_if(|_, stream| stream.exchange.is_abandoned()).collect();
        self.cancel(over);
    }

    /// Drops the exchanges whose deadline has passed. Marks the connection as starved if it has had no window for too
    /// long.
    pub fn expire(&mut self, now: Instant) {
        if self.is_shut() {
            self.starvation.check(now);
        }
        let mut late = Vec::new();
        loop {
            match self.exchanges.next_late(now) {
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
        self.starvation.unsent_ended(over.iter().filter(|(_, stream)| stream.is_unsent()).count());
        let ends: Vec<_> = over.iter().map(|(id, stream)| (*id, stream.queued_to)).collect();
        self.reset_queued(&ends, code::CANCEL);
    }

    /// Withdraws queued frames of ended streams (each with the end of its queued bytes). Resets those streams that the
    /// server knows.
    fn reset_queued(&mut self, over: &[(u32, u64)], code: u32) {
        let unheard = self.withdraw(over.iter().copied());
        for (id, _) in over {
            if unheard.binary_search(id).is_err() {
                self.outgoing.control(|out| frame::put_reset(out, *id, code));
            }
        }
    }

    /// Withdraws queued frames of ended streams (each with the end of its queued bytes). Returns the streams that the
    /// server does not know, sorted.
    fn withdraw(&mut self, over: impl IntoIterator<Item = (u32, u64)>) -> Vec<u32> {
        let queued = over.into_iter().filter(|(_, queued_to)| self.outgoing.holds(*queued_to));
        let mut ids: Vec<u32> = queued.map(|(id, _)| id).collect();
        if ids.is_empty() {
            return ids;
        }
        ids.sort_unstable();
        let taken = self.outgoing.withdraw(|id| ids.binary_search(&id).is_ok());
        self.window += taken.data as i64;
        if taken.copied > 0 {
            // Only the frame in front can be partly sent, so all bytes copied earlier have been sent.
            self.copied = taken.copied;
        }
        let mut unheard = taken.unheard.to_vec();
        unheard.sort_unstable();
        unheard
    }
}

#[cfg(test)]
mod tests;

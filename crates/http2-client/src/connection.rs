//! Client connection: the client's side of a connection to one server.
//!
//! ```text
//! requests ──> waiting ──> streams ──> ready (round robin) ──> outgoing ──> one vectored write
//!                             ^                                                 │
//! responses <─────────────────┴──────────── incoming <── socket <───────────────┘
//! ```
//!
//! Streams that have something to send and a window for it are in the ready queue. Each turn queues one frame of the
//! stream in front, so a small request does not wait behind a whole large one. Everything queued, up to
//! [`Config::batch`], leaves in one system call. While the socket takes nothing, nothing more should be queued
//! ([`ClientConnection::queue_frames`]): then no exchange begins, and exchanges end at their deadlines.
//!
//! `receive` processes the server's frames.

mod receive;

use std::{collections::VecDeque, io::IoSlice, time::Instant};

use super::{
    exchange::{Exchange, ExchangeFailure, RequestHead},
    exchanges::{ExchangeKey, Exchanges, ReceiveWindow, STREAM_WINDOW, Stream},
    frame::{
        self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, GoAway, HEAD, Incoming, MAX_ID, ProtocolFault, code, kind, setting,
    },
    head::HeaderBlock,
    limits::{CREDIT_PER_REQUEST, FrameCredit, Starvation},
    outgoing::Outgoing,
};

/// Bytes that the server may send on all streams together before we give more window.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Maximum payload of a frame that we send, whatever the server would take: a larger frame saves nothing and makes the
/// small requests behind it wait.
const MAX_FRAME: usize = 256 << 10;

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes gathered for one write.
    pub batch: usize,
    /// The time now.
    pub clock: fn() -> Instant,
}

/// Exchange that the server has certainly not processed: its request may be sent again.
#[derive(Debug, PartialEq, Eq)]
pub enum UnprocessedExchange<E> {
    /// The server refused it with RST_STREAM.
    Refused(E),
    /// It is beyond the last stream that the server processes according to its GOAWAY.
    BeyondGoAway(E),
}

/// A server that has begun to respond has processed the request: to send it again might do twice what it does.
const PROCESSED: &str = "it began to answer a call, and then said that it had not looked at it";

/// One HTTP/2 connection, without its socket.
#[derive(Debug)]
pub struct ClientConnection<E: Exchange> {
    config: Config,
    incoming: Incoming,
    outgoing: Outgoing,
    head: E::Head,
    exchanges: Exchanges<E>,
    /// Streams that have something to send and a window for it, in the order of their turns.
    ready: VecDeque<u32>,
    unprocessed: Vec<UnprocessedExchange<E>>,
    next_id: u32,
    /// Bytes that the server takes on the connection.
    window: i64,
    /// Bytes that it takes at first on each stream.
    peer_window: i64,
    peer_max_frame: usize,
    peer_max_streams: usize,
    /// True once the server's SETTINGS have arrived: it speaks HTTP/2.
    established: bool,
    /// True once a response was complete.
    answered: bool,
    /// Bytes that the server may still send on all streams together.
    receive_window: ReceiveWindow,
    /// Header block whose last frame has not arrived yet.
    block: Option<HeaderBlock>,
    goaway: Option<GoAway>,
    starvation: Starvation,
    credit: FrameCredit,
    /// Bytes that were copied: the rest of a frame whose exchange is over.
    copied: usize,
    /// Scratch space for decoded header fields.
    scratch: Vec<u8>,
}

impl<E: Exchange> ClientConnection<E> {
    /// A new connection with preface and SETTINGS queued.
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
            incoming: Incoming::new(),
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

    /// Lets an exchange begin as soon as the server allows it. An exchange whose deadline passes is dropped without
    /// being settled: its owner knows the deadline too.
    pub fn submit(&mut self, exchange: E) {
        self.exchanges.waiting.push(exchange);
    }

    /// Buffer for the next read, never empty.
    pub fn read_buffer(&mut self) -> &mut [u8] {
        self.incoming.room()
    }

    /// Processes the first `len` bytes of [`ClientConnection::read_buffer`].
    ///
    /// # Errors
    /// The server broke the protocol. The connection is of no use any more.
    pub fn receive(&mut self, len: usize) -> Result<(), ProtocolFault> {
        self.incoming.filled(len);
        while let Some((head, place)) = self.incoming.next_frame()? {
            self.frame(head, place)?;
        }
        Ok(())
    }

    /// Begins waiting exchanges and queues frames until a batch is full. Must not be called while the socket takes
    /// nothing.
    pub fn queue_frames(&mut self) {
        self.begin_waiting();
        self.fill();
    }

    /// Passes queued bytes, as many as fit one system call, to `write`, which returns its result and how many of them
    /// were written. `None` if nothing is queued.
    pub fn offer<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> (T, usize)) -> Option<T> {
        self.outgoing.offer(write)
    }

    /// Number of queued bytes.
    pub fn queued(&self) -> usize {
        self.outgoing.queued()
    }

    /// Number of queued bytes that were copied because their exchange is over: the rest of a frame that was begun.
    pub fn copied(&mut self) -> usize {
        if self.outgoing.queued() == 0 {
            self.copied = 0;
        }
        self.copied
    }

    /// Time by which to call [`ClientConnection::expire`].
    pub fn next_deadline(&self) -> Option<Instant> {
        let starved = self.starvation.deadline().filter(|_| self.is_shut() && !self.is_idle());
        self.exchanges.next_deadline().into_iter().chain(starved).min()
    }

    /// Includes exchanges that have not begun in [`ClientConnection::next_deadline`]. To be called after
    /// [`ClientConnection::queue_frames`], as most exchanges begin there.
    pub fn track_waiting(&mut self) {
        self.exchanges.track_waiting();
    }

    /// True once the server's SETTINGS have arrived.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// True once the server has completed a response.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// True if no new requests can begin on this connection.
    pub fn is_closing(&self) -> bool {
        self.goaway.is_some() || self.next_id > MAX_ID || self.is_starved()
    }

    /// True if the server has given no room for the bodies of requests for too long.
    pub fn is_starved(&self) -> bool {
        self.starvation.is_starved()
    }

    /// True if the server gives no room to any new request.
    fn is_shut(&self) -> bool {
        self.window <= 0 || self.peer_window <= 0 || self.peer_max_streams == 0
    }

    /// The server's last GOAWAY.
    pub fn goaway(&self) -> Option<GoAway> {
        self.goaway
    }

    /// True if every exchange is settled.
    pub fn is_idle(&self) -> bool {
        self.exchanges.len() == 0
    }

    /// Takes the exchanges that the server has certainly not processed.
    pub fn take_unprocessed(&mut self) -> Vec<UnprocessedExchange<E>> {
        std::mem::take(&mut self.unprocessed)
    }

    /// Takes the exchanges that have not begun.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = E> {
        std::iter::from_fn(|| self.exchanges.waiting.pop())
    }

    /// Fails all exchanges that are left, for that reason.
    pub fn fail(&mut self, why: &str) {
        self.exchanges.fail(why);
    }

    /// Queues GOAWAY with the fault's code. Exchanges are not failed by this.
    pub fn send_goaway(&mut self, fault: ProtocolFault) {
        self.outgoing.control(|out| frame::put_goaway(out, fault.code));
    }

    /// Begins waiting exchanges, as far as the server and the batch allow.
    fn begin_waiting(&mut self) {
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
            // Nothing leaves it while the server gives no room.
            self.ready.retain(|id| self.exchanges.streams.contains_key(id));
        }
        self.credit.earn(CREDIT_PER_REQUEST);
        let mut stream = Stream::new(exchange, self.peer_window);
        stream.queued_to = self.outgoing.end();
        stream.ready = true;
        self.exchanges.begin(id, stream);
        self.ready.push_back(id);
    }

    /// Queues frames of the ready streams in turn, until a batch is full or the windows are.
    fn fill(&mut self) {
        let largest = self.peer_max_frame.min(MAX_FRAME);
        let mut waits = !self.exchanges.waiting.is_empty() && self.peer_max_streams == 0;
        while self.outgoing.queued() < self.config.batch && self.window > 0 {
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

    /// Completes an exchange: the server has ended its side of it.
    fn finish(&mut self, id: u32, trailers: Option<E::Fields>) {
        let Some(stream) = self.exchanges.streams.remove(&id) else { return };
        self.answered = true;
        self.starvation.end();
        let queued = self.outgoing.holds(stream.queued_to);
        if queued {
            self.withdraw(&[id]);
        }
        if queued || stream.unsent > 0 {
            // It answered before the end of the request, and does not need the rest.
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
        if self.outgoing.holds(stream.queued_to) {
            self.withdraw(&[id]);
        }
        match code {
            code::REFUSED_STREAM if stream.has_head => stream.exchange.fail(ExchangeFailure::Malformed(PROCESSED)),
            code::REFUSED_STREAM => self.unprocessed.push(UnprocessedExchange::Refused(stream.exchange)),
            // NO_ERROR is for a server that has sent its whole response, which this one has not.
            code::NO_ERROR => stream.exchange.fail(ExchangeFailure::Malformed("it ended the call without an answer")),
            other => stream.exchange.fail(ExchangeFailure::Reset(frame::code_name(other))),
        }
    }

    /// Ends the exchanges beyond the last stream that the server processes.
    fn leave_beyond(&mut self, last: u32) {
        let beyond = self.exchanges.streams.extract_if(|id, _| *id > last).collect::<Vec<_>>();
        let ids = beyond.iter().filter(|(_, stream)| self.outgoing.holds(stream.queued_to)).map(|(id, _)| *id);
        let ids: Vec<u32> = ids.collect();
        for (_, stream) in beyond {
            if stream.has_head {
                stream.exchange.fail(ExchangeFailure::Malformed(PROCESSED));
            } else {
                self.unprocessed.push(UnprocessedExchange::BeyondGoAway(stream.exchange));
            }
        }
        self.withdraw(&ids);
    }

    /// Drops abandoned exchanges and resets their streams.
    pub fn cancel_abandoned(&mut self) {
        self.exchanges.waiting.drop_abandoned();
        let over = self.exchanges.streams.extract_if(|_, stream| stream.exchange.is_abandoned()).collect();
        self.cancel(over);
    }

    /// Drops the exchanges whose deadline has passed, and marks a connection as starved that has been so for too long.
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

    /// Withdraws queued frames of streams that are over (each with the end of its queued bytes), and resets those
    /// streams of which the server knows.
    fn reset_queued(&mut self, over: &[(u32, u64)], code: u32) {
        let queued = over.iter().filter(|(_, queued_to)| self.outgoing.holds(*queued_to)).map(|(id, _)| *id);
        let unheard = self.withdraw(&queued.collect::<Vec<u32>>());
        for (id, _) in over {
            if unheard.binary_search(id).is_err() {
                self.outgoing.control(|out| frame::put_reset(out, *id, code));
            }
        }
    }

    /// Withdraws queued frames of these streams. Returns, sorted, the streams of which the server knows nothing.
    fn withdraw(&mut self, ids: &[u32]) -> Vec<u32> {
        if ids.is_empty() {
            return Vec::new();
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let taken = self.outgoing.withdraw(|id| ids.binary_search(&id).is_ok());
        self.window += taken.data as i64;
        if taken.copied > 0 {
            // Only the frame in front can be begun: bytes copied earlier have left by now.
            self.copied = taken.copied;
        }
        let mut unheard = taken.unheard.to_vec();
        unheard.sort_unstable();
        unheard
    }
}

#[cfg(test)]
mod tests;

//! Client connection: the client's side of a connection to one server.
//!
//! ```text
//! requests ──> waiting ──> streams ──> ready (round robin) ──> outgoing ──> one vectored write
//!                             ^                                                 │
//! responses <─────────────────┴──────────── incoming <── socket <───────────────┘
//! ```
//!
//! Streams that have something to send and a window to send it in stand in the ready queue; each turn gives one frame
//! to the stream in front, so a small request does not wait behind a whole large one. Everything that is ready, up to
//! [`Config::batch`], then leaves in one system call. While the socket takes nothing, nothing more should be queued
//! ([`ClientConnection::queue_frames`]), and then no exchange begins: what a server does not read waits, and ends at
//! its deadline.

mod receive;
mod send;
mod settle;

use std::{collections::VecDeque, io::IoSlice, time::Instant};

use super::{
    deadlines::{Deadlines, ExchangeKey},
    exchange::Exchange,
    exchanges::Exchanges,
    fault::ProtocolFault,
    floods::Floods,
    frame::{self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, MAX_ID, kind, setting},
    goaway::GoAway,
    incoming::Incoming,
    outgoing::Outgoing,
    starvation::Starvation,
    stream::STREAM_WINDOW,
};

/// Bytes that the server may send on all streams together before we give more window.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Frames are cut no larger, whatever the server would take: beyond this a larger frame saves nothing and makes the
/// small requests behind it wait.
const LARGEST_FRAME: usize = 256 << 10;

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes gathered for one write.
    pub batch: usize,
    /// The time now.
    pub clock: fn() -> Instant,
}

/// Exchange that the server surely has not looked at: it may be asked anew.
#[derive(Debug, PartialEq, Eq)]
pub enum Unprocessed<E> {
    /// It was refused, by RST_STREAM.
    Refused(E),
    /// It is beyond the last stream that the server will look at, as it says in GOAWAY.
    BeyondGoAway(E),
}

/// One HTTP/2 connection, without its socket.
#[derive(Debug)]
pub struct ClientConnection<E: Exchange> {
    config: Config,
    incoming: Incoming,
    outgoing: Outgoing,
    head: E::Head,
    exchanges: Exchanges<E>,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    unprocessed: Vec<Unprocessed<E>>,
    next_id: u32,
    /// Bytes that the server will take on the connection, and at first on each stream.
    window: i64,
    peer_window: i64,
    peer_max_frame: usize,
    peer_max_streams: usize,
    /// The server's SETTINGS have arrived: it speaks HTTP/2.
    established: bool,
    /// A response was whole.
    answered: bool,
    /// Bytes received whose window was not yet given back, and how many more the server may send.
    unreturned: u32,
    granted: u32,
    /// A header block under way.
    block: Option<receive::Block>,
    goaway: Option<GoAway>,
    starvation: Starvation,
    floods: Floods,
    /// Bytes that were copied, of frames begun whose exchange was over.
    copied: usize,
    /// Decoded fields of a header block.
    scratch: Vec<u8>,
}

impl<E: Exchange> ClientConnection<E> {
    /// A connection that begins: preface and SETTINGS are queued.
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
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            unprocessed: Vec::new(),
            next_id: 1,
            window: DEFAULT_WINDOW,
            peer_window: DEFAULT_WINDOW,
            peer_max_frame: DEFAULT_MAX_FRAME,
            peer_max_streams: usize::MAX,
            established: false,
            answered: false,
            unreturned: 0,
            granted: CONNECTION_WINDOW,
            block: None,
            goaway: None,
            starvation: Starvation::default(),
            floods: Floods::new((config.clock)()),
            copied: 0,
            scratch: Vec::new(),
        }
    }

    /// Lets an exchange begin as soon as the server allows. One that runs out of time is not settled but dropped:
    /// whoever asked has a clock too.
    pub fn submit(&mut self, exchange: E) {
        self.exchanges.waiting.push(exchange);
    }

    /// Room for the bytes that are read next, never empty.
    pub fn room(&mut self) -> &mut [u8] {
        self.incoming.room()
    }

    /// Takes in the bytes that were read into the room.
    ///
    /// # Errors
    /// The server breaks the protocol: the connection is beyond use.
    pub fn receive(&mut self, len: usize) -> Result<(), ProtocolFault> {
        self.incoming.filled(len);
        self.frames()
    }

    /// Lets exchanges begin that wait, and queues what may be sent, until a batch is full. Not to be called while the
    /// socket takes nothing.
    pub fn queue_frames(&mut self) {
        self.begin_waiting();
        self.fill();
    }

    /// Offers what is queued, as much as goes into one system call, to `write`, which says besides its result how many
    /// bytes were taken. `None` where nothing is queued.
    pub fn offer<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> (T, usize)) -> Option<T> {
        self.outgoing.offer(write)
    }

    /// Bytes that are queued.
    pub fn queued(&self) -> usize {
        self.outgoing.queued()
    }

    /// Bytes among them that were copied, and are nobody's: the rest of a frame that was begun.
    pub fn copied(&mut self) -> usize {
        if self.outgoing.queued() == 0 {
            self.copied = 0;
        }
        self.copied
    }

    /// Latest time to call [`ClientConnection::expire`], as far as deadlines are tracked.
    pub fn next_deadline(&self) -> Option<Instant> {
        let starved = self.starvation.deadline().filter(|_| self.is_shut() && !self.is_idle());
        self.deadlines.first().into_iter().chain(starved).min()
    }

    /// Tracks the deadlines of exchanges that have not begun. Most do at once, and need not be.
    pub fn track_waiting(&mut self) {
        while let Some((ticket, deadline)) = self.exchanges.waiting.next_untracked() {
            self.deadlines.push(deadline, ExchangeKey::Waiting(ticket));
        }
    }

    /// The server speaks HTTP/2.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// It has answered a request.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// It takes no new requests on this connection.
    pub fn is_closing(&self) -> bool {
        self.goaway.is_some() || self.next_id > MAX_ID || self.is_starved()
    }

    /// For long it has given no room for the bodies of requests.
    pub fn is_starved(&self) -> bool {
        self.starvation.is_starved()
    }

    /// It gives no room to any new request.
    fn is_shut(&self) -> bool {
        self.window <= 0 || self.peer_window <= 0 || self.peer_max_streams == 0
    }

    /// Contents of the server's last GOAWAY.
    pub fn goaway(&self) -> Option<GoAway> {
        self.goaway
    }

    /// Is every exchange settled?
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Exchanges that the server surely has not looked at, since the last time.
    pub fn take_unprocessed(&mut self) -> Vec<Unprocessed<E>> {
        std::mem::take(&mut self.unprocessed)
    }

    /// Exchanges that have not begun.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = E> {
        std::iter::from_fn(|| self.exchanges.waiting.pop())
    }

    /// Fails what is left, for that reason.
    pub fn fail(&mut self, why: &str) {
        self.exchanges.fail(why);
    }

    /// Sends GOAWAY with the fault's code, as far as queued bytes still leave. Open exchanges are yet to be failed.
    pub fn lose(&mut self, fault: ProtocolFault) {
        self.outgoing.control(|out| frame::put_goaway(out, fault.code));
    }
}

#[cfg(test)]
mod tests;

//! Connection: the conversation with one hook over one socket.
//!
//! ```text
//! commands ──> waiting ──> streams ──> ready (round robin) ──> outgoing ──> one vectored write
//!                             ^                                                 │
//! inboxes <── answers ────────┴──────────── incoming <── socket <───────────────┘
//! ```
//!
//! Streams that have something to send and a window to send it in stand in the ready queue; each turn gives one frame
//! to the stream in front, so a small review does not wait behind a whole large one. Everything that is ready, up to
//! [`Limits::batch`], then leaves in one system call.

mod receive;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use rustc_hash::FxHashMap;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::UnboundedReceiver,
};

use super::{
    super::{call::Call, held::connected, lane::Command},
    frame::{self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, HEAD, Head, code, kind, setting},
    header_read::HeaderReader,
    header_write::HeaderWriter,
    incoming::Incoming,
    outgoing::Outgoing,
    stream::Stream,
};
use crate::{memory::MemoryBudget, model::CallFailure};

/// What the hook may send on one stream before we give more room.
const STREAM_WINDOW: u32 = 1 << 20;
/// What it may send on all streams together.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Frames are cut no larger, whatever the hook would take: beyond this a larger frame saves nothing and makes the
/// small reviews behind it wait.
const LARGEST_FRAME: usize = 256 << 10;
/// Why calls go elsewhere.
const LEAVING: &str = "the hook takes no more calls on this connection";
/// The last stream id a client may use. RFC 9113 §5.1.1.
const LAST_ID: u32 = (1 << 31) - 1;

/// Bounds of one connection.
#[derive(Clone, Debug)]
pub(in super::super) struct Limits {
    /// Bytes gathered for one write.
    pub(in super::super) batch: usize,
    /// The largest answer taken from a hook, in bytes.
    pub(in super::super) answer: usize,
    /// What answers are held in.
    pub(in super::super) budget: Arc<MemoryBudget>,
}

/// Why a connection takes no more calls. Those that the hook surely has not seen are in `unseen` and may be asked
/// elsewhere.
#[derive(Debug)]
pub(in super::super) struct Ended<S> {
    /// `None` when we closed it because nobody will ask any more.
    pub(in super::super) why: Option<String>,
    /// Calls that never began, or that the hook says it has not looked at.
    pub(in super::super) unseen: Vec<Call>,
    /// The connection itself, where the hook still answers calls on it: to be driven by [`Connection::finish_calls`].
    pub(in super::super) leaving: Option<Connection<S>>,
}

/// What [`Connection::poll_drive`] comes to.
enum Over {
    /// Nobody will ask any more, and the last answer is in.
    Unwanted,
    /// The hook takes no new calls here, but will answer those it has.
    Leaving,
    /// It is lost.
    Lost(String),
}

/// One HTTP/2 connection, driven by one task.
#[derive(Debug)]
pub(in super::super) struct Connection<S> {
    io: S,
    limits: Limits,
    incoming: Incoming,
    outgoing: Outgoing,
    reader: HeaderReader,
    writer: HeaderWriter,
    streams: FxHashMap<u32, Stream>,
    ready: VecDeque<u32>,
    waiting: VecDeque<Call>,
    next_id: u32,
    /// What the hook will take on the connection, and at first on each stream.
    window: i64,
    peer_window: i64,
    peer_max_frame: usize,
    peer_max_streams: usize,
    /// The hook's SETTINGS have arrived: it speaks HTTP/2.
    greeted: bool,
    /// Bytes received whose window was not yet given back.
    unreturned: u32,
    /// A header block under way: its first frame's head, and what has come of it.
    block: Option<(Head, Vec<u8>)>,
    /// The hook will look at no stream beyond this one.
    last_seen: Option<u32>,
    /// TLS keeps bytes back until flushed.
    flushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection over this socket, our greeting queued.
    pub(in super::super) fn new(io: S, limits: Limits, https: bool, authority: &str) -> Self {
        let mut outgoing = Outgoing::new();
        outgoing.heads(|out| {
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
            io,
            limits,
            incoming: Incoming::new(),
            outgoing,
            reader: HeaderReader::default(),
            writer: HeaderWriter::new(https, authority),
            streams: FxHashMap::default(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            next_id: 1,
            window: DEFAULT_WINDOW,
            peer_window: DEFAULT_WINDOW,
            peer_max_frame: DEFAULT_MAX_FRAME,
            peer_max_streams: usize::MAX,
            greeted: false,
            unreturned: 0,
            block: None,
            last_seen: None,
            flushed: true,
        }
    }

    /// Waits for the hook's greeting.
    pub(in super::super) async fn greet(&mut self) -> Result<(), String> {
        poll_fn(|cx| match self.poll_socket(cx) {
            Err(why) => Poll::Ready(Err(why)),
            Ok(()) if self.greeted => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    /// Carries out commands until the connection takes no more calls. Every call is then settled, in
    /// [`Ended::unseen`], or will be answered on [`Ended::leaving`].
    pub(in super::super) async fn drive(
        mut self,
        commands: &mut UnboundedReceiver<Command>,
        first: Vec<Call>,
    ) -> Ended<S> {
        self.waiting.extend(first);
        let over = poll_fn(|cx| self.poll_drive(cx, commands)).await;
        let mut unseen: Vec<Call> = self.waiting.drain(..).collect();
        unseen.extend(self.take_unseen());
        match over {
            Over::Unwanted => Ended { why: None, unseen, leaving: None },
            Over::Leaving => Ended { why: Some(LEAVING.into()), unseen, leaving: Some(self) },
            Over::Lost(why) => {
                self.fail_all(&why);
                Ended { why: Some(why), unseen, leaving: None }
            }
        }
    }

    /// Waits for the answers still due on a connection that takes no new calls. The caller bounds the time.
    pub(in super::super) async fn finish_calls(&mut self) {
        let lost = poll_fn(|cx| match self.poll_socket(cx) {
            Err(why) => Poll::Ready(Some(why)),
            Ok(()) => {
                self.sweep();
                if self.streams.is_empty() { Poll::Ready(None) } else { Poll::Pending }
            }
        })
        .await;
        if let Some(why) = lost {
            self.fail_all(&why);
        }
    }

    /// The calls that the hook says it will not look at.
    fn take_unseen(&mut self) -> Vec<Call> {
        let Some(last) = self.last_seen else { return Vec::new() };
        let unseen: Vec<u32> = self.streams.keys().copied().filter(|&id| id > last).collect();
        unseen.into_iter().filter_map(|id| self.streams.remove(&id)).map(|stream| stream.call).collect()
    }

    fn fail_all(&mut self, why: &str) {
        for (_, stream) in self.streams.drain() {
            stream.call.inbox.deliver(stream.call.tag, Err(CallFailure::Connection(why.to_owned())));
        }
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>, commands: &mut UnboundedReceiver<Command>) -> Poll<Over> {
        let mut nobody_asks = false;
        loop {
            match commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Ask(call))) => self.waiting.push_back(call),
                Poll::Ready(Some(Command::Sweep)) => self.sweep(),
                Poll::Ready(Some(Command::Probe(probe))) => connected(probe),
                Poll::Ready(None) => {
                    nobody_asks = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        if let Err(why) = self.poll_socket(cx) {
            return Poll::Ready(Over::Lost(why));
        }
        if self.last_seen.is_some() || self.next_id > LAST_ID {
            return Poll::Ready(Over::Leaving);
        }
        if nobody_asks && self.streams.is_empty() && self.outgoing.queued() == 0 && self.waiting.is_empty() {
            return Poll::Ready(Over::Unwanted);
        }
        Poll::Pending
    }

    /// Reads and writes all that the socket gives and takes.
    fn poll_socket(&mut self, cx: &mut Context<'_>) -> Result<(), String> {
        loop {
            match self.incoming.poll_fill(&mut self.io, cx) {
                Poll::Ready(Ok(0)) => return Err("the hook closed the connection".into()),
                Poll::Ready(Ok(_)) => self.frames()?,
                Poll::Ready(Err(error)) => return Err(read_or_write_failed(&error)),
                Poll::Pending => break,
            }
        }
        loop {
            self.begin_waiting();
            self.fill();
            match self.outgoing.poll_write(&mut self.io, cx) {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(_)) => self.flushed = false,
                Poll::Ready(Err(error)) => return Err(read_or_write_failed(&error)),
                Poll::Pending => return Ok(()),
            }
        }
        if !self.flushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => return Err(read_or_write_failed(&error)),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    // === sending ===

    /// Begins the calls that wait, as far as the hook allows.
    fn begin_waiting(&mut self) {
        if self.waiting.is_empty() || !self.greeted || self.last_seen.is_some() {
            return;
        }
        let now = Instant::now();
        while self.streams.len() < self.peer_max_streams && self.next_id <= LAST_ID {
            let Some(call) = self.waiting.pop_front() else { break };
            if !call.is_abandoned() {
                self.begin(call, now);
            }
        }
    }

    fn begin(&mut self, call: Call, now: Instant) {
        let id = self.next_id;
        self.next_id += 2;
        let timeout = call.deadline.saturating_duration_since(now);
        let writer = &mut self.writer;
        self.outgoing.heads(|out| {
            let head = out.len();
            out.extend_from_slice(&[0; HEAD]);
            writer.write(&call, timeout, out);
            frame::finish_block(out, head, id);
        });
        let mut stream = Stream::new(call, self.peer_window, &self.limits.budget);
        stream.ready = true;
        self.streams.insert(id, stream);
        self.ready.push_back(id);
    }

    /// Queues frames of the ready streams in turn, until a batch is full or the windows are.
    fn fill(&mut self) {
        let largest = self.peer_max_frame.min(LARGEST_FRAME);
        while self.outgoing.queued() < self.limits.batch && self.window > 0 {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let len = stream.unsent.min(largest).min(self.window.min(stream.window).max(0) as usize);
            // Of an empty body only the end is sent.
            if len > 0 || stream.unsent == 0 {
                stream.send(id, len, &mut self.outgoing);
                stream.window -= len as i64;
                self.window -= len as i64;
            }
            // A stream whose window is shut leaves the queue; a WINDOW_UPDATE brings it back.
            stream.ready = stream.unsent > 0 && stream.window > 0;
            if stream.ready {
                self.ready.push_back(id);
            }
        }
    }

    /// Resets the streams nobody waits for any more.
    fn sweep(&mut self) {
        let outgoing = &mut self.outgoing;
        self.streams.retain(|&id, stream| {
            let keep = !stream.call.is_abandoned();
            if !keep {
                outgoing.heads(|out| frame::put_reset(out, id, code::CANCEL));
            }
            keep
        });
        self.waiting.retain(|call| !call.is_abandoned());
    }
}

fn read_or_write_failed(error: &io::Error) -> String {
    error.to_string()
}

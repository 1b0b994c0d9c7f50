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

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use rustc_hash::FxHashMap;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::UnboundedReceiver,
};

use super::{
    super::{call::Call, lane::Command},
    frame::{self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, HEAD, Head, MAX_WINDOW, code, flag, kind, setting},
    header_read::{HeaderReader, Headers},
    header_write::HeaderWriter,
    incoming::Incoming,
    outgoing::Outgoing,
    stream::Stream,
};
use crate::model::CallFailure;

/// What the hook may send on one stream before we give more room.
const STREAM_WINDOW: u32 = 1 << 20;
/// What it may send on all streams together.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Frames are cut no larger, whatever the hook would take: beyond this a larger frame saves nothing and makes the
/// small reviews behind it wait.
const LARGEST_FRAME: usize = 256 << 10;
/// A header block may be no longer, CONTINUATIONs included.
const LARGEST_BLOCK: usize = 64 << 10;
/// Why calls go elsewhere.
const LEAVING: &str = "the hook takes no more calls on this connection";
/// The last stream id a client may use. RFC 9113 §5.1.1.
const LAST_ID: u32 = (1 << 31) - 1;

/// Bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    /// Bytes gathered for one write.
    pub(in super::super) batch: usize,
    /// The largest answer taken from a hook, in bytes.
    pub(in super::super) answer: usize,
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
            writer.write(call.method, timeout, call.namespace_labels.as_deref(), out);
            frame::finish_block(out, head, id);
        });
        let mut stream = Stream::new(call, self.peer_window);
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
            if len > 0 {
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

    // === receiving ===

    fn frames(&mut self) -> Result<(), String> {
        loop {
            match self.incoming.next_frame() {
                Ok(Some((head, place))) => self.frame(head, place)?,
                Ok(None) => return Ok(()),
                Err(_) => return Err("the hook sent a frame larger than allowed".into()),
            }
        }
    }

    fn frame(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err("the hook broke off a header block".into());
        }
        if !self.greeted && head.kind != kind::SETTINGS {
            return Err("the hook does not speak HTTP/2: its first frame is not SETTINGS".into());
        }
        match head.kind {
            kind::DATA => self.data(head, place),
            kind::HEADERS => self.block(head, place),
            kind::CONTINUATION => self.continuation(head, place),
            kind::RST_STREAM => self.reset(head, place),
            kind::SETTINGS => self.settings(head, place),
            kind::PING if !head.has(flag::ACK) => {
                self.refuse_flood()?;
                let (incoming, outgoing) = (&self.incoming, &mut self.outgoing);
                outgoing.heads(|out| frame::put(out, kind::PING, flag::ACK, 0, incoming.payload(place)));
                Ok(())
            }
            kind::GOAWAY => self.goaway(place),
            kind::WINDOW_UPDATE => self.window_update(head, place),
            kind::PUSH_PROMISE => Err("the hook pushes, which was not allowed".into()),
            _ => Ok(()),
        }
    }

    /// A hook that asks for acknowledgements and does not read them must not fill our memory.
    fn refuse_flood(&self) -> Result<(), String> {
        if self.outgoing.queued() > self.limits.batch + 2 * LARGEST_FRAME {
            return Err("the hook floods the connection with PING or SETTINGS".into());
        }
        Ok(())
    }

    fn data(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        // Also what comes for a stream that is gone counts against the connection's window.
        self.unreturned += head.len as u32;
        if self.unreturned >= CONNECTION_WINDOW / 2 {
            let back = std::mem::take(&mut self.unreturned);
            self.outgoing.heads(|out| frame::put_window_update(out, 0, back));
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        let Some(data) = frame::unpadded(head, self.incoming.payload(place)) else {
            return Err("the hook sent more padding than data".into());
        };
        if let Err(failure) = stream.data(data, self.limits.answer) {
            self.fail(head.stream, failure);
        } else if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
        } else {
            stream.unreturned += head.len as u32;
            if stream.unreturned >= STREAM_WINDOW / 2 {
                let back = std::mem::take(&mut stream.unreturned);
                self.outgoing.heads(|out| frame::put_window_update(out, head.stream, back));
            }
        }
        Ok(())
    }

    fn block(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        let payload = self.incoming.payload(place);
        let Some(mut fragment) = frame::unpadded(head, payload) else {
            return Err("the hook sent more padding than headers".into());
        };
        if head.has(flag::PRIORITY) {
            fragment = fragment.get(5..).ok_or("the hook cut a frame short")?;
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(fragment).map_err(|bad| bad.0.to_owned())?;
            self.headers(head, headers);
        } else {
            self.block = Some((head, fragment.to_vec()));
        }
        Ok(())
    }

    fn continuation(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        let Some((first, mut block)) = self.block.take() else { return Ok(()) };
        if first.stream != head.stream {
            return Err("the hook broke off a header block".into());
        }
        block.extend_from_slice(self.incoming.payload(place));
        if block.len() > LARGEST_BLOCK {
            return Err("the hook sent a header block larger than 64 KiB".into());
        }
        if head.has(flag::END_HEADERS) {
            let headers = self.reader.read(&block).map_err(|bad| bad.0.to_owned())?;
            self.headers(first, headers);
        } else {
            self.block = Some((first, block));
        }
        Ok(())
    }

    fn headers(&mut self, head: Head, headers: Headers) {
        let Some(stream) = self.streams.get_mut(&head.stream) else { return };
        if stream.has_headers() {
            if head.has(flag::END_STREAM) {
                self.finish(head.stream, Some(headers));
            } else {
                self.fail(head.stream, CallFailure::NotGrpc("it sent headers in the middle of its answer".into()));
            }
        } else if let Some(failure) = stream.headers(headers) {
            self.fail(head.stream, failure);
        } else if head.has(flag::END_STREAM) {
            self.finish(head.stream, None);
        }
    }

    fn reset(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        let code = number(self.incoming.payload(place))?;
        let Some(stream) = self.streams.remove(&head.stream) else { return Ok(()) };
        let call = stream.call;
        let failure = match code {
            // The answer is whole when the hook says it needs no more of the question; without one it is none.
            code::NO_ERROR => CallFailure::NotGrpc("it ended the call without an answer".into()),
            code::REFUSED_STREAM => CallFailure::Connection("the hook refused the call: it is overloaded".into()),
            other => CallFailure::Connection(format!("the hook reset the call: {}", frame::code_name(other))),
        };
        call.inbox.deliver(call.tag, Err(failure));
        Ok(())
    }

    fn settings(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        if head.has(flag::ACK) {
            return Ok(());
        }
        let payload = self.incoming.payload(place);
        if !payload.len().is_multiple_of(6) {
            return Err("the hook sent broken settings".into());
        }
        for entry in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match id {
                setting::HEADER_TABLE_SIZE => self.writer.table_size(value),
                setting::MAX_CONCURRENT_STREAMS => self.peer_max_streams = value as usize,
                setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > MAX_WINDOW {
                        return Err("the hook asked for a window that is too large".into());
                    }
                    let change = i64::from(value) - self.peer_window;
                    self.peer_window = i64::from(value);
                    for (&id, stream) in &mut self.streams {
                        stream.window += change;
                        if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                            stream.ready = true;
                            self.ready.push_back(id);
                        }
                    }
                }
                setting::MAX_FRAME_SIZE => {
                    if !(DEFAULT_MAX_FRAME..1 << 24).contains(&(value as usize)) {
                        return Err("the hook asked for an impossible frame size".into());
                    }
                    self.peer_max_frame = value as usize;
                }
                _ => {}
            }
        }
        self.greeted = true;
        self.refuse_flood()?;
        self.outgoing.heads(|out| frame::put(out, kind::SETTINGS, flag::ACK, 0, &[]));
        Ok(())
    }

    fn goaway(&mut self, place: std::ops::Range<usize>) -> Result<(), String> {
        let last = number(self.incoming.payload(place))? & LAST_ID;
        self.last_seen = Some(self.last_seen.map_or(last, |before| before.min(last)));
        Ok(())
    }

    fn window_update(&mut self, head: Head, place: std::ops::Range<usize>) -> Result<(), String> {
        let increment = i64::from(number(self.incoming.payload(place))? & LAST_ID);
        if head.stream == 0 {
            self.window += increment;
            if self.window > MAX_WINDOW {
                return Err("the hook overflowed the connection's window".into());
            }
        } else if let Some(stream) = self.streams.get_mut(&head.stream) {
            stream.window += increment;
            if stream.window > MAX_WINDOW {
                self.fail(head.stream, CallFailure::Connection("the hook overflowed a window".into()));
            } else if !stream.ready && stream.unsent > 0 && stream.window > 0 {
                stream.ready = true;
                self.ready.push_back(head.stream);
            }
        }
        Ok(())
    }

    // === settling a call ===

    fn finish(&mut self, id: u32, trailers: Option<Headers>) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if stream.unsent > 0 {
            // It answered without hearing us out: it needs no more.
            self.outgoing.heads(|out| frame::put_reset(out, id, code::NO_ERROR));
        }
        let (call, result) = stream.end(trailers);
        call.inbox.deliver(call.tag, result);
    }

    fn fail(&mut self, id: u32, failure: CallFailure) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.outgoing.heads(|out| frame::put_reset(out, id, code::CANCEL));
        stream.call.inbox.deliver(stream.call.tag, Err(failure));
    }
}

/// The number a frame begins with.
fn number(payload: &[u8]) -> Result<u32, String> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(|| "the hook cut a frame short".to_owned())
}

fn read_or_write_failed(error: &io::Error) -> String {
    error.to_string()
}

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
//! [`Limits::batch`], then leaves in one system call. While the socket takes nothing, nothing more is queued, and no call
//! begins: what a hook does not read waits as calls, which end at their deadlines.

mod receive;
mod send;
mod settle;

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::UnboundedReceiver,
};

use super::{
    super::{answer_room::AnswerRoom, call::Call, held::connected, lane::Command},
    calls::Calls,
    deadlines::{Deadlines, Place},
    fault::Fault,
    floods::Floods,
    frame::{self, DEFAULT_MAX_FRAME, DEFAULT_WINDOW, Head, MAX_ID, kind, setting},
    goodbye::Goodbye,
    header_read::HeaderReader,
    header_write::HeaderWriter,
    incoming::Incoming,
    outgoing::Outgoing,
    stream::STREAM_WINDOW,
};
use crate::memory::{MemoryBudget, Purpose, Reservation};

/// What the hook may send on all streams together before we give more room.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Frames are cut no larger, whatever the hook would take: beyond this a larger frame saves nothing and makes the
/// small reviews behind it wait.
const LARGEST_FRAME: usize = 256 << 10;
/// Why calls go elsewhere.
const LEAVING: &str = "the hook takes no more calls on this connection";
/// A hook that takes not one byte of what is queued for so long is gone, or may as well be.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Bytes read at one go: whoever sends without a pause does not keep the worker from everybody else.
const READ_AT_ONCE: usize = 256 << 10;

/// Bounds of one connection.
#[derive(Clone, Debug)]
pub(in super::super) struct Limits {
    /// Bytes gathered for one write.
    pub(in super::super) batch: usize,
    /// The largest answer taken from a hook, in bytes.
    pub(in super::super) answer: usize,
    /// What answers are held in.
    pub(in super::super) answers: Arc<AnswerRoom>,
    /// What is held in that stays queued of calls that are over.
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
    /// The hook has answered a call on it.
    pub(in super::super) answered: bool,
}

/// What [`Connection::poll_drive`] comes to.
enum Over {
    /// Nobody will ask any more, and the last answer is in.
    Unwanted,
    /// The hook takes no new calls here, but will answer those it has.
    Leaving,
    /// It is lost.
    Lost(Fault),
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
    calls: Calls,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    /// Calls to be asked elsewhere.
    unseen: Vec<Call>,
    next_id: u32,
    /// What the hook will take on the connection, and at first on each stream.
    window: i64,
    peer_window: i64,
    peer_max_frame: usize,
    peer_max_streams: usize,
    /// The hook's SETTINGS have arrived: it speaks HTTP/2.
    greeted: bool,
    /// A call was answered.
    answered: bool,
    /// Bytes received whose window was not yet given back, and how many more the hook may send.
    unreturned: u32,
    granted: u32,
    /// A header block under way: its first frame's head, what has come of it, and in how many frames.
    block: Option<(Head, Vec<u8>, usize)>,
    goodbye: Option<Goodbye>,
    floods: Floods,
    /// TLS keeps bytes back until flushed.
    flushed: bool,
    /// The socket did not take all it was offered last.
    blocked: bool,
    /// Since when it has taken nothing.
    stalled: Option<Instant>,
    /// What stays queued of calls that are over.
    remains: Reservation,
}

/// Now, as timers have it: in tests they may be ahead.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection over this socket, our greeting queued.
    pub(in super::super) fn new(io: S, limits: Limits, https: bool, authority: &str) -> Self {
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
        let remains = limits.budget.empty(Purpose::Queue);
        Self {
            io,
            limits,
            incoming: Incoming::new(),
            outgoing,
            reader: HeaderReader::default(),
            writer: HeaderWriter::new(https, authority),
            calls: Calls::default(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            unseen: Vec::new(),
            next_id: 1,
            window: DEFAULT_WINDOW,
            peer_window: DEFAULT_WINDOW,
            peer_max_frame: DEFAULT_MAX_FRAME,
            peer_max_streams: usize::MAX,
            greeted: false,
            answered: false,
            unreturned: 0,
            granted: CONNECTION_WINDOW,
            block: None,
            goodbye: None,
            floods: Floods::new(now()),
            flushed: true,
            blocked: false,
            stalled: None,
            remains,
        }
    }

    /// Waits for the hook's greeting.
    pub(in super::super) async fn greet(&mut self) -> Result<(), String> {
        poll_fn(|cx| match self.poll_io(cx) {
            Err(fault) => Poll::Ready(Err(self.said(fault))),
            Ok(()) if self.greeted => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    /// Carries out commands until the connection takes no more calls. Every call is then settled, in
    /// [`Ended::unseen`], or will be answered on [`Ended::leaving`]. One that runs out of time is not settled but let go:
    /// whoever asked has a clock too.
    pub(in super::super) async fn drive(
        mut self,
        commands: &mut UnboundedReceiver<Command>,
        first: Vec<Call>,
    ) -> Ended<S> {
        for call in first {
            self.calls.waiting.push(call);
        }
        let over = poll_fn(|cx| self.poll_drive(cx, commands)).await;
        let waiting = std::iter::from_fn(|| self.calls.waiting.pop());
        self.unseen.extend(waiting);
        let (unseen, answered) = (std::mem::take(&mut self.unseen), self.answered);
        match over {
            Over::Unwanted => Ended { why: None, unseen, leaving: None, answered },
            Over::Leaving => {
                let why = self.goodbye.map_or(LEAVING.to_owned(), |goodbye| format!("{LEAVING}: {goodbye}"));
                Ended { why: Some(why), unseen, leaving: Some(self), answered }
            }
            Over::Lost(fault) => Ended { why: Some(self.lose(fault).await), unseen, leaving: None, answered },
        }
    }

    /// Waits for the answers still due on a connection that takes no new calls; their deadlines bound the time. Returns
    /// early with calls that are to be asked elsewhere after all.
    pub(in super::super) async fn finish_calls(&mut self) -> Vec<Call> {
        let lost = poll_fn(|cx| match self.poll_io(cx) {
            Err(fault) => Poll::Ready(Some(fault)),
            Ok(()) if self.calls.is_empty() || !self.unseen.is_empty() => Poll::Ready(None),
            Ok(()) => Poll::Pending,
        })
        .await;
        if let Some(fault) = lost {
            self.lose(fault).await;
        }
        std::mem::take(&mut self.unseen)
    }

    /// Is every call settled?
    pub(in super::super) fn is_settled(&self) -> bool {
        self.calls.is_empty()
    }

    /// As a lane's sweep, on a connection that takes no new calls.
    pub(in super::super) fn let_go_of_abandoned(&mut self) {
        if let Err(fault) = self.sweep() {
            let why = self.said(fault);
            self.calls.fail(&why);
        }
    }

    /// Gives up the calls that are left.
    pub(in super::super) fn give_up(&mut self, why: &str) {
        self.calls.fail(why);
    }

    /// Tells the hook what it did wrong, where it will hear it, and fails the calls it has.
    async fn lose(&mut self, fault: Fault) -> String {
        if let Some(code) = fault.code {
            self.outgoing.control(|out| frame::put_goaway(out, code));
            // What does not leave at once does not matter any more.
            poll_fn(|cx| {
                let _ = self.outgoing.poll_write(&mut self.io, cx);
                let _ = Pin::new(&mut self.io).poll_flush(cx);
                Poll::Ready(())
            })
            .await;
        }
        let why = self.said(fault);
        self.calls.fail(&why);
        why
    }

    /// What is wrong, and what the hook said before.
    fn said(&self, fault: Fault) -> String {
        match self.goodbye {
            Some(goodbye) => format!("{}, after {goodbye}", fault.what),
            None => fault.what.into_owned(),
        }
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>, commands: &mut UnboundedReceiver<Command>) -> Poll<Over> {
        let (mut nobody_asks, mut abandoned) = (false, false);
        loop {
            match commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Ask(call))) => {
                    self.calls.waiting.push(call);
                }
                Poll::Ready(Some(Command::Sweep)) => abandoned = true,
                Poll::Ready(Some(Command::Probe(probe))) => connected(probe),
                #[cfg(test)]
                Poll::Ready(Some(Command::Panic)) => panic!("a test said so"),
                Poll::Ready(None) => {
                    nobody_asks = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        // Once for all of them: to look through the calls for each would take the square of their number.
        let swept = if abandoned { self.sweep() } else { Ok(()) };
        if let Err(fault) = swept.and_then(|()| self.poll_io(cx)) {
            return Poll::Ready(Over::Lost(fault));
        }
        if self.goodbye.is_some() || self.next_id > MAX_ID {
            return Poll::Ready(Over::Leaving);
        }
        if nobody_asks && self.calls.is_empty() && self.outgoing.queued() == 0 {
            return Poll::Ready(Over::Unwanted);
        }
        Poll::Pending
    }

    /// Does all that the socket and the time allow.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        loop {
            // First those that are late, so that none of them is sent.
            while self.poll_ring(cx).is_ready() {
                self.expire(now())?;
            }
            self.poll_socket(cx)?;
            while let Some((ticket, deadline)) = self.calls.waiting.next_deadline() {
                self.deadlines.push(deadline, Place::Waiting(ticket));
            }
            if self.poll_ring(cx).is_pending() {
                return Ok(());
            }
            self.expire(now())?;
        }
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stuck = self.stalled.filter(|_| self.outgoing.queued() > 0 || !self.flushed);
        self.deadlines.poll_ring(cx, stuck.map(|since| since + STALLED_AFTER))
    }

    /// Reads what the socket gives, up to a bound, and writes all that it takes.
    fn poll_socket(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let mut read = 0;
        loop {
            match self.incoming.poll_fill(&mut self.io, cx) {
                Poll::Ready(Ok(0)) => return Err(Fault::lost("the hook closed the connection")),
                Poll::Ready(more) => {
                    read += more?;
                    self.frames()?;
                }
                Poll::Pending => break,
            }
            if read >= READ_AT_ONCE {
                // Wakes this task when the others have had their turn.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                break;
            }
        }
        loop {
            if !self.blocked {
                self.begin_waiting();
                self.fill();
            }
            match self.outgoing.poll_write(&mut self.io, cx) {
                // Nothing is queued any more; if that is because it was taken back, something may be again.
                Poll::Ready(Ok(0)) if std::mem::take(&mut self.blocked) => {}
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(written) => {
                    written?;
                    (self.flushed, self.blocked, self.stalled) = (false, false, None);
                }
                Poll::Pending => {
                    self.blocked = true;
                    self.stalled.get_or_insert_with(now);
                    return Ok(());
                }
            }
        }
        if self.remains.bytes() > 0 {
            self.remains.shrink_to(0);
        }
        if !self.flushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(flushed) => {
                    flushed?;
                    (self.flushed, self.stalled) = (true, None);
                }
                Poll::Pending => drop(self.stalled.get_or_insert_with(now)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! HTTP/2 to hooks: the protocol of [`gatepost_http2_client`] over a socket, with calls as its exchanges.
//!
//! [`Http2Connection`] owns the socket and the timer: it takes commands, reads, writes, and fails the calls if the
//! connection is lost. `exchange` turns the end of each call into its result.

mod exchange;

use std::{
    borrow::Cow,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc::UnboundedReceiver,
    time::{Sleep, sleep_until},
};

use self::exchange::CallExchange;
use super::{
    answer_buffer::AnswerBudget,
    call::Call,
    commands::{Command, report_connected},
    protocol::request_head::RequestHeads,
};
use gatepost_base::{
    clock::now,
    memory::{MemoryBudget, Purpose, Reservation},
};
use gatepost_http2_client::{ClientConnection, Config, ProtocolFault};

/// Reasons why a connection takes no more calls.
const DRAINING_REASON: &str = "the hook takes no more calls on this connection";
const STARVED_REASON: &str = "the hook gives no room for calls on this connection";
/// Time without write progress after which a connection is closed.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes read in one turn, so that a hook that sends without a pause does not keep the worker from
/// other tasks.
const MAX_READ_PER_TURN: usize = 256 << 10;

/// Limits of one connection.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Bytes gathered for one write.
    pub(super) batch: usize,
    /// Maximum size of an answer in bytes.
    pub(super) answer: usize,
    /// Memory for answers.
    pub(super) answers: Arc<AnswerBudget>,
    /// Memory for queued bytes of calls that are over.
    pub(super) memory: Arc<MemoryBudget>,
}

/// Outcome of [`Http2Connection::drive`]: the connection takes no more calls.
#[derive(Debug)]
pub(super) struct DriveOutcome<S> {
    /// Reason; `None` if there are no further commands.
    pub(super) why: Option<String>,
    /// Calls of which nothing was sent, to be sent over another connection.
    pub(super) unsent: Vec<Call>,
    /// The connection itself if the hook still answers calls on it: to be driven by [`Http2Connection::finish_calls`].
    pub(super) draining: Option<Http2Connection<S>>,
    /// True if the hook has answered a call on it.
    pub(super) answered: bool,
    /// True if the hook's flow control window stayed exhausted.
    pub(super) starved: bool,
}

/// Ways in which [`Http2Connection::poll_drive`] ends.
enum DriveEnd {
    /// There are no further commands, and the last answer has arrived.
    Idle,
    /// The hook takes no new calls on the connection, but answers those it has.
    Draining,
    /// The connection is lost.
    Lost(ConnectionError),
}

/// Reason why a connection is lost.
#[derive(Debug)]
enum ConnectionError {
    /// The hook broke the protocol, and is sent GOAWAY.
    Fault(ProtocolFault),
    /// The connection is unusable.
    Lost(Cow<'static, str>),
}

impl From<ProtocolFault> for ConnectionError {
    fn from(fault: ProtocolFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string().into())
    }
}

/// An HTTP/2 connection to one hook, and its socket; driven by one task.
#[derive(Debug)]
pub(super) struct Http2Connection<S> {
    io: S,
    limits: Limits,
    /// State of the protocol, with the calls.
    pub(super) protocol: ClientConnection<CallExchange>,
    alarm: Alarm,
    /// True if TLS has no written bytes left to flush.
    flushed: bool,
    /// True if the socket did not take all of the last write.
    write_blocked: bool,
    /// Time since which the socket has taken nothing.
    stalled_since: Option<Instant>,
    /// Memory of queued bytes of calls that are over.
    orphaned: Reservation,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Connection<S> {
    /// Creates a connection over this socket, with our part of the handshake queued.
    pub(super) fn new(io: S, limits: Limits, heads: RequestHeads) -> Self {
        let config = Config { batch: limits.batch, clock: now };
        let orphaned = limits.memory.empty(Purpose::Queue);
        Self {
            io,
            limits,
            protocol: ClientConnection::new(config, heads),
            alarm: Alarm::default(),
            flushed: true,
            write_blocked: false,
            stalled_since: None,
            orphaned,
        }
    }

    /// Waits for the hook's part of the handshake.
    pub(super) async fn handshake(&mut self) -> Result<(), String> {
        poll_fn(|cx| match self.poll_io(cx) {
            Err(error) => Poll::Ready(Err(self.message(&error))),
            Ok(()) if self.protocol.is_established() => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    /// Carries out commands until the connection takes no more calls. Every call is then settled, is in
    /// [`DriveOutcome::unsent`], or will be answered on [`DriveOutcome::draining`]. A call whose deadline passes is
    /// dropped without a result, as its owner knows the deadline.
    pub(super) async fn drive(
        mut self,
        commands: &mut UnboundedReceiver<Command>,
        first: Vec<Call>,
    ) -> DriveOutcome<S> {
        for call in first {
            self.submit(call);
        }
        let end = poll_fn(|cx| self.poll_drive(cx, commands)).await;
        let unsent = self.protocol.take_waiting().map(|exchange| exchange.call).collect();
        let (answered, starved) = (self.protocol.has_answered(), self.protocol.is_starved());
        let (why, draining) = match end {
            DriveEnd::Idle => (None, None),
            DriveEnd::Draining => {
                let why = if starved { STARVED_REASON } else { DRAINING_REASON };
                let goaway = self.protocol.goaway().map(|goaway| format!("{why}: {goaway}"));
                (goaway.or_else(|| Some(why.to_owned())), Some(self))
            }
            DriveEnd::Lost(error) => (Some(self.close(error).await), None),
        };
        DriveOutcome { why, unsent, draining, answered, starved }
    }

    /// Waits for the answers still due on a connection that takes no new calls; their deadlines bound the time.
    pub(super) async fn finish_calls(&mut self) {
        let lost = poll_fn(|cx| match self.poll_io(cx) {
            Err(error) => Poll::Ready(Some(error)),
            Ok(()) if self.protocol.is_idle() => Poll::Ready(None),
            Ok(()) => Poll::Pending,
        })
        .await;
        if let Some(error) = lost {
            self.close(error).await;
        }
    }

    fn submit(&mut self, call: Call) {
        self.protocol.submit(CallExchange::new(call, self.limits.answer, &self.limits.answers));
    }

    /// Sends GOAWAY to a hook that broke the protocol, fails the calls that are left, and returns the reason.
    async fn close(&mut self, error: ConnectionError) -> String {
        if let ConnectionError::Fault(fault) = error {
            self.protocol.send_goaway(fault);
            // Bytes that cannot be written immediately are dropped, which does no harm.
            poll_fn(|cx| {
                Poll::Ready((self.poll_write(cx).is_ready(), Pin::new(&mut self.io).poll_flush(cx).is_ready()))
            })
            .await;
        }
        let why = self.message(&error);
        self.protocol.fail(&why);
        why
    }

    /// Returns the text of the error, with the hook's GOAWAY if there was one.
    fn message(&self, error: &ConnectionError) -> String {
        let what: Cow<'_, str> = match error {
            ConnectionError::Fault(fault) => format!("the hook {}", fault.what).into(),
            ConnectionError::Lost(what) => (&**what).into(),
        };
        match self.protocol.goaway() {
            Some(goaway) => format!("{what}, after {goaway}"),
            None => what.into_owned(),
        }
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>, commands: &mut UnboundedReceiver<Command>) -> Poll<DriveEnd> {
        let (mut closed, mut abandoned) = (false, false);
        loop {
            match commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Call(call))) => self.submit(call),
                Poll::Ready(Some(Command::CancelAbandoned)) => abandoned = true,
                Poll::Ready(Some(Command::Probe(probe))) => report_connected(probe),
                Poll::Ready(None) => {
                    closed = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        // Once for all commands, or the time would grow with the square of the number of calls.
        if abandoned {
            self.protocol.cancel_abandoned();
        }
        if let Err(error) = self.poll_io(cx) {
            return Poll::Ready(DriveEnd::Lost(error));
        }
        if self.protocol.is_closing() {
            return Poll::Ready(DriveEnd::Draining);
        }
        if closed && self.protocol.is_idle() && self.protocol.queued() == 0 {
            return Poll::Ready(DriveEnd::Idle);
        }
        Poll::Pending
    }

    /// Reads, writes and expires calls as far as socket and time allow.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        loop {
            // Late calls first, so that none of them is sent.
            while self.poll_alarm(cx).is_ready() {
                self.expire(now())?;
            }
            self.poll_socket(cx)?;
            self.reserve_orphaned()?;
            self.protocol.track_waiting();
            if self.poll_alarm(cx).is_pending() {
                return Ok(());
            }
            self.expire(now())?;
        }
    }

    /// Returns the time at which the connection is closed if the socket still takes nothing.
    fn stall_deadline(&self) -> Option<Instant> {
        let waits = self.protocol.queued() > 0 || !self.flushed;
        self.stalled_since.filter(|_| waits).map(|since| since + WRITE_STALL_TIMEOUT)
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(cx, self.protocol.next_deadline().into_iter().chain(self.stall_deadline()).min())
    }

    /// Drops late calls; fails if the socket has taken nothing for too long.
    fn expire(&mut self, now: Instant) -> Result<(), ConnectionError> {
        self.protocol.expire(now);
        if self.stall_deadline().is_some_and(|deadline| deadline <= now) {
            return Err(ConnectionError::Lost("the hook has taken nothing of what it was sent for 10 s".into()));
        }
        Ok(())
    }

    /// Reserves memory for queued bytes of calls that are over.
    fn reserve_orphaned(&mut self) -> Result<(), ConnectionError> {
        let (copied, held) = (self.protocol.copied(), self.orphaned.bytes());
        if copied < held {
            self.orphaned.shrink_to(copied);
        } else if !self.orphaned.try_grow(copied - held) {
            return Err(ConnectionError::Lost(
                "gatepost has no memory budget left for what the hook does not read".into(),
            ));
        }
        Ok(())
    }

    /// Reads what has arrived, up to a limit, and writes all that the socket takes.
    fn poll_socket(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        let mut read = 0;
        loop {
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Err(ConnectionError::Lost("the hook closed the connection".into())),
                Poll::Ready(more) => {
                    let more = more?;
                    read += more;
                    self.receive(more)?;
                }
                Poll::Pending => break,
            }
            if read >= MAX_READ_PER_TURN {
                // Wakes this task after the others have had their turn.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                break;
            }
        }
        self.poll_write_all(cx).or_else(|error| self.drain_reads(cx, error))
    }

    /// Reads what arrived before a write failed: the hook may have answered and closed just before.
    fn drain_reads(&mut self, cx: &mut Context<'_>, error: ConnectionError) -> Result<(), ConnectionError> {
        while let Poll::Ready(Ok(more @ 1..)) = self.poll_read(cx) {
            self.receive(more)?;
        }
        Err(error)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.protocol.read_buffer());
        Pin::new(&mut self.io).poll_read(cx, &mut room).map_ok(|()| room.filled().len())
    }

    fn receive(&mut self, len: usize) -> Result<(), ConnectionError> {
        let received = self.protocol.receive(len);
        let goaway = self.protocol.goaway();
        for unprocessed in self.protocol.take_unprocessed() {
            CallExchange::report(unprocessed, goaway);
        }
        Ok(received?)
    }

    /// Writes once. Ready with 0 if nothing is queued.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let io = Pin::new(&mut self.io);
        let written = self.protocol.offer(|slices| {
            let written = io.poll_write_vectored(cx, slices);
            let taken = if let Poll::Ready(Ok(taken)) = written { taken } else { 0 };
            (written, taken)
        });
        match written {
            None => Poll::Ready(Ok(0)),
            Some(Poll::Ready(Ok(0))) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Some(written) => written,
        }
    }

    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        loop {
            if !self.write_blocked {
                self.protocol.queue_frames();
            }
            match self.poll_write(cx) {
                // The queue is empty. If the data was withdrawn, ready streams may queue data now.
                Poll::Ready(Ok(0)) if std::mem::take(&mut self.write_blocked) => {}
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(written) => {
                    written?;
                    (self.flushed, self.write_blocked, self.stalled_since) = (false, false, None);
                }
                Poll::Pending => {
                    self.write_blocked = true;
                    self.stalled_since.get_or_insert_with(now);
                    return Ok(());
                }
            }
        }
        if !self.flushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(flushed) => {
                    flushed?;
                    (self.flushed, self.stalled_since) = (true, None);
                }
                Poll::Pending => drop(self.stalled_since.get_or_insert_with(now)),
            }
        }
        Ok(())
    }
}

/// One timer for all deadlines of a connection.
#[derive(Debug, Default)]
struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    set_for: Option<Instant>,
}

impl Alarm {
    /// Ready at the time `next`, or at an earlier one that it was set for. Never ready without a time.
    fn poll(&mut self, cx: &mut Context<'_>, next: Option<Instant>) -> Poll<()> {
        let Some(next) = next else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next.into())));
        // A timer that is set for an earlier time is left as it is, which saves a reset for each call.
        if self.set_for.is_none_or(|set_for| set_for > next) {
            timer.as_mut().reset(next.into());
            self.set_for = Some(next);
        }
        ready!(timer.as_mut().poll(cx));
        self.set_for = None;
        Poll::Ready(())
    }
}

/// Cuts the body of a call into frames as a worker's client does, and returns their number of bytes. Nothing is sent:
/// `benches/fanout.rs` measures this.
#[doc(hidden)]
pub fn frames_of(call: Call) -> usize {
    gatepost_http2_client::frames_of(CallExchange::new(call, 0, &AnswerBudget::unlimited()))
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

//! Driver: an HTTP/2 connection to one hook, and its socket.

use std::{
    borrow::Cow,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc::UnboundedReceiver,
};

use super::{
    super::{
        answer_room::AnswerRoom, call::Call, command::Command, pending_calls::report_connected,
        protocol::request_head::RequestHeads,
    },
    CallExchange,
    alarm::Alarm,
};
use crate::{
    clock::now,
    http2::{ClientConnection, Config, ProtocolFault},
    memory::{MemoryBudget, Purpose, Reservation},
};

/// Reasons why calls go elsewhere.
const LEAVING: &str = "the hook takes no more calls on this connection";
const STARVED: &str = "the hook gives no room for calls on this connection";
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
    /// Room of answers.
    pub(in super::super) answers: Arc<AnswerRoom>,
    /// Budget for bytes that stay queued of calls that are over.
    pub(in super::super) budget: Arc<MemoryBudget>,
}

/// End of a connection: it takes no more calls.
#[derive(Debug)]
pub(in super::super) struct Ended<S> {
    /// `None` when we closed it because nobody will ask any more.
    pub(in super::super) why: Option<String>,
    /// Calls that never began, to be sent elsewhere.
    pub(in super::super) unsent: Vec<Call>,
    /// The connection itself, where the hook still answers calls on it: to be driven by
    /// [`Http2Connection::finish_calls`].
    pub(in super::super) leaving: Option<Http2Connection<S>>,
    /// The hook has answered a call on it.
    pub(in super::super) answered: bool,
    /// Its flow control left no room for calls.
    pub(in super::super) starved: bool,
}

/// Ways in which [`Http2Connection::poll_drive`] ends.
enum Over {
    /// All senders of commands are dropped, and the last answer is in.
    Unwanted,
    /// The hook takes no new calls here, but will answer those it has.
    Leaving,
    /// It is lost.
    Lost(Broken),
}

/// Reason for which a connection is beyond use.
#[derive(Debug)]
enum Broken {
    /// The hook broke the protocol, and gets GOAWAY.
    Fault(ProtocolFault),
    /// It carries nothing any more.
    Lost(Cow<'static, str>),
}

impl From<ProtocolFault> for Broken {
    fn from(fault: ProtocolFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string().into())
    }
}

/// An HTTP/2 connection to one hook, and its socket; driven by one task.
#[derive(Debug)]
pub(in super::super) struct Http2Connection<S> {
    io: S,
    limits: Limits,
    connection: ClientConnection<CallExchange>,
    alarm: Alarm,
    /// TLS keeps bytes back until flushed.
    flushed: bool,
    /// The socket did not take all it was offered last.
    blocked: bool,
    /// Since when it has taken nothing.
    stalled: Option<Instant>,
    /// Reservation for bytes that stay queued of calls that are over.
    remains: Reservation,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Connection<S> {
    /// A connection over this socket, our part of the handshake queued.
    pub(in super::super) fn new(io: S, limits: Limits, https: bool, authority: &str) -> Self {
        let config = Config { batch: limits.batch, clock: now };
        let remains = limits.budget.empty(Purpose::Queue);
        Self {
            io,
            limits,
            connection: ClientConnection::new(config, RequestHeads::new(https, authority)),
            alarm: Alarm::default(),
            flushed: true,
            blocked: false,
            stalled: None,
            remains,
        }
    }

    /// Waits for the hook's part of the handshake.
    pub(in super::super) async fn handshake(&mut self) -> Result<(), String> {
        poll_fn(|cx| match self.poll_io(cx) {
            Err(broken) => Poll::Ready(Err(self.why(&broken))),
            Ok(()) if self.connection.is_established() => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }

    /// Carries out commands until the connection takes no more calls. Every call is then settled, in
    /// [`Ended::unsent`], or will be answered on [`Ended::leaving`]. One that runs out of time is not settled but let
    /// go: whoever asked has a clock too.
    pub(in super::super) async fn drive(
        mut self,
        commands: &mut UnboundedReceiver<Command>,
        first: Vec<Call>,
    ) -> Ended<S> {
        for call in first {
            self.submit(call);
        }
        let over = poll_fn(|cx| self.poll_drive(cx, commands)).await;
        let unsent = self.connection.take_waiting().map(CallExchange::into_call).collect();
        let (answered, starved) = (self.connection.has_answered(), self.connection.is_starved());
        let (why, leaving) = match over {
            Over::Unwanted => (None, None),
            Over::Leaving => {
                let why = if starved { STARVED } else { LEAVING };
                let goaway = self.connection.goaway().map(|goaway| format!("{why}: {goaway}"));
                (goaway.or_else(|| Some(why.to_owned())), Some(self))
            }
            Over::Lost(broken) => (Some(self.lose(broken).await), None),
        };
        Ended { why, unsent, leaving, answered, starved }
    }

    /// Waits for the answers still due on a connection that takes no new calls; their deadlines bound the time.
    pub(in super::super) async fn finish_calls(&mut self) {
        let lost = poll_fn(|cx| match self.poll_io(cx) {
            Err(broken) => Poll::Ready(Some(broken)),
            Ok(()) if self.connection.is_idle() => Poll::Ready(None),
            Ok(()) => Poll::Pending,
        })
        .await;
        if let Some(broken) = lost {
            self.lose(broken).await;
        }
    }

    /// Is every call settled?
    pub(in super::super) fn is_settled(&self) -> bool {
        self.connection.is_idle()
    }

    /// Resets the calls for which nobody waits any more.
    pub(in super::super) fn cancel_abandoned(&mut self) {
        self.connection.cancel_abandoned();
    }

    /// Gives up the calls that are left.
    pub(in super::super) fn give_up(&mut self, why: &str) {
        self.connection.fail(why);
    }

    fn submit(&mut self, call: Call) {
        self.connection.submit(CallExchange::new(call, self.limits.answer, &self.limits.answers));
    }

    /// Reports the fault to the hook, where that can still be sent, and fails its calls.
    async fn lose(&mut self, broken: Broken) -> String {
        if let Broken::Fault(fault) = broken {
            self.connection.send_goaway(fault);
            // Bytes that do not leave at once do not matter any more.
            poll_fn(|cx| {
                Poll::Ready((self.poll_write(cx).is_ready(), Pin::new(&mut self.io).poll_flush(cx).is_ready()))
            })
            .await;
        }
        let why = self.why(&broken);
        self.connection.fail(&why);
        why
    }

    /// The fault, and the hook's own words before it.
    fn why(&self, broken: &Broken) -> String {
        let what: Cow<'_, str> = match broken {
            Broken::Fault(fault) => format!("the hook {}", fault.what).into(),
            Broken::Lost(what) => (&**what).into(),
        };
        match self.connection.goaway() {
            Some(goaway) => format!("{what}, after {goaway}"),
            None => what.into_owned(),
        }
    }

    fn poll_drive(&mut self, cx: &mut Context<'_>, commands: &mut UnboundedReceiver<Command>) -> Poll<Over> {
        let (mut nobody_asks, mut abandoned) = (false, false);
        loop {
            match commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Ask(call))) => self.submit(call),
                Poll::Ready(Some(Command::CancelAbandoned)) => abandoned = true,
                Poll::Ready(Some(Command::Probe(probe))) => report_connected(probe),
                #[cfg(test)]
                Poll::Ready(Some(Command::Panic)) => panic!("a test said so"),
                Poll::Ready(None) => {
                    nobody_asks = true;
                    break;
                }
                Poll::Pending => break,
            }
        }
        // Once for all: to look through the calls for each would take the square of their number.
        if abandoned {
            self.connection.cancel_abandoned();
        }
        if let Err(broken) = self.poll_io(cx) {
            return Poll::Ready(Over::Lost(broken));
        }
        if self.connection.is_closing() {
            return Poll::Ready(Over::Leaving);
        }
        if nobody_asks && self.connection.is_idle() && self.connection.queued() == 0 {
            return Poll::Ready(Over::Unwanted);
        }
        Poll::Pending
    }

    /// Does all that the socket and the time allow.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        loop {
            // First those that are late, so that none of them is sent.
            while self.poll_alarm(cx).is_ready() {
                self.expire(now())?;
            }
            self.poll_socket(cx)?;
            self.reserve_remains()?;
            self.connection.track_waiting();
            if self.poll_alarm(cx).is_pending() {
                return Ok(());
            }
            self.expire(now())?;
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stuck = self.stalled.filter(|_| self.connection.queued() > 0 || !self.flushed);
        let stuck = stuck.map(|since| since + STALLED_AFTER);
        self.alarm.poll(cx, self.connection.next_deadline().into_iter().chain(stuck).min())
    }

    /// Lets go of the calls whose time is over, and of a connection that takes nothing.
    fn expire(&mut self, now: Instant) -> Result<(), Broken> {
        self.connection.expire(now);
        let stuck = self.stalled.is_some_and(|since| now.duration_since(since) >= STALLED_AFTER);
        if stuck && (self.connection.queued() > 0 || !self.flushed) {
            return Err(Broken::Lost("the hook has taken nothing of what it was sent for 10 s".into()));
        }
        Ok(())
    }

    /// Copied bytes of calls that are over are in the budget for as long as they are queued.
    fn reserve_remains(&mut self) -> Result<(), Broken> {
        let (copied, held) = (self.connection.copied(), self.remains.bytes());
        if copied < held {
            self.remains.shrink_to(copied);
        } else if !self.remains.try_grow(copied - held) {
            return Err(Broken::Lost("gatepost has no memory budget left for what the hook does not read".into()));
        }
        Ok(())
    }

    /// Reads what the socket gives, up to a bound, and writes all that it takes.
    fn poll_socket(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let mut read = 0;
        loop {
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Err(Broken::Lost("the hook closed the connection".into())),
                Poll::Ready(more) => {
                    let more = more?;
                    read += more;
                    self.receive(more)?;
                }
                Poll::Pending => break,
            }
            if read >= READ_AT_ONCE {
                // Wakes this task when the others have had their turn.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                break;
            }
        }
        self.poll_write_all(cx).or_else(|broken| self.hear_out(cx, broken))
    }

    /// The hook takes nothing any more. It may have answered and closed its side just before: what it had said by then
    /// is still to be read, as a failed write discards nothing of it.
    fn hear_out(&mut self, cx: &mut Context<'_>, broken: Broken) -> Result<(), Broken> {
        while let Poll::Ready(Ok(more @ 1..)) = self.poll_read(cx) {
            self.receive(more)?;
        }
        Err(broken)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.connection.read_buffer());
        Pin::new(&mut self.io).poll_read(cx, &mut room).map_ok(|()| room.filled().len())
    }

    fn receive(&mut self, len: usize) -> Result<(), Broken> {
        let received = self.connection.receive(len);
        let goaway = self.connection.goaway();
        for unprocessed in self.connection.take_unprocessed() {
            CallExchange::report(unprocessed, goaway);
        }
        Ok(received?)
    }

    /// Writes once. Ready with 0 when nothing waits.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let io = Pin::new(&mut self.io);
        let written = self.connection.offer(|slices| {
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

    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        loop {
            if !self.blocked {
                self.connection.queue_frames();
            }
            match self.poll_write(cx) {
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

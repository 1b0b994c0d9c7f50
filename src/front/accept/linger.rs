//! Linger: closing a connection without taking back what was said on it.
//!
//! A socket that is closed with bytes unread, or to which bytes come afterwards, resets the connection. The peer then
//! may never see the answer that was on its way: the reset discards what the system still had to send, and some clients
//! (Go's HTTP/2 among them) give up the answers they have not read as soon as a write of theirs fails. So we end our
//! side, and read and drop what the peer still sends, until it has closed its side too.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Sleep, sleep},
};

use crate::front::connection::session::Session;

/// For how long a peer may go on sending after we have hung up: it has to have read its last answer by then.
const LINGER: Duration = Duration::from_secs(3);
/// Most bytes it may send meanwhile: some body that was refused by its head, or several windows of one.
const MOST: usize = 32 << 20;
/// Bytes dropped at once.
const AT_ONCE: usize = 16 << 10;

/// A connection whose shutdown lingers: it is over once the peer has closed its side, or has had its time.
#[derive(Debug)]
pub(crate) struct Lingering<Io> {
    io: Io,
    leave: Leave,
}

/// Stage of a connection's end.
#[derive(Debug)]
enum Leave {
    /// It serves.
    NotYet,
    /// Our side is being ended, or has been; `left` bytes are dropped at the most.
    Taken { until: Pin<Box<Sleep>>, ended: bool, left: usize },
    /// It may be closed.
    Over,
}

impl<Io> Lingering<Io> {
    /// Around that connection.
    pub(crate) fn new(io: Io) -> Self {
        Self { io, leave: Leave::NotYet }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Lingering<Io> {
    /// Drives the end as far as it goes now. Pending while the peer may still send.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Leave::NotYet = self.leave {
            self.leave = Leave::Taken { until: Box::pin(sleep(LINGER)), ended: false, left: MOST };
        }
        let Leave::Taken { until, ended, left } = &mut self.leave else { return Poll::Ready(Ok(())) };
        if until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !*ended {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            *ended = true;
        }
        let mut dropped = [const { MaybeUninit::uninit() }; AT_ONCE];
        while *left > 0 {
            let mut dropped = ReadBuf::uninit(&mut dropped);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut dropped))?;
            match dropped.filled().len() {
                0 => break,
                read => *left = left.saturating_sub(read),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Lingering<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A peer that is gone, or goes on, does not matter any more.
        let _ = ready!(this.poll_leave(cx));
        this.leave = Leave::Over;
        Poll::Ready(Ok(()))
    }
}

/// Ends a connection as [`Lingering`] does.
pub(crate) async fn linger<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) {
    // It does not fail.
    let _ = Lingering::new(io).shutdown().await;
}

/// The same for a caller's connection, which does not linger where another one needs its place.
pub(crate) async fn linger_unless_evicted<Io: AsyncRead + AsyncWrite + Unpin>(io: Io, session: &Session) {
    tokio::select! { biased; () = linger(io) => {}, () = session.evicted() => {} }
}

#[cfg(test)]
#[path = "linger/tests.rs"]
mod tests;

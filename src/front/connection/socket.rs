//! Socket of a connection. It replays the bytes that were read to detect the protocol, meters HTTP/2 frames, times out
//! stalled writes, and lingers on close so that the peer receives the last answer.
//!
//! Closing a socket with unread bytes, or receiving bytes after the close, resets the connection. The peer may then
//! never see the last answer: the reset discards data that the system has not sent yet, and some clients (such as Go's
//! HTTP/2) drop unread answers as soon as one of their writes fails. So the shutdown of a socket *lingers*: it ends our
//! side, then reads and drops data from the peer, until the peer has closed its side too.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Sleep, sleep},
};

use super::meter::{FrameMeter, HTTP2_PREFACE};
use crate::front::accept::client::Session;

/// Time for which a peer may still send after our side is closed. It must have read its last answer by then.
const LINGER_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes that a peer may send while we linger: a body that was refused by its head, or several windows of it.
const MAX_LINGER_BYTES: usize = 32 << 20;
/// Size of the buffer for dropped bytes.
const LINGER_READ: usize = 16 << 10;

/// Version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    /// Anything that is not HTTP/2; hyper rejects everything but HTTP/1.1.
    Http1,
    Http2,
}

/// A connection as the front reads, writes and closes it.
#[derive(Debug)]
pub(crate) struct Socket<Io> {
    io: Io,
    /// Bytes that were read to detect the version of HTTP, to be read again.
    sniffed: Bytes,
    meter: Option<FrameMeter>,
    /// Time for which a write may make no progress.
    write_timeout: Option<Duration>,
    /// Timer that runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
    close: CloseStage,
}

/// Stage of a connection's close.
#[derive(Debug)]
enum CloseStage {
    NotYet,
    /// Our side is being closed, or is closed; at most `left` more bytes are read and dropped.
    Lingering {
        until: Pin<Box<Sleep>>,
        write_side_closed: bool,
        left: usize,
    },
    Done,
}

impl<Io> Socket<Io> {
    pub(crate) fn new(io: Io) -> Self {
        Self { io, sniffed: Bytes::new(), meter: None, write_timeout: None, stalled: None, close: CloseStage::NotYet }
    }

    /// Meters the HTTP/2 frames that are read. Reads fail with [`io::ErrorKind::QuotaExceeded`] if the frames are a
    /// flood.
    pub(crate) fn metered(self, meter: FrameMeter) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// Makes writes fail that have made no progress for `timeout`.
    pub(crate) fn with_write_timeout(self, timeout: Duration) -> Self {
        Self { write_timeout: Some(timeout), ..self }
    }

    fn limit_stall<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Some(timeout) = self.write_timeout else { return progress };
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: AsyncRead + Unpin> Socket<Io> {
    /// Reads until the version of HTTP is known. `None` if the peer closed the connection and sent nothing.
    pub(crate) async fn sniff(&mut self) -> io::Result<Option<HttpVersion>> {
        let mut first = [0; HTTP2_PREFACE.len()];
        let mut len = 0;
        let version = loop {
            let read = self.io.read(&mut first[len..]).await?;
            if read == 0 && len == 0 {
                return Ok(None);
            }
            len += read;
            if read == 0 || first[..len] != HTTP2_PREFACE[..len] {
                break HttpVersion::Http1;
            }
            if len == first.len() {
                break HttpVersion::Http2;
            }
        };
        self.sniffed = Bytes::copy_from_slice(&first[..len]);
        Ok(Some(version))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Socket<Io> {
    /// Closes the connection; returns once the peer has closed its side, or after a timeout.
    pub(crate) async fn close(mut self) {
        // `shutdown` never fails here.
        let _ = self.shutdown().await;
    }

    /// Closes a caller's connection; without lingering if the connection is evicted.
    pub(crate) async fn close_unless_evicted(self, session: &Session) {
        tokio::select! { biased; () = self.close() => {}, () = session.evicted() => {} }
    }

    /// Advances the close. Pending while the peer may still send.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let CloseStage::NotYet = self.close {
            let until = Box::pin(sleep(LINGER_TIMEOUT));
            self.close = CloseStage::Lingering { until, write_side_closed: false, left: MAX_LINGER_BYTES };
        }
        let CloseStage::Lingering { until, write_side_closed, left } = &mut self.close else {
            return Poll::Ready(Ok(()));
        };
        if until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !*write_side_closed {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            *write_side_closed = true;
        }
        let mut dropped = [const { MaybeUninit::uninit() }; LINGER_READ];
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

impl<Io: AsyncRead + Unpin> AsyncRead for Socket<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if this.sniffed.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        } else {
            let len = this.sniffed.len().min(buf.remaining());
            buf.put_slice(&this.sniffed.split_to(len));
        }
        Poll::Ready(match &mut this.meter {
            Some(meter) => meter.count_read(&buf.filled()[before..]),
            None => Ok(()),
        })
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.limit_stall(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.limit_stall(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.io).poll_flush(cx);
        self.limit_stall(cx, progress)
    }

    /// Lingers. Errors of the peer no longer matter.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = ready!(self.poll_linger(cx));
        self.close = CloseStage::Done;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;

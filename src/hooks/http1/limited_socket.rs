//! LimitedSocket: a socket that counts what the hook says, and hears no more than it may say.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a hook has sent since a call began, and the most it may send.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadLimit(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicUsize,
    /// Nothing is asked before the first call begins.
    most: AtomicUsize,
}

impl ReadLimit {
    /// A call begins: the head of its answer is within so many bytes.
    pub(super) fn expect_head(&self, most: usize) {
        self.0.bytes.store(0, Relaxed);
        self.0.most.store(most, Relaxed);
    }

    /// The head is complete: all of the answer is within so many bytes.
    pub(super) fn expect_body(&self, most: usize) {
        self.0.most.store(most, Relaxed);
    }

    pub(super) fn has_read(&self) -> bool {
        self.0.bytes.load(Relaxed) > 0
    }

    /// Counts these; an error where they are too many.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let most = self.0.most.load(Relaxed);
        if self.0.bytes.fetch_add(bytes, Relaxed) + bytes <= most {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {most} bytes and no end of the answer")))
    }
}

/// A socket that counts what the hook says.
#[derive(Debug)]
pub(super) struct LimitedSocket<S> {
    socket: S,
    read_limit: ReadLimit,
}

impl<S> LimitedSocket<S> {
    pub(super) fn new(socket: S, read_limit: ReadLimit) -> Self {
        Self { socket, read_limit }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.read_limit.add(read)?;
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

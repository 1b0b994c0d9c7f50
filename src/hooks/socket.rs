//! Socket: a connection's, whatever its kind, with its room in the connection budget.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use super::connection_budget::Slot;

/// Ciphertext that a TLS connection may hold back. Larger saves system calls; this is where it stops paying.
pub(super) const TLS_BUFFER: usize = 256 << 10;
/// Time for closing a connection in order.
const LEAVING_WITHIN: Duration = Duration::from_secs(1);

/// Transport that is read from and written to.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connected socket, whatever its kind. Its room in the connection budget is given back after it is closed.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Stream,
    slot: Slot,
}

impl Socket {
    pub(super) fn new(stream: Stream, slot: Slot) -> Self {
        Self { stream, slot }
    }

    /// Beyond what its hook is guaranteed.
    pub(super) fn is_beyond_guarantee(&self) -> bool {
        self.slot.is_beyond()
    }

    /// Bytes worth gathering for one write. Over TLS what rustls will buffer; over unix sockets little, as their
    /// buffers are small and larger gathers were measured slower.
    pub(super) fn batch(&self) -> usize {
        match self.stream {
            Stream::Tcp(_) => 1 << 20,
            Stream::Tls(_) => TLS_BUFFER,
            Stream::Unix(_) => 64 << 10,
        }
    }

    /// Closes a connection over which nothing was asked, so that the hook need not take it for a fault.
    pub(super) async fn leave(mut self) {
        // One that does not take the farewell is left without.
        let _ = timeout(LEAVING_WITHIN, self.shutdown()).await;
    }

    /// HTTP/2 was agreed on by ALPN.
    pub(super) fn is_http2(&self) -> bool {
        matches!(&self.stream, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

//! Dialling: an endpoint to a connected socket.

use std::{
    fmt::Display,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::model::{Endpoint, Step, Transport, Unreachable, hook::Address};

/// A peer that acknowledges nothing for so long is gone, whatever it promised: half-open connections to dead pods
/// end here (kubernetes/kubernetes#80313). Also how long an idle connection may go without a sign of life.
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// Ciphertext that a TLS connection may hold back. Larger saves system calls; this is where it stops paying.
const TLS_BUFFER: usize = 256 << 10;

/// So long may it take to say farewell.
const LEAVING_WITHIN: Duration = Duration::from_secs(1);

/// A connected socket, whatever its kind.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    /// Bytes worth gathering for one write. Over TLS what rustls will buffer; over unix sockets little, as their
    /// buffers are small and larger gathers were measured slower.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Tcp(_) => 1 << 20,
            Self::Tls(_) => TLS_BUFFER,
            Self::Unix(_) => 64 << 10,
        }
    }

    /// Closes a connection over which nothing was asked, so that the hook need not take it for a fault.
    pub(super) async fn leave(mut self) {
        // One that does not take the farewell is left without.
        let _ = timeout(LEAVING_WITHIN, self.shutdown()).await;
    }

    /// HTTP/2 was agreed on by ALPN.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

/// Connects. An error says what was tried.
pub(super) async fn dial(endpoint: &Endpoint, tls: Option<&Arc<rustls::ClientConfig>>) -> Result<Socket, Unreachable> {
    let at_tls = |what: String| Unreachable::at(Step::Tls, what);
    let (host, port) = match &endpoint.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(&**path).await;
            let refused = |error| Unreachable::at(Step::Connect, format!("{path}: {error}"));
            return stream.map(Socket::Unix).map_err(refused);
        }
        Address::Tcp { host, port } => (host, *port),
    };
    let stream = connect_any(host, port).await?;
    let (Some(config), Some(names)) = (tls, &endpoint.tls) else { return Ok(Socket::Tcp(stream)) };
    let name = ServerName::try_from(names.server_name.to_string())
        .map_err(|_| at_tls(format!("{:?} cannot be a server's name", names.server_name)))?;
    let mut stream = TlsConnector::from(config.clone())
        .connect(name, stream)
        .await
        .map_err(|error| at_tls(format!("TLS with {host}:{port}: {error}")))?;
    let session = stream.get_mut().1;
    session.set_buffer_limit(Some(TLS_BUFFER));
    if endpoint.transport == Transport::Grpc && session.alpn_protocol() != Some(b"h2") {
        return Err(at_tls(format!("TLS with {host}:{port}: the hook does not offer HTTP/2")));
    }
    Ok(Socket::Tls(Box::new(stream)))
}

/// Tries each address of the host in turn; the last failure speaks for all.
async fn connect_any(host: &str, port: u16) -> Result<TcpStream, Unreachable> {
    let unknown = |why: &dyn Display| Unreachable::at(Step::Resolve, format!("{host}:{port}: {why}"));
    let addresses = lookup_host((host, port)).await.map_err(|error| unknown(&error))?;
    let mut failure = unknown(&"the name has no address");
    for address in addresses {
        match connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = Unreachable::at(Step::Connect, format!("{address}: {error}")),
        }
    }
    Err(failure)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new().with_time(DEAD_AFTER).with_interval(DEAD_AFTER / 4).with_retries(3),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_AFTER))?;
    Ok(stream)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
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
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

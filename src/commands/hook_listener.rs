//! HookListener: listener of a hook in this process, and the connections that it accepts.

use std::{
    convert::Infallible,
    error::Error,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use gatepost_tls::ServerConfig;

/// Timeout of a caller's TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Listener of a hook: TCP, TCP with TLS, or a unix socket.
#[derive(Debug)]
pub(crate) enum HookListener {
    /// TCP, with TLS if there is a configuration for TLS.
    Tcp(TcpListener, Option<Arc<ServerConfig>>),
    /// A unix socket at this path.
    Unix(UnixListener, PathBuf),
}

impl HookListener {
    /// Binds a TCP address. Port 0 selects a free port.
    pub(crate) fn tcp(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
        Ok(Self::Tcp(listen().map_err(named)?, tls))
    }

    /// Binds a unix socket. Fails if the path exists, and does not remove the existing file.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Ok(Self::Unix(UnixListener::bind(path).map_err(named)?, path.to_owned()))
    }

    /// Returns the URL of the hook for `clientConfig.url` in a configuration.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Tcp(listener, tls) => {
                let scheme = if tls.is_some() { "grpcs" } else { "grpc" };
                listener
                    .local_addr()
                    .map_or_else(|_| format!("{scheme}://?"), |address| format!("{scheme}://{address}"))
            }
            Self::Unix(_, path) => format!("unix://{}", path.display()),
        }
    }

    /// Returns the address of the listener with its actual port; `None` for a unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Serves gRPC over HTTP/2 until `stop` completes. Open connections are then served until the runtime is dropped.
    pub(crate) async fn serve<F, B>(
        self,
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        stop: impl Future<Output = ()>,
    ) where
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => return,
            };
            let Ok(accepted) = accepted else {
                // There are no free file descriptors, or the caller has disconnected: accept further callers.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let answer = answer.clone();
            tokio::spawn(async move {
                let Some(caller) = accepted.finish_handshake().await else { return };
                // The caller of a broken connection sees the error.
                let _ = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(2 << 20)
                    .initial_connection_window_size(8 << 20)
                    .max_frame_size(1 << 20)
                    .serve_connection(TokioIo::new(caller), service_fn(answer))
                    .await;
            });
        }
    }

    async fn accept(&self) -> io::Result<PendingSocket> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(match tls {
                    Some(config) => PendingSocket::Tls(stream, TlsAcceptor::from(Arc::clone(config))),
                    None => PendingSocket::Ready(CallerSocket::Tcp(stream)),
                })
            }
            Self::Unix(listener, _) => Ok(PendingSocket::Ready(CallerSocket::Unix(listener.accept().await?.0))),
        }
    }
}

enum PendingSocket {
    Ready(CallerSocket),
    Tls(TcpStream, TlsAcceptor),
}

impl PendingSocket {
    async fn finish_handshake(self) -> Option<CallerSocket> {
        match self {
            Self::Ready(caller) => Some(caller),
            Self::Tls(stream, acceptor) => {
                let shaken = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?;
                shaken.ok().map(|stream| CallerSocket::Tls(Box::new(stream)))
            }
        }
    }
}

/// A caller's connection.
#[derive(Debug)]
pub(crate) enum CallerSocket {
    /// Plain TCP.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
    /// A unix socket.
    Unix(UnixStream),
}

impl AsyncRead for CallerSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for CallerSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
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

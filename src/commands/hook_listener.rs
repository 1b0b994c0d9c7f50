//! HookListener: listener of a hook in this process, and the connections that it accepts.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status, async_trait};
use tower_service::Service as _;

use gatepost_tls::ServerConfig;
use gatepost_wire::{
    names,
    pb::{
        gatepost::v1::admission_server::{Admission, AdmissionServer},
        k8s::io::api::admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
    },
};

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
                let address = listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                format!("{scheme}://{address}")
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

    /// Serves `gatepost.v1.Admission` and the standard health service until dropped. Open connections are then served
    /// until the runtime is dropped.
    pub(crate) async fn serve<F>(self, answer: impl Fn(AdmissionRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<AdmissionResponse, Status>> + Send + 'static,
    {
        let service = AdmissionServer::new(Answers(answer)).max_decoding_message_size(16 << 20);
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status(names::ADMISSION, tonic_health::ServingStatus::Serving).await;
        let answer = move |request: http::Request<Incoming>| {
            let (mut service, mut health_service) = (service.clone(), health_service.clone());
            async move {
                if request.uri().path().starts_with("/grpc.health.v1.Health/") {
                    health_service.call(request).await
                } else {
                    service.call(request).await
                }
            }
        };
        loop {
            let Ok((mut socket, tls)) = self.accept().await else {
                // There are no free file descriptors, or the caller has disconnected: accept further callers.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let answer = answer.clone();
            tokio::spawn(async move {
                if let Some(tls) = tls {
                    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)).await else { return };
                    socket = Box::new(stream);
                }
                // The caller of a broken connection sees the error.
                let _ = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(2 << 20)
                    .initial_connection_window_size(8 << 20)
                    .max_frame_size(1 << 20)
                    .serve_connection(TokioIo::new(socket), service_fn(answer))
                    .await;
            });
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Socket>, Option<TlsAcceptor>)> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), tls.clone().map(TlsAcceptor::from)))
            }
            Self::Unix(listener, _) => Ok((Box::new(listener.accept().await?.0), None)),
        }
    }
}

/// Service that answers every call with this function.
struct Answers<A>(A);

#[async_trait]
impl<A, F> Admission for Answers<A>
where
    A: Fn(AdmissionRequest) -> F + Send + Sync + 'static,
    F: Future<Output = Result<AdmissionResponse, Status>> + Send + 'static,
{
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let request = request.into_inner().request;
        let request = request.ok_or_else(|| Status::invalid_argument("the review has no request"))?;
        let response = self.0(request).await?;
        Ok(Response::new(AdmissionReview { request: None, response: Some(response) }))
    }

    async fn mutate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }
}

/// A caller's connection: TCP, TLS over TCP, or a unix socket.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

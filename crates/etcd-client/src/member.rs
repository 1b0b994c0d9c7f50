//! One endpoint and the connection to it, with TLS if configured.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use gatepost_tls::failure::reason;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::{
    EtcdError,
    access::{EtcdEndpoint, Version},
};

/// Number of unanswered calls in a row after which the connection is replaced, as its peer may be gone without a reset.
/// After only one, a busy server would get a new handshake for every slow call.
const MAX_UNANSWERED_CALLS: u32 = 2;

/// One endpoint and its connection, opened on first use and again after it breaks.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Arc<EtcdEndpoint>,
    connection: Mutex<MemberConnection>,
}

#[derive(Debug, Default)]
struct MemberConnection {
    channel: Option<(u64, Channel)>,
    unanswered: u32,
}

impl Member {
    pub(super) fn new(place: Arc<EtcdEndpoint>) -> Self {
        Self { place, connection: Mutex::default() }
    }

    /// Returns the channel for this TLS configuration. Does not connect by itself.
    pub(super) fn channel(&self, index: usize, version: &Version) -> Result<Channel, EtcdError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, channel)) = &connection.channel
            && *number == version.number
            && connection.unanswered < MAX_UNANSWERED_CALLS
        {
            return Ok(channel.clone());
        }
        let tls = version.configs.get(index).cloned().flatten();
        let channel = self.open(Dialler { place: Arc::clone(&self.place), tls })?;
        *connection = MemberConnection { channel: Some((version.number, channel.clone())), unanswered: 0 };
        Ok(channel)
    }

    /// Records whether the member answered a call, by a result or an error.
    pub(super) fn record_answer(&self, answered: bool) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.unanswered = if answered { 0 } else { connection.unanswered.saturating_add(1) };
    }

    fn open(&self, dialler: Dialler) -> Result<Channel, EtcdError> {
        let authority = self.place.authority();
        let wrong = |cause: &dyn std::fmt::Display| EtcdError::access(&self.place.written, &cause.to_string());
        let scheme = if self.place.tls { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{authority}").parse().map_err(|error| wrong(&error))?;
        // The dialler does TLS: with `https` the channel would do it, too.
        let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| wrong(&error))?;
        let endpoint = endpoint.origin(origin);
        let endpoint = endpoint.user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION"))).map_err(|e| wrong(&e))?;
        Ok(endpoint.connect_with_connector_lazy(dialler))
    }
}

/// Timeout of name lookup, TCP connect and TLS handshake. May exceed that of a read: a later call uses the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of the wait for the server's first byte. In TLS 1.3, a server rejects a client certificate after the
/// client's handshake has ended. Etcd sends first, so reading its first byte returns the reason for the rejection. A
/// server that sends nothing is accepted.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(250);

/// Error of a connection attempt, with the address or step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DialError(pub(super) String);

/// Connector to one endpoint, used by its channel.
#[derive(Clone, Debug)]
pub(super) struct Dialler {
    pub(super) place: Arc<EtcdEndpoint>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// A connected stream, with or without TLS.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

impl Dialler {
    async fn dial(self) -> Result<Box<dyn Socket>, DialError> {
        let attempt = timeout(CONNECT_TIMEOUT, self.connect());
        let late = || DialError(format!("no connection within {}", humantime::format_duration(CONNECT_TIMEOUT)));
        attempt.await.unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self) -> Result<Box<dyn Socket>, DialError> {
        let stream = self.connect_any().await?;
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let host = &self.place.host;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| DialError(format!("{host:?} cannot be the name in a certificate")))?;
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = connecting.await.map_err(|error| DialError(format!("TLS: {}", reason(&error))))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(DialError("TLS: it does not offer HTTP/2, which etcd speaks".to_owned()));
        }
        let mut stream = BufReader::new(stream);
        match timeout(FIRST_BYTE_TIMEOUT, stream.fill_buf()).await {
            Ok(Err(error)) => Err(DialError(format!("TLS: {error}"))),
            Ok(Ok([])) => {
                Err(DialError("TLS: it hung up on us; perhaps over our certificate, or for want of one".into()))
            }
            Ok(Ok(_)) | Err(_) => Ok(Box::new(stream)),
        }
    }

    /// Tries each address of the host in turn. Returns the last error if all fail.
    async fn connect_any(&self) -> Result<TcpStream, DialError> {
        let EtcdEndpoint { host, port, .. } = &*self.place;
        let addresses = lookup_host((&**host, *port)).await;
        let addresses = addresses.map_err(|error| DialError(format!("the name {host} cannot be resolved: {error}")))?;
        let mut failure = format!("the name {host} has no address");
        for address in addresses {
            match TcpStream::connect(address).await.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        Err(DialError(failure))
    }
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    /// Ignores the URI, which names the same endpoint.
    fn call(&mut self, _: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.dial().await.map(TokioIo::new) })
    }
}

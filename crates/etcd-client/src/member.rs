//! Member: one endpoint and the connection to it, over TLS where that is asked for.

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

/// Calls in a row without an answer after which the connection is replaced: its other end may be gone without a word.
/// One is not enough, as a busy server would then get a new handshake each time.
const SILENT: u32 = 2;

/// One endpoint and the connection to it, made when it is first needed and again when it has broken.
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

    /// The connection, over what TLS is done with now. Connects to nothing by itself.
    pub(super) fn channel(&self, index: usize, version: &Version) -> Result<Channel, EtcdError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, channel)) = &connection.channel
            && *number == version.number
            && connection.unanswered < SILENT
        {
            return Ok(channel.clone());
        }
        let tls = version.configs.get(index).cloned().flatten();
        let channel = self.open(Dialler { place: Arc::clone(&self.place), tls })?;
        *connection = MemberConnection { channel: Some((version.number, channel.clone())), unanswered: 0 };
        Ok(channel)
    }

    /// Has it said anything to what it was asked, whatever it was?
    pub(super) fn heard(&self, answered: bool) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.unanswered = if answered { 0 } else { connection.unanswered.saturating_add(1) };
    }

    fn open(&self, dialler: Dialler) -> Result<Channel, EtcdError> {
        let authority = self.place.authority();
        let wrong = |cause: &dyn std::fmt::Display| EtcdError::access(&self.place.written, &cause.to_string());
        let scheme = if self.place.tls { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{authority}").parse().map_err(|error| wrong(&error))?;
        // TLS is the dialler's part; by `https` the channel would take it for its own.
        let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| wrong(&error))?;
        let endpoint = endpoint.origin(origin);
        let endpoint = endpoint.user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION"))).map_err(|e| wrong(&e))?;
        Ok(endpoint.connect_with_connector_lazy(dialler))
    }
}

/// Name, connection and TLS together. Longer than a read has: what is begun in one may end in the next.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// In TLS 1.3 a client is let in or not after its handshake has ended, and hears of it with the first byte. Etcd speaks
/// first, so we wait for that: later the reason for the close would be unknown. A server that does not speak is
/// taken as is.
const SPEAKS_WITHIN: Duration = Duration::from_millis(250);

/// Reason why there is no connection, with what was tried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotDialled(pub(super) String);

/// Connects to one endpoint, for a channel that wants to be connected.
#[derive(Clone, Debug)]
pub(super) struct Dialler {
    pub(super) place: Arc<EtcdEndpoint>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// A connected socket, whatever its kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

impl Dialler {
    async fn dial(self) -> Result<Box<dyn Socket>, NotDialled> {
        let attempt = timeout(CONNECT_WITHIN, self.connect());
        let late = || NotDialled(format!("no connection within {}", humantime::format_duration(CONNECT_WITHIN)));
        attempt.await.unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self) -> Result<Box<dyn Socket>, NotDialled> {
        let stream = self.connect_any().await?;
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let host = &self.place.host;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| NotDialled(format!("{host:?} cannot be the name in a certificate")))?;
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = connecting.await.map_err(|error| NotDialled(format!("TLS: {}", reason(&error))))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(NotDialled("TLS: it does not offer HTTP/2, which etcd speaks".to_owned()));
        }
        let mut stream = BufReader::new(stream);
        match timeout(SPEAKS_WITHIN, stream.fill_buf()).await {
            Ok(Err(error)) => Err(NotDialled(format!("TLS: {error}"))),
            Ok(Ok([])) => {
                Err(NotDialled("TLS: it hung up on us; perhaps over our certificate, or for want of one".into()))
            }
            Ok(Ok(_)) | Err(_) => Ok(Box::new(stream)),
        }
    }

    /// Tries each address of the host in turn; the last failure speaks for all.
    async fn connect_any(&self) -> Result<TcpStream, NotDialled> {
        let EtcdEndpoint { host, port, .. } = &*self.place;
        let addresses = lookup_host((&**host, *port)).await;
        let addresses =
            addresses.map_err(|error| NotDialled(format!("the name {host} cannot be resolved: {error}")))?;
        let mut failure = format!("the name {host} has no address");
        for address in addresses {
            match TcpStream::connect(address).await.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = format!("{address}: {error}"),
            }
        }
        Err(NotDialled(failure))
    }
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = NotDialled;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NotDialled>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotDialled>> {
        Poll::Ready(Ok(()))
    }

    /// The channel's own idea of the address is the same as ours.
    fn call(&mut self, _: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.dial().await.map(TokioIo::new) })
    }
}

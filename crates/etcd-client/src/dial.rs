//! Dialling: an endpoint to a connected socket, over TLS where that is asked for.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::access::EtcdEndpoint;
use gatepost_tls::error_text::reason;

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

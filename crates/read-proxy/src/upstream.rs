//! The apiserver to which requests pass, and connections to it.

use std::{io, sync::Arc, time::Duration};

use http::Uri;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::BufReader,
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use gatepost_api::{Transport, hook::EndpointTls};
use gatepost_kube_support::ApiEndpoint;
use gatepost_tls::{ClientConfig, SystemRoots, TlsError};

/// Timeout of a connection attempt, from the name lookup to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Sizes of the read buffer, in bytes: for pooled and for upgraded connections. rustls reads 4 KiB at a time, which
/// takes many reads for a list. An upgraded connection uses rustls's size.
const READ_BUFFER_BYTES: (usize, usize) = (32 << 10, 4 << 10);
/// Silence after which TCP keepalive probes an apiserver.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Apiserver to which requests pass, with one kind of credentials.
#[derive(Clone, Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    name: ServerName<'static>,
    /// TLS configuration for HTTP/2, or HTTP/1.1 if the server does not offer it.
    any: Arc<ClientConfig>,
    /// TLS configuration for HTTP/1.1.
    http1: Arc<ClientConfig>,
}

/// Reason why an apiserver cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The address is invalid, or without TLS.
    #[error("the apiserver's address {0:?} is not https://host[:port]")]
    Address(String),
    /// The certificates are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Upstream {
    /// Creates the upstream of an endpoint; the client certificate is given as the PEM texts of chain and key.
    ///
    /// # Errors
    /// [`UpstreamError`] if address or certificates are invalid.
    pub fn new(endpoint: &ApiEndpoint, certificate: Option<(&[u8], &[u8])>) -> Result<Self, UpstreamError> {
        let address = || UpstreamError::Address(endpoint.url.clone());
        let url: Uri = endpoint.url.parse().map_err(|_| address())?;
        let plain = url.scheme_str() == Some("https") && matches!(url.path(), "" | "/") && url.query().is_none();
        let host = url.host().filter(|_| plain).ok_or_else(address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = endpoint.server_name.clone().unwrap_or_else(|| host.clone());
        let settings = EndpointTls {
            server_name: server_name.as_str().into(),
            ca_pem: endpoint.ca_pem.as_deref().map(|pem| pem.as_bytes().into()),
            client_pem: certificate.map(|(chain, key)| (chain.into(), key.into())),
        };
        let any = gatepost_tls::client_config(&settings, Transport::Http, &SystemRoots::default())?;
        let http1 = gatepost_tls::without_http2(&any);
        let name = ServerName::try_from(server_name.clone()).map_err(|_| TlsError::BadServerName(server_name))?;
        Ok(Self { host, port: url.port_u16().unwrap_or(443), name, any, http1 })
    }

    /// Returns the authority of the URL.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Opens a connection, including the TLS handshake; for HTTP/1.1 only, if `http1` is true.
    pub(super) async fn connect(&self, http1: bool) -> io::Result<TlsStream<BufReader<TcpStream>>> {
        let (config, buffer_bytes) =
            if http1 { (&self.http1, READ_BUFFER_BYTES.1) } else { (&self.any, READ_BUFFER_BYTES.0) };
        let config = Arc::clone(config);
        let connecting = async {
            let mut failed = None;
            for address in lookup_host((&*self.host, self.port)).await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
                        let stream = BufReader::with_capacity(buffer_bytes, stream);
                        return TlsConnector::from(config).connect(self.name.clone(), stream).await;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            Err(failed.unwrap_or_else(|| io::Error::other("its name has no address")))
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_TIMEOUT:?}"));
        timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_tls_and_no_path() {
        let ca = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap().cert.pem();
        let upstream = |url: &str| {
            let endpoint = ApiEndpoint {
                url: url.to_owned(),
                ca_pem: Some(ca.clone()),
                server_name: Some("kubernetes".to_owned()),
            };
            Upstream::new(&endpoint, None)
        };
        let authority = |url| upstream(url).map(|upstream| upstream.authority());
        assert_eq!(authority("https://127.0.0.1:6443"), Ok("127.0.0.1:6443".to_owned()));
        assert_eq!(authority("https://[::1]"), Ok("[::1]:443".to_owned()));
        for wrong in ["http://127.0.0.1:6443", "https://a/b", "127.0.0.1:6443", ""] {
            assert_eq!(authority(wrong), Err(UpstreamError::Address(wrong.to_owned())));
        }
    }
}

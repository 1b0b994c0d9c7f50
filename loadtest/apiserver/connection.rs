//! Connection: one HTTP/2 connection to the apiserver, kept as client-go keeps its own.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::cluster::Cluster;
use crate::Fallible;

/// Wide enough that the apiserver never waits for us to read its answer.
const WINDOW: u32 = 2 << 20;

/// One connection; one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    origin: String,
    authorization: String,
}

impl Connection {
    pub(crate) async fn open(cluster: &Cluster) -> Fallible<Self> {
        let socket = TcpStream::connect(cluster.address).await?;
        socket.set_nodelay(true)?;
        let name = cluster.address.ip().into();
        let socket = TlsConnector::from(cluster.tls.clone()).connect(name, socket).await?;
        let (requests, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(socket))
            .await?;
        // A fault that breaks it is reported to the request that waits for an answer.
        tokio::spawn(connection);
        let origin = format!("https://{}", cluster.address);
        Ok(Self { requests, origin, authorization: format!("Bearer {}", cluster.token) })
    }

    /// One request; the answer's body is still to be read.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Fallible<(StatusCode, Incoming)> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.origin))
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(Full::new(body))?;
        self.requests.ready().await?;
        let (head, body) = self.requests.send_request(request).await?.into_parts();
        Ok((head.status, body))
    }

    /// One request, and the whole answer.
    pub(crate) async fn ask(&mut self, method: Method, path: &str, body: Bytes) -> Fallible<(StatusCode, Bytes)> {
        let (status, body) = self.send(method, path, body).await?;
        Ok((status, body.collect().await?.to_bytes()))
    }
}

/// The beginning of an answer, for people.
pub(crate) fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(600).collect()
}

//! Pool of connections to an apiserver, for requests that may share them.
//!
//! Over HTTP/2, a connection carries [`MAX_STREAMS_PER_CONNECTION`] requests, and its window is as large as those of
//! its streams together: a client that does not read its watch fills its own stream and blocks no other. Over HTTP/1.1,
//! a connection carries one request at a time.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{
    HeaderValue, Method, Request, Response, Uri, Version,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::PathAndQuery,
};
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::{body::Body, upstream::Upstream};

/// Maximum number of concurrent requests on one HTTP/2 connection. An apiserver accepts 100 by default.
// source: kube-apiserver --http2-max-streams-per-connection, and its default in kubernetes/apiserver
// pkg/server/secure_serving.go.
const MAX_STREAMS_PER_CONNECTION: usize = 64;
/// HTTP/2 window of one response, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;
/// HTTP/2 window of one connection, in bytes.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 64;
/// Maximum number of concurrent dials; other requests wait, and may then use one of the new connections.
const MAX_CONCURRENT_DIALS: usize = 8;
/// Maximum number of idle HTTP/1.1 connections.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// Silence after which an HTTP/2 connection is pinged, and the timeout of the ping.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// Maximum number of attempts to send a request of which nothing was sent before its connection ended.
const MAX_ATTEMPTS: usize = 3;

/// Connections to an apiserver with the same authentication.
#[derive(Debug)]
pub(super) struct Pool {
    upstream: Mutex<Arc<Upstream>>,
    connections: Arc<Connections>,
    dials: Semaphore,
}

#[derive(Debug, Default)]
struct Connections(Mutex<OpenConnections>);

#[derive(Debug, Default)]
struct OpenConnections {
    http2: Vec<Http2>,
    http1: Vec<http1::SendRequest<Body>>,
    /// Number of changes of the upstream: connections of an earlier epoch are not reused.
    epoch: usize,
}

#[derive(Clone, Debug)]
struct Http2 {
    sender: http2::SendRequest<Body>,
    streams: Arc<AtomicUsize>,
}

/// Place of one request on a connection, until the end of its response.
#[derive(Debug)]
struct Lease(Leased);

#[derive(Debug)]
enum Leased {
    Http2(Arc<AtomicUsize>),
    Http1 { sender: Option<http1::SendRequest<Body>>, pool: Arc<Connections>, epoch: usize },
}

/// Connection for a request.
enum SelectedConnection {
    Http2(Http2),
    Http1(http1::SendRequest<Body>, usize),
}

/// Reason why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No connection could be opened.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection was lost before the response.
    #[error("the connection was lost")]
    Lost(#[source] hyper::Error),
}

impl Pool {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self {
            upstream: Mutex::new(Arc::new(upstream)),
            connections: Arc::default(),
            dials: Semaphore::new(MAX_CONCURRENT_DIALS),
        }
    }

    /// Sends new requests to this upstream. Requests in progress complete on their connections.
    pub(super) fn replace(&self, upstream: Upstream) {
        *locked(&self.upstream) = Arc::new(upstream);
        let mut open = locked(&self.connections.0);
        *open = OpenConnections { epoch: open.epoch + 1, ..OpenConnections::default() };
    }

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&locked(&self.upstream))
    }

    /// Sends a request, and returns the head of its response. Retries on another connection if nothing of the request
    /// was sent; sends no other request twice.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        set_length(&mut request);
        let mut attempts = MAX_ATTEMPTS;
        loop {
            attempts -= 1;
            let (answer, lease) = match self.choose().await? {
                SelectedConnection::Http2(mut connection) => {
                    address_http2(&mut request, &self.upstream());
                    // The place was taken when the connection was chosen.
                    let lease = Lease(Leased::Http2(connection.streams));
                    (connection.sender.try_send_request(request).await, lease)
                }
                SelectedConnection::Http1(mut sender, epoch) => {
                    address_http1(&mut request, &self.upstream());
                    let sent = sender.try_send_request(request).await;
                    let pool = Arc::clone(&self.connections);
                    (sent, Lease(Leased::Http1 { sender: Some(sender), pool, epoch }))
                }
            };
            match answer {
                Ok(answer) => return Ok(answer.map(|body: Incoming| Body::leased(body, Box::new(lease)))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if attempts > 0 => request = unsent,
                    _ => return Err(SendError::Lost(error.into_error())),
                },
            }
        }
    }

    /// Returns a connection with a free place, or dials a new one.
    async fn choose(&self) -> io::Result<SelectedConnection> {
        if let Some(chosen) = self.connections.take() {
            return Ok(chosen);
        }
        // The semaphore is never closed.
        let _dial = self.dials.acquire().await.map_err(io::Error::other)?;
        match self.connections.take() {
            Some(chosen) => Ok(chosen),
            None => self.dial().await,
        }
    }

    async fn dial(&self) -> io::Result<SelectedConnection> {
        let epoch = locked(&self.connections.0).epoch;
        let stream = self.upstream().connect(false).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            return Ok(SelectedConnection::Http1(sender, epoch));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .keep_alive_while_idle(true)
            .max_header_list_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        let connection = Http2 { sender, streams: Arc::new(AtomicUsize::new(1)) };
        let mut open = locked(&self.connections.0);
        if open.epoch == epoch {
            open.http2.push(connection.clone());
        }
        Ok(SelectedConnection::Http2(connection))
    }
}

impl Connections {
    fn take(&self) -> Option<SelectedConnection> {
        let mut open = locked(&self.0);
        let OpenConnections { http2, http1, epoch } = &mut *open;
        http2.retain(|connection| !connection.sender.is_closed());
        if let Some(free) = http2.iter().find(|connection| connection.has_room()) {
            free.streams.fetch_add(1, Relaxed);
            return Some(SelectedConnection::Http2(free.clone()));
        }
        http1.retain(|sender| !sender.is_closed());
        let ready = http1.iter().rposition(http1::SendRequest::is_ready)?;
        Some(SelectedConnection::Http1(http1.swap_remove(ready), *epoch))
    }
}

impl Http2 {
    fn has_room(&self) -> bool {
        self.streams.load(Relaxed) < MAX_STREAMS_PER_CONNECTION
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match &mut self.0 {
            Leased::Http2(streams) => {
                streams.fetch_sub(1, Relaxed);
            }
            Leased::Http1 { sender, pool, epoch } => {
                let mut open = locked(&pool.0);
                // A connection whose response was not read to its end closes by itself.
                if open.epoch == *epoch && open.http1.len() < MAX_IDLE_CONNECTIONS {
                    open.http1.extend(sender.take().filter(|sender| !sender.is_closed()));
                }
            }
        }
    }
}

/// Returns path and query of a request.
fn path_and_query<B>(request: &Request<B>) -> PathAndQuery {
    request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn address_http2(request: &mut Request<Body>, upstream: &Upstream) {
    let path = path_and_query(request);
    let uri = Uri::builder().scheme("https").authority(upstream.authority()).path_and_query(path).build();
    // The parts come from a parsed URL, so that the result is valid.
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    request.headers_mut().remove(HOST);
    *request.version_mut() = Version::HTTP_2;
}

/// Sets the request's target and `Host` for HTTP/1.1.
pub(super) fn address_http1(request: &mut Request<Body>, upstream: &Upstream) {
    *request.uri_mut() = Uri::from(path_and_query(request));
    if let Ok(host) = HeaderValue::try_from(upstream.authority()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
}

/// Sets the length fields according to the body. hyper trusts a given `Content-Length`: if the body were shorter, the
/// apiserver would take the next request on the connection, of any user, for the rest of the body.
pub(super) fn set_length(request: &mut Request<Body>) {
    request.headers_mut().remove(TRANSFER_ENCODING);
    request.headers_mut().remove(CONTENT_LENGTH);
    // hyper sets the length of other bodies, and none for an empty body. Some servers require a length for these
    // methods.
    if request.body().is_end_stream() && matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Pool: connections to an apiserver, shared by the requests that may share them.
//!
//! Over HTTP/2 a connection carries [`MOST_STREAMS`] requests, and its window is as large as those of its streams
//! together: a client that does not read its watch fills its own stream and holds up no other. Over HTTP/1.1 a connection
//! carries one request at a time.

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

/// Requests on one HTTP/2 connection. An apiserver takes 100 of them, unless told otherwise.
// source: kube-apiserver --http2-max-streams-per-connection, and its default in kubernetes/apiserver
// pkg/server/secure_serving.go.
const MOST_STREAMS: usize = 64;
/// Unread bytes of one answer.
const STREAM_WINDOW: u32 = 256 << 10;
/// Unread bytes of one connection.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 64;
/// Connections that are made at the same time; others wait, and may find room on one of these.
const DIALS: usize = 8;
/// HTTP/1.1 connections that are kept for later requests.
const MOST_IDLE: usize = 256;
/// A silent HTTP/2 connection is asked after this, and given up after that.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// Times that a request is sent which a connection had not begun to send when it ended.
const ATTEMPTS: usize = 3;

/// Connections to an apiserver that authenticate alike.
#[derive(Debug)]
pub(super) struct Pool {
    upstream: Mutex<Arc<Upstream>>,
    connections: Arc<Connections>,
    dials: Semaphore,
}

#[derive(Debug, Default)]
struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    http2: Vec<Http2>,
    http1: Vec<http1::SendRequest<Body>>,
    /// Counts the changes of the apiserver: connections to a former one are not used again.
    epoch: usize,
}

#[derive(Clone, Debug)]
struct Http2 {
    sender: http2::SendRequest<Body>,
    streams: Arc<AtomicUsize>,
}

/// Place of one request on a connection, until the end of its answer.
#[derive(Debug)]
struct Lease(Leased);

#[derive(Debug)]
enum Leased {
    Http2(Arc<AtomicUsize>),
    Http1 { sender: Option<http1::SendRequest<Body>>, pool: Arc<Connections>, epoch: usize },
}

/// Connection that a request is about to be sent on.
enum Chosen {
    Http2(Http2),
    Http1(http1::SendRequest<Body>, usize),
}

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection was lost.
    #[error("the connection was lost")]
    Lost(#[source] hyper::Error),
}

impl Pool {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self { upstream: Mutex::new(Arc::new(upstream)), connections: Arc::default(), dials: Semaphore::new(DIALS) }
    }

    /// New requests go there; those under way end where they began.
    pub(super) fn replace(&self, upstream: Upstream) {
        *locked(&self.upstream) = Arc::new(upstream);
        let mut open = locked(&self.connections.0);
        *open = Open { epoch: open.epoch + 1, ..Open::default() };
    }

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&locked(&self.upstream))
    }

    /// Sends a request, and gives the head of its answer. A request of which nothing was sent is sent on another
    /// connection; no other is sent twice.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        set_length(&mut request);
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let (answer, lease) = match self.choose().await? {
                Chosen::Http2(mut connection) => {
                    address_http2(&mut request, &self.upstream());
                    // The place was taken when the connection was chosen.
                    let lease = Lease(Leased::Http2(connection.streams));
                    (connection.sender.try_send_request(request).await, lease)
                }
                Chosen::Http1(mut sender, epoch) => {
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

    /// A connection with room, or a new one.
    async fn choose(&self) -> io::Result<Chosen> {
        if let Some(chosen) = self.connections.take() {
            return Ok(chosen);
        }
        // It is never closed.
        let _dial = self.dials.acquire().await.map_err(io::Error::other)?;
        match self.connections.take() {
            Some(chosen) => Ok(chosen),
            None => self.dial().await,
        }
    }

    async fn dial(&self) -> io::Result<Chosen> {
        let epoch = locked(&self.connections.0).epoch;
        let stream = self.upstream().connect(false).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            return Ok(Chosen::Http1(sender, epoch));
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
        Ok(Chosen::Http2(connection))
    }
}

impl Connections {
    fn take(&self) -> Option<Chosen> {
        let mut open = locked(&self.0);
        let Open { http2, http1, epoch } = &mut *open;
        http2.retain(|connection| !connection.sender.is_closed());
        if let Some(free) = http2.iter().find(|connection| connection.has_room()) {
            free.streams.fetch_add(1, Relaxed);
            return Some(Chosen::Http2(free.clone()));
        }
        http1.retain(|sender| !sender.is_closed());
        let ready = http1.iter().rposition(http1::SendRequest::is_ready)?;
        Some(Chosen::Http1(http1.swap_remove(ready), *epoch))
    }
}

impl Http2 {
    fn has_room(&self) -> bool {
        self.streams.load(Relaxed) < MOST_STREAMS
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
                // One whose answer was not read to its end closes by itself.
                if open.epoch == *epoch && open.http1.len() < MOST_IDLE {
                    open.http1.extend(sender.take().filter(|sender| !sender.is_closed()));
                }
            }
        }
    }
}

/// Path and query of a request.
fn path_and_query<B>(request: &Request<B>) -> PathAndQuery {
    request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn address_http2(request: &mut Request<Body>, upstream: &Upstream) {
    let path = path_and_query(request);
    let uri = Uri::builder().scheme("https").authority(upstream.authority()).path_and_query(path).build();
    // The parts were those of a URL before.
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    request.headers_mut().remove(HOST);
    *request.version_mut() = Version::HTTP_2;
}

/// Writes the request's target as HTTP/1.1 has it.
pub(super) fn address_http1(request: &mut Request<Body>, upstream: &Upstream) {
    *request.uri_mut() = Uri::from(path_and_query(request));
    if let Ok(host) = HeaderValue::try_from(upstream.authority()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
}

/// Sets the length fields to what the body has. hyper believes a `Content-Length` that it is given: if the body is shorter,
/// the apiserver takes the next request on the connection, of any user, for the rest of it.
pub(super) fn set_length(request: &mut Request<Body>) {
    request.headers_mut().remove(TRANSFER_ENCODING);
    request.headers_mut().remove(CONTENT_LENGTH);
    // hyper writes the length of other bodies itself, and none where there is no content. Some servers want one of these
    // methods.
    if request.body().is_end_stream() && matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

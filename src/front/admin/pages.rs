//! Pages for operators, of the sidecar and the read proxy: HTTP/1.1, read only, with few requests at a time.

use std::{collections::VecDeque, convert::Infallible, fmt, future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    front::connection::socket::Socket,
    telemetry::{self, Throttle},
};
use gatepost_tls::ServerTls;

/// Timeout of a request's head, and of a TLS handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum lifetime of an operator's connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent connections of operators; one more closes the oldest.
const MAX_CONNECTIONS: usize = 64;
/// Time for which a write of a page may make no progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of large pages that are rendered concurrently.
const MAX_CONCURRENT_RENDERS: usize = 2;
/// Timeout for rendering a page, including the wait for its turn.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const TEXT: &str = "text/plain; charset=utf-8";
/// Path of the page that every process has: a process that answers is alive.
const LIVEZ: &str = "/livez";

/// One page.
pub type AdminPage = Response<Full<Bytes>>;

/// Provider of the pages of one process.
pub trait AdminPages: Send + Sync + 'static {
    /// Paths of the pages, besides `/livez`.
    const PATHS: &'static [&'static str];

    /// Returns true if the page may take as long as many requests. Such a page is rendered on a thread of its own.
    fn is_large(uri: &Uri) -> bool;

    /// Returns the page at one of the paths.
    fn page(&self, uri: &Uri) -> AdminPage;
}

/// Serves on the current runtime until `shutdown`; connections still open are then closed.
pub async fn serve<P: AdminPages>(
    pages: P,
    tls: Option<Arc<ServerTls>>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let served = Arc::new(PageServer { pages, tls, render_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_RENDERS)) });
    let (mut connections, mut oldest_first) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    while connections.try_join_next().is_some() {}
                    if oldest_first.len() >= MAX_CONNECTIONS {
                        oldest_first.retain(|connection| !connection.is_finished());
                    }
                    // A client that keeps connections open must not exclude liveness probes.
                    if oldest_first.len() >= MAX_CONNECTIONS
                        && let Some(oldest) = oldest_first.pop_front()
                    {
                        oldest.abort();
                    }
                    let served = Arc::clone(&served);
                    oldest_first.push_back(connections.spawn(served.connection(stream)));
                }
                Err(error) => {
                    static ACCEPT_ERRORS: Throttle = Throttle::new();
                    if let Some(suppressed) = ACCEPT_ERRORS.pass() {
                        tracing::warn!(%error, suppressed, "cannot accept admin connections; trying again after a pause");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! { () = accepting => {}, () = shutdown => {} }
}

/// Server of the pages on all connections.
struct PageServer<P> {
    pages: P,
    /// TLS for the pages, if other machines can reach them.
    tls: Option<Arc<ServerTls>>,
    /// One permit for each large page that is being rendered.
    render_permits: Arc<Semaphore>,
}

impl<P: AdminPages> PageServer<P> {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let Some(tls) = &self.tls else { return self.pages(stream).await };
        match timeout(HEAD_TIMEOUT, TlsAcceptor::from(tls.admin()).accept(stream).into_fallible()).await {
            Ok(Ok(stream)) => self.pages(stream).await,
            Ok(Err((error, stream))) => {
                tracing::debug!(%error, "an admin connection's TLS handshake failed");
                Socket::new(stream).close().await;
            }
            Err(_) => tracing::debug!("an admin connection's TLS handshake was not finished in time"),
        }
    }

    async fn pages<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self: &Arc<Self>, stream: Io) {
        let stream = Socket::new(stream).with_write_timeout(WRITE_TIMEOUT);
        let service = service_fn(|request: Request<Incoming>| {
            Box::pin(async move { Ok::<_, Infallible>(self.answer(&request).await) })
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        match timeout(CONNECTION_TIMEOUT, poll_fn(|cx| connection.poll_without_shutdown(cx))).await {
            Ok(Err(error)) if !error.is_parse() => return tracing::debug!(%error, "an admin connection broke"),
            Ok(Err(error)) => tracing::debug!(%error, "an admin connection did not speak HTTP/1.1"),
            Ok(Ok(())) | Err(_) => {}
        }
        connection.into_parts().io.into_inner().close().await;
    }

    async fn answer<B>(self: &Arc<Self>, request: &Request<B>) -> AdminPage {
        let path = request.uri().path();
        if path != LIVEZ && !P::PATHS.contains(&path) {
            return text(StatusCode::NOT_FOUND, format!("there are {}\n", listed(P::PATHS)));
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} can only be read: use GET\n"));
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            LIVEZ => text(StatusCode::OK, "ok\n".into()),
            _ if P::is_large(request.uri()) => self.render_offloaded(request.uri().clone()).await,
            _ => self.pages.page(request.uri()),
        }
    }

    /// Renders the page on another thread: with ten thousand hooks it takes as long as many reviews.
    async fn render_offloaded(self: &Arc<Self>, uri: Uri) -> AdminPage {
        let server = Arc::clone(self);
        let rendering = async {
            let turn = Arc::clone(&self.render_permits).acquire_owned().await.ok()?;
            let rendered = spawn_blocking(move || {
                let page = server.pages.page(&uri);
                drop(turn);
                page
            });
            rendered.await.ok()
        };
        let late = || text(StatusCode::SERVICE_UNAVAILABLE, "the page could not be made in time; try again\n".into());
        timeout(PAGE_TIMEOUT, rendering).await.ok().flatten().unwrap_or_else(late)
    }
}

/// Returns `/livez` and `paths` as a list in a sentence.
fn listed(paths: &[&str]) -> String {
    match paths.split_last() {
        Some((last, others)) => format!("{} and {last}", [&[LIVEZ][..], others].concat().join(", ")),
        None => LIVEZ.to_owned(),
    }
}

/// Returns a page of plain text.
pub fn text(status: StatusCode, text: String) -> AdminPage {
    body(status, TEXT, text)
}

/// Returns a page of metrics.
pub fn metrics(rendered: Result<String, fmt::Error>) -> AdminPage {
    match rendered {
        Ok(page) => body(StatusCode::OK, telemetry::CONTENT_TYPE, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be printed: {error}\n")),
    }
}

/// Returns a page of the content type `kind`.
pub(super) fn body(status: StatusCode, kind: &'static str, text: String) -> AdminPage {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

//! The admin address: `/livez`, `/readyz`, `/metrics`, `/configz`. HTTP/1.1, read only.

pub(crate) mod configz;
pub mod readiness;

use std::{collections::VecDeque, convert::Infallible, future::poll_fn, sync::Arc, time::Duration};

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

use self::readiness::{Readiness, degradations};
use super::{accept::linger::linger, connection::stall_limit::StallLimit};
use crate::{
    live::{Current, Namespaces},
    replicas::Replica,
    telemetry::{self, Metrics, Throttle},
    tls::ServerTls,
};

/// Time within which a request's head must be there.
const HEAD: Duration = Duration::from_secs(5);
/// The longest an operator's connection lasts.
const CONNECTION: Duration = Duration::from_secs(60);
/// Operators' connections at once; one more ends the oldest.
const CONNECTIONS: usize = 64;
/// For so long an operator may take nothing of a page.
const STALL: Duration = Duration::from_secs(10);
/// Pages that are being made at once, and how long one may take, waiting for its turn included.
const PAGES: (usize, Duration) = (2, Duration::from_secs(10));
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(200);
const TEXT: &str = "text/plain; charset=utf-8";

/// State that operators may see.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Generation in force.
    pub current: Arc<Current>,
    /// This replica, and the progress of publishing its reports.
    pub replica: Arc<Replica>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// TLS for the pages, where other machines can reach them.
    pub tls: Option<Arc<ServerTls>>,
}

impl Admin {
    /// Serves on the runtime this is polled on until `shutdown`; connections still open are then closed.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let pages = Pages { admin: Arc::new(self), making: Arc::new(Semaphore::new(PAGES.0)) };
        let (mut connections, mut oldest_first) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        while connections.try_join_next().is_some() {}
                        if oldest_first.len() >= CONNECTIONS {
                            oldest_first.retain(|connection| !connection.is_finished());
                        }
                        // Whoever keeps connections open must not keep a probe from asking whether we live.
                        if oldest_first.len() >= CONNECTIONS
                            && let Some(oldest) = oldest_first.pop_front()
                        {
                            oldest.abort();
                        }
                        let pages = pages.clone();
                        oldest_first.push_back(connections.spawn(async move { pages.connection(stream).await }));
                    }
                    Err(error) => {
                        static CANNOT: Throttle = Throttle::new();
                        if let Some(held_back) = CANNOT.pass() {
                            tracing::warn!(%error, held_back, "cannot accept admin connections; trying again after a pause");
                        }
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! { () = accepting => {}, () = shutdown => {} }
    }
}

/// The pages, as one connection asks for them.
#[derive(Clone)]
struct Pages {
    admin: Arc<Admin>,
    making: Arc<Semaphore>,
}

impl Pages {
    async fn connection(&self, stream: TcpStream) {
        let Some(tls) = &self.admin.tls else { return self.pages(stream).await };
        match timeout(HEAD, TlsAcceptor::from(tls.admin()).accept(stream).into_fallible()).await {
            Ok(Ok(stream)) => self.pages(stream).await,
            Ok(Err((error, stream))) => {
                tracing::debug!(%error, "an admin connection's TLS handshake failed");
                linger(stream).await;
            }
            Err(_) => tracing::debug!("an admin connection's TLS handshake was not finished in time"),
        }
    }

    async fn pages<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: Io) {
        let stream = StallLimit::new(stream, STALL);
        let service = service_fn(|request: Request<Incoming>| {
            Box::pin(async move { Ok::<_, Infallible>(self.answer(&request).await) })
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        match timeout(CONNECTION, poll_fn(|cx| connection.poll_without_shutdown(cx))).await {
            Ok(Err(error)) if !error.is_parse() => return tracing::debug!(%error, "an admin connection broke"),
            Ok(Err(error)) => tracing::debug!(%error, "an admin connection did not speak HTTP/1.1"),
            Ok(Ok(())) | Err(_) => {}
        }
        linger(connection.into_parts().io.into_inner()).await;
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/livez" | "/readyz" | "/metrics" | "/configz") {
            return text(StatusCode::NOT_FOUND, "there are /livez, /readyz, /metrics and /configz\n".into());
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} can only be read: use GET\n"));
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/livez" => text(StatusCode::OK, "ok\n".into()),
            "/readyz" if has(request.uri(), "verbose") => self.made(Admin::readyz_verbose).await,
            "/readyz" => {
                let among_replicas = has(request.uri(), "fresh");
                let of = if among_replicas { Readiness::among_replicas } else { Readiness::of };
                let readiness = of(&self.admin.current);
                text(status_of(readiness), format!("{readiness}\n"))
            }
            "/metrics" => self.made(Admin::metrics).await,
            _ => self.made(Admin::configz).await,
        }
    }

    /// The page, made on a thread beside this one: of ten thousand hooks it takes as long as many a review.
    async fn made(&self, make: fn(&Admin) -> Response<Full<Bytes>>) -> Response<Full<Bytes>> {
        let admin = Arc::clone(&self.admin);
        let making = async {
            let turn = Arc::clone(&self.making).acquire_owned().await.ok()?;
            let made = spawn_blocking(move || {
                let page = make(&admin);
                drop(turn);
                page
            });
            made.await.ok()
        };
        let late = || text(StatusCode::SERVICE_UNAVAILABLE, "the page could not be made in time; try again\n".into());
        timeout(PAGES.1, making).await.ok().flatten().unwrap_or_else(late)
    }
}

impl Admin {
    /// The readiness, and below it what is amiss without making us unready.
    fn readyz_verbose(&self) -> Response<Full<Bytes>> {
        let (readiness, degradations) = (Readiness::of(&self.current), degradations(&self.current));
        let degraded = if degradations.is_empty() { "" } else { ", degraded" };
        let lines: String = degradations.iter().map(|line| format!("[-] {line}\n")).collect();
        text(status_of(readiness), format!("{readiness}{degraded}\n{lines}"))
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        match self.metrics.render() {
            Ok(page) => body(StatusCode::OK, telemetry::CONTENT_TYPE, page),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be printed: {error}\n")),
        }
    }

    fn configz(&self) -> Response<Full<Bytes>> {
        let page = configz::page(&self.current, &self.replica, self.namespaces.as_deref());
        body(StatusCode::OK, "application/json", format!("{page:#}\n"))
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    body(status, TEXT, text)
}

fn body(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn status_of(readiness: Readiness) -> StatusCode {
    match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::NeverRead | Readiness::Rejected | Readiness::Nameless | Readiness::Stale | Readiness::Draining => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// Does the query have this key?
fn has(uri: &Uri, key: &str) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|one| one == key))
}

//! The admin address: `/livez`, `/readyz`, `/metrics`, `/configz`. HTTP/1.1, read only.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{configz, readiness::Readiness};
use crate::{
    live::{Current, Namespaces},
    replicas::Replica,
    telemetry::{self, Metrics},
    tls::ServerTls,
};

/// By when a request's head must be there.
const HEAD: Duration = Duration::from_secs(5);
/// The longest an operator's connection lasts.
const CONNECTION: Duration = Duration::from_secs(300);
/// Operators' connections at once.
const CONNECTIONS: usize = 64;
/// Pause after an accept that failed.
const PAUSE: Duration = Duration::from_millis(200);
const TEXT: &str = "text/plain; charset=utf-8";

/// What operators may see.
#[derive(Clone, Debug)]
pub struct Admin {
    /// What is in force.
    pub current: Arc<Current>,
    /// This replica, and how telling others of it goes.
    pub replica: Arc<Replica>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Where other machines can reach the pages: what they are served with.
    pub tls: Option<Arc<ServerTls>>,
}

impl Admin {
    /// Serves on the runtime this is polled on until `shutdown`; connections still open are then closed.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        let accepting = async {
            loop {
                // Room first: beyond the limit, connections wait in the backlog instead of in our memory.
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let admin = self.clone();
                        connections.spawn(async move {
                            let _permit = permit;
                            admin.connection(stream).await;
                        });
                        while connections.try_join_next().is_some() {}
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept admin connections; trying again after a pause");
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! { () = accepting => {}, () = shutdown => {} }
    }

    async fn connection(&self, stream: TcpStream) {
        let Some(tls) = &self.tls else { return self.pages(stream).await };
        match timeout(HEAD, TlsAcceptor::from(tls.admin()).accept(stream)).await {
            Ok(Ok(stream)) => self.pages(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "an admin connection's TLS handshake failed"),
            Err(_) => tracing::debug!("an admin connection's TLS handshake was not finished in time"),
        }
    }

    async fn pages<Io: AsyncRead + AsyncWrite + Unpin>(&self, stream: Io) {
        let service =
            service_fn(|request: Request<Incoming>| async move { Ok::<_, Infallible>(self.answer(&request)) });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        if let Ok(Err(error)) = timeout(CONNECTION, serving).await {
            tracing::debug!(%error, "an admin connection broke");
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
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
            "/readyz" => {
                let readiness = Readiness::of(&self.current);
                let status = match readiness {
                    Readiness::Ready => StatusCode::OK,
                    Readiness::NeverRead | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
                };
                text(status, format!("{readiness}\n"))
            }
            "/metrics" => match self.metrics.render() {
                Ok(page) => body(StatusCode::OK, telemetry::CONTENT_TYPE, page),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be printed: {error}\n")),
            },
            _ => body(
                StatusCode::OK,
                "application/json",
                format!("{:#}\n", configz::page(&self.current, &self.replica, self.namespaces.as_deref())),
            ),
        }
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

//! A hook: a real gRPC server on a thread of its own, which ends with all its connections when it is killed.

use std::{
    future::pending,
    io,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    thread::{self, JoinHandle},
};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::Builder,
    sync::{mpsc, oneshot},
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::Connected},
};

use super::policies::{Policy, Said};
use crate::wire::pb::gatepost::v1::admission_server::{Admission, AdmissionServer};
use crate::wire::pb::k8s::io::{
    api::admission::v1::{AdmissionResponse, AdmissionReview},
    apimachinery::pkg::apis::meta::v1 as meta,
};

/// HTTP status of a hook's no, and its word.
const FORBIDDEN: (i32, &str) = (403, "Forbidden");

/// Where a hook listens.
#[derive(Clone)]
pub(super) enum Place {
    /// Plaintext; port 0 takes a free one.
    Plain(SocketAddr),
    /// TLS, to clients with a certificate.
    Tls(SocketAddr, TlsAcceptor),
    /// A unix socket.
    Unix(PathBuf),
}

enum Listener {
    Tcp(tokio::net::TcpListener, Option<TlsAcceptor>),
    Unix(tokio::net::UnixListener),
}

/// A hook that serves. Dropping it kills it.
pub(super) struct Hook {
    /// Where it listens, with the port it got.
    pub(super) place: Place,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Hook {
    /// Every connection ends with the runtime, in the middle of whatever it was doing.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A hook that panicked has said so.
            let _ = thread.join();
        }
        if let Place::Unix(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Hook {
    /// Listens, and serves that policy; with `None` it takes every question and never answers.
    pub(super) fn start(place: Place, policy: Option<Policy>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (place, listener) = {
            let _entered = runtime.enter();
            listen(place)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async {
                tokio::select! { _ = stopped => {}, () = serve(listener, policy) => {} }
            });
        };
        let thread = thread::Builder::new().name("demo-hook".to_owned()).spawn(run)?;
        Ok(Self { place, stop: Some(stop), thread: Some(thread) })
    }

    /// As a configuration names it.
    pub(super) fn url(&self) -> String {
        match &self.place {
            Place::Plain(address) => format!("grpc://{address}"),
            Place::Tls(address, _) => format!("grpcs://{address}"),
            Place::Unix(path) => format!("unix://{}", path.display()),
        }
    }
}

fn listen(place: Place) -> io::Result<(Place, Listener)> {
    let bind = |address| {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok::<_, io::Error>((listener.local_addr()?, tokio::net::TcpListener::from_std(listener)?))
    };
    Ok(match place {
        Place::Plain(address) => {
            let (address, listener) = bind(address)?;
            (Place::Plain(address), Listener::Tcp(listener, None))
        }
        Place::Tls(address, tls) => {
            let (address, listener) = bind(address)?;
            (Place::Tls(address, tls.clone()), Listener::Tcp(listener, Some(tls)))
        }
        Place::Unix(path) => {
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            (Place::Unix(path), Listener::Unix(tokio::net::UnixListener::from_std(listener)?))
        }
    })
}

async fn serve(listener: Listener, policy: Option<Policy>) {
    let (sockets, incoming) = mpsc::channel(16);
    let server = Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .serve_with_incoming(AdmissionServer::new(Answers(policy)), ReceiverStream::new(incoming));
    // Both run until the hook is killed; neither has anything to tell by ending.
    tokio::select! { _ = server => {}, () = accept(listener, sockets) => {} }
}

async fn accept(listener: Listener, sockets: mpsc::Sender<io::Result<Socket>>) {
    loop {
        let sockets = sockets.clone();
        match &listener {
            Listener::Unix(listener) => {
                let Ok((stream, _)) = listener.accept().await else { return };
                let _ = sockets.send(Ok(Socket(Box::pin(stream)))).await;
            }
            Listener::Tcp(listener, tls) => {
                let Ok((stream, _)) = listener.accept().await else { return };
                let _ = stream.set_nodelay(true);
                let tls = tls.clone();
                // Shaking hands takes a while; the next caller does not wait for it.
                tokio::spawn(async move {
                    let socket = match tls {
                        None => Socket(Box::pin(stream)),
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Socket(Box::pin(stream)),
                            Err(_) => return,
                        },
                    };
                    let _ = sockets.send(Ok(socket)).await;
                });
            }
        }
    }
}

/// The service.
struct Answers(Option<Policy>);

#[tonic::async_trait]
impl Admission for Answers {
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let asked = request.into_inner().request.ok_or_else(|| Status::invalid_argument("no request"))?;
        let Some(policy) = self.0 else { return pending().await };
        let object = asked.object.as_ref().and_then(|object| object.raw.as_ref());
        let object = object.map_or(Ok(Value::Null), |raw| serde_json::from_slice(raw));
        let object = object.map_err(|error| Status::invalid_argument(format!("the object is not JSON: {error}")))?;
        let said = policy(&asked, &object);
        Ok(Response::new(AdmissionReview { request: None, response: Some(response(asked.uid, said)) }))
    }

    async fn mutate(&self, _: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        Err(Status::unimplemented("this hook changes nothing"))
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }
}

fn response(uid: Option<String>, said: Said) -> AdmissionResponse {
    let (code, reason) = FORBIDDEN;
    let allowed = said.no.is_none();
    let status = said.no.map(|message| meta::Status {
        message: Some(message),
        reason: Some(reason.to_owned()),
        code: Some(code),
        ..Default::default()
    });
    AdmissionResponse {
        uid,
        allowed: Some(allowed),
        status,
        warnings: said.warnings,
        audit_annotations: said.annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        ..Default::default()
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// An accepted connection, whatever its kind.
struct Socket(Pin<Box<dyn Duplex>>);

impl Connected for Socket {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}

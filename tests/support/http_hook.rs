//! Scripted webhook on a port of its own: HTTP/1.1 or HTTP/2, plaintext, TLS or a unix socket. It is
//! served by hyper, so our HTTP/2 client is tested against an implementation that is not ours.
//!
//! ```ignore
//! let hook = HttpHook::plain(HttpScript::Allow).await;      // also ::tls(script, &ALPN), ::unix(path, script)
//! let yaml = document(&[support::gate::hook("h.example.com", &hook.url(), "protocol: ...")]);
//! hook.set(HttpScript::Deny("no"));
//! assert_eq!(hook.seen().len(), 1);
//! ```

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use gatepost_api::{
    Endpoint, Transport,
    hook::{Address, EndpointTls},
};
use gatepost_tls::{SystemRoots, client_config};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::certificates::localhost;

/// Protocols to offer by ALPN, the preferred one first.
pub const H2: &[u8] = b"h2";
pub const HTTP1: &[u8] = b"http/1.1";

/// Behaviour of the hook for each call.
#[derive(Clone, Debug)]
pub enum HttpScript {
    /// Says yes, in JSON, to the uid and in the version it was asked.
    Allow,
    /// Says no with this message.
    Deny(&'static str),
    /// Says yes, with this warning.
    Warn(&'static str),
    /// Says this: the `response` of the review as JSON; `uid` is filled in where it is missing.
    Respond(Value),
    /// Says what this makes of the review's `request`: the `response`.
    Judge(Judge),
    /// Answers with this HTTP status and `Retry-After`, and no body.
    Status(u16, Option<&'static str>),
    /// Answers with this status, headers and body, which announces its length.
    Reply(u16, Vec<(&'static str, String)>, Bytes),
    /// As `Reply`, but without announcing the body's length, and with a trailer behind it.
    Stream(u16, Vec<(&'static str, String)>, Bytes),
    /// Answers 200 with something that is no review.
    Garbage,
    /// Says yes once [`HttpHook::release`] lets it go.
    Held,
    /// Takes this long, then says yes.
    Slow(Duration),
    /// Never answers.
    Hang,
    /// Gives the call up without an answer: hangs up (HTTP/1.1) or resets the stream (HTTP/2).
    GiveUp,
    /// Says yes and wants no more calls on this connection (HTTP/1.1 only).
    AllowAndClose,
}

/// A hook's own mind.
#[derive(Clone)]
pub struct Judge(Arc<dyn Fn(&Value) -> Value + Send + Sync>);

impl Judge {
    pub fn new(judge: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

/// One call as the hook saw it.
#[derive(Clone, Debug)]
pub struct HttpSeen {
    pub version: Version,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpSeen {
    /// A header's text; "" where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The review it was asked.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// A running webhook. It ends with its handle.
pub struct HttpHook {
    endpoint: Endpoint,
    script: watch::Sender<HttpScript>,
    served: Served,
    server: JoinHandle<()>,
    /// Certificate authority (PEM) to trust it by, where it speaks TLS.
    pub ca_pem: Option<String>,
}

#[derive(Clone)]
struct Served {
    script: watch::Receiver<HttpScript>,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<Vec<HttpSeen>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    cancelled: AtomicUsize,
    hang_up: Notify,
    release: Semaphore,
}

impl Drop for HttpHook {
    fn drop(&mut self) {
        self.server.abort();
        self.hang_up();
    }
}

impl HttpHook {
    /// HTTP/1.1 in plaintext on a free port of the loopback interface.
    pub async fn plain(script: HttpScript) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        Self::serve(tcp(address), None, script, None, move |served| async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).expect("nodelay");
                tokio::spawn(served.clone().connection(socket, false));
            }
        })
    }

    /// TLS on a free port, certified as `localhost` by an authority of its own, speaking these protocols.
    pub async fn tls(script: HttpScript, protocols: &[&[u8]]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (ca_pem, config) = localhost(protocols);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let tls =
            EndpointTls { server_name: "localhost".into(), ca_pem: Some(ca_pem.as_bytes().into()), client_pem: None };
        Self::serve(tcp(address), Some(tls), script, Some(ca_pem), move |served| async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).expect("nodelay");
                let (acceptor, served) = (acceptor.clone(), served.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
                    served.connection(stream, http2).await;
                });
            }
        })
    }

    /// HTTP/1.1 on this unix socket.
    pub fn unix(path: &str, script: HttpScript) -> Self {
        let listener = UnixListener::bind(path).expect("a free path");
        Self::serve(Address::Unix(path.into()), None, script, None, move |served| async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(served.clone().connection(socket, false));
            }
        })
    }

    fn serve<F: Future<Output = ()> + Send + 'static>(
        address: Address,
        tls: Option<EndpointTls>,
        script: HttpScript,
        ca_pem: Option<String>,
        accept: impl FnOnce(Served) -> F,
    ) -> Self {
        let (sender, script) = watch::channel(script);
        let shared = Shared {
            seen: Mutex::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            hang_up: Notify::new(),
            release: Semaphore::new(0),
        };
        let served = Served { script, shared: Arc::new(shared) };
        let server = tokio::spawn(accept(served.clone()));
        let endpoint = Endpoint { address, tls, transport: Transport::Http, authorization: None };
        Self { endpoint, script: sender, served, server, ca_pem }
    }

    /// Endpoint of the hook, ready for a channel.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// TLS configuration for it, ready for a channel.
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        let tls = self.endpoint.tls.as_ref()?;
        Some(client_config(tls, Transport::Http, &SystemRoots::default()).expect("good material"))
    }

    /// `http://host:port`, `https://host:port` or `http+unix:///path`.
    pub fn url(&self) -> String {
        self.endpoint.to_string()
    }

    /// From now on.
    pub fn set(&self, script: HttpScript) {
        self.script.send_replace(script);
    }

    /// Every call that has arrived whole, so far.
    pub fn seen(&self) -> Vec<HttpSeen> {
        self.served.shared.seen.lock().expect("lock").clone()
    }

    /// Calls that have arrived are no longer seen.
    pub fn forget(&self) {
        self.served.shared.seen.lock().expect("lock").clear();
    }

    /// Lets one [`HttpScript::Held`] call go.
    pub fn release(&self) {
        self.served.shared.release.add_permits(1);
    }

    /// Connections accepted so far (over TLS: and agreed on).
    pub fn connections(&self) -> usize {
        self.served.shared.accepted.load(SeqCst)
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.served.shared.open.load(SeqCst)
    }

    /// Calls that the caller gave up before they were answered, by hanging up or a reset.
    pub fn cancelled(&self) -> usize {
        self.served.shared.cancelled.load(SeqCst)
    }

    /// Closes every connection, as a hook that restarts does.
    pub fn hang_up(&self) {
        self.served.shared.hang_up.notify_waiters();
    }
}

fn tcp(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string().into(), port: address.port() }
}

/// Counts up while it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// A call under way; dropped before it is answered, it was given up.
struct Unanswered(Option<Arc<Shared>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.cancelled.fetch_add(1, SeqCst);
        }
    }
}

impl Served {
    async fn connection(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, http2: bool) {
        let shared = self.shared.clone();
        shared.accepted.fetch_add(1, SeqCst);
        shared.open.fetch_add(1, SeqCst);
        let _counted = Counted(shared.clone());
        let hung_up = shared.hang_up.notified();
        let io = TokioIo::new(io);
        let service = service_fn(move |request| self.clone().call(request));
        let serving: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>> = if http2 {
            Box::pin(http2::Builder::new(TokioExecutor::new()).serve_connection(io, service))
        } else {
            Box::pin(http1::Builder::new().serve_connection(io, service))
        };
        tokio::select! {
            _ = serving => {}
            () = hung_up => {}
        }
    }

    async fn call(self, request: Request<Incoming>) -> io::Result<Response<Said>> {
        let (parts, body) = request.into_parts();
        let mut unanswered = Unanswered(Some(self.shared.clone()));
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let seen = HttpSeen { version: parts.version, path, headers: parts.headers, body };
        self.shared.seen.lock().expect("lock").push(seen);
        let script = self.script.borrow().clone();
        let answer = match script {
            HttpScript::Allow => review(&asked, json!({"allowed": true})),
            HttpScript::Deny(message) => review(&asked, json!({"allowed": false, "status": {"message": message}})),
            HttpScript::Warn(warning) => review(&asked, json!({"allowed": true, "warnings": [warning]})),
            HttpScript::Respond(response) => review(&asked, response),
            HttpScript::Judge(Judge(judge)) => review(&asked, judge(&asked["request"])),
            HttpScript::Status(status, retry_after) => {
                let headers = retry_after.map(|value| ("retry-after", value.to_owned())).into_iter().collect();
                said(status, headers, Bytes::new(), true)
            }
            HttpScript::Reply(status, headers, body) => said(status, headers, body, true),
            HttpScript::Stream(status, headers, body) => said(status, headers, body, false),
            HttpScript::Garbage => said(200, Vec::new(), Bytes::from_static(b"<html>It works!</html>"), true),
            HttpScript::Held => {
                self.shared.release.acquire().await.map_err(io::Error::other)?.forget();
                review(&asked, json!({"allowed": true}))
            }
            HttpScript::Slow(delay) => {
                tokio::time::sleep(delay).await;
                review(&asked, json!({"allowed": true}))
            }
            HttpScript::Hang => std::future::pending().await,
            HttpScript::GiveUp => {
                unanswered.0 = None;
                return Err(io::Error::other("told to"));
            }
            HttpScript::AllowAndClose => {
                let mut answer = review(&asked, json!({"allowed": true}));
                answer.headers_mut().insert("connection", "close".parse().expect("a value"));
                answer
            }
        };
        unanswered.0 = None;
        Ok(answer)
    }
}

/// A review that answers `asked`.
fn review(asked: &Value, mut response: Value) -> Response<Said> {
    if response.get("uid").is_none() {
        response["uid"] = asked["request"]["uid"].clone();
    }
    let answer = json!({"apiVersion": asked["apiVersion"], "kind": "AdmissionReview", "response": response});
    said(200, vec![("content-type", "application/json".to_owned())], answer.to_string().into(), true)
}

fn said(status: u16, headers: Vec<(&'static str, String)>, body: Bytes, sized: bool) -> Response<Said> {
    let trailers = (!sized).then(|| HeaderMap::from_iter([(http::header::ETAG, "x".parse().expect("a value"))]));
    let mut response = Response::new(Said { body: Full::new(body), sized, trailers });
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().expect("a value"));
    }
    response
}

/// A body that may keep its length to itself.
struct Said {
    body: Full<Bytes>,
    sized: bool,
    trailers: Option<HeaderMap>,
}

impl Body for Said {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized { self.body.size_hint() } else { SizeHint::default() }
    }
}

//! Scripted hook on a port of its own. It speaks HTTP/2 frames through hyperium's h2, so our client
//! is tested against an implementation that is not ours.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use gatepost_wire::{
    outbound::framed,
    pb::k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1::Status,
    },
};
use h2::{Reason, RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
};

/// Behaviour of the hook for each call.
#[derive(Clone, Debug)]
pub enum Script {
    /// Says yes.
    Allow,
    /// Says yes to this path, and knows no other.
    Only(&'static str),
    /// Says this.
    Respond(AdmissionResponse),
    /// Says no with this message.
    Deny(&'static str),
    /// Answers with these bytes as the gRPC message.
    Message(Bytes),
    /// Answers with these bytes as the whole body, frame head and all.
    Body(Bytes),
    /// Ends with this gRPC status and message.
    Status(u32, &'static str),
    /// Answers with this HTTP status.
    Http(u16),
    /// Never answers.
    Hang,
    /// Sends data without end.
    Endless,
    /// Resets the stream.
    Reset(Reason),
    /// Hangs up.
    HangUp,
    /// Takes this long, then says yes.
    Slow(Duration),
    /// Takes this long, then says this.
    RespondAfter(Duration, AdmissionResponse),
    /// Says yes once [`ScriptedHook::release`] rings.
    Held,
}

/// One call as the hook saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A running scripted hook.
pub struct ScriptedHook {
    pub address: SocketAddr,
    script: watch::Sender<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Rings when a call was reset by the caller.
    pub cancelled: Arc<Notify>,
    /// Rings when a call has arrived whole.
    pub asked: Arc<Notify>,
    connections: watch::Receiver<usize>,
    hang_up: Arc<Notify>,
    retire: Arc<Notify>,
    /// Lets one [`Script::Held`] call go.
    pub release: Arc<Notify>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for ScriptedHook {
    fn drop(&mut self) {
        self.server.abort();
        self.hang_up.notify_waiters();
    }
}

impl ScriptedHook {
    /// Starts one on a free port of the loopback interface.
    pub async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve(listener, script)
    }

    /// Starts one on this listener.
    pub fn serve(listener: TcpListener, script: Script) -> Self {
        let address = listener.local_addr().expect("an address");
        let (sender, script) = watch::channel(script);
        let (count, connections) = watch::channel(0);
        let served = Served {
            script,
            seen: Arc::default(),
            cancelled: Arc::default(),
            asked: Arc::default(),
            hang_up: Arc::default(),
            retire: Arc::default(),
            release: Arc::default(),
        };
        let own = served.clone();
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                tokio::spawn(served.clone().connection(socket));
            }
        });
        Self {
            address,
            script: sender,
            seen: own.seen,
            cancelled: own.cancelled,
            asked: own.asked,
            connections,
            hang_up: own.hang_up,
            retire: own.retire,
            release: own.release,
            server,
        }
    }

    /// `grpc://host:port`
    pub fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// From now on.
    pub fn set(&self, script: Script) {
        self.script.send_replace(script);
    }

    /// Every call so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("lock").clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Takes no new calls on the connections there are (GOAWAY), but answers those it has, as a hook that rolls does.
    pub fn retire(&self) {
        self.retire.notify_waiters();
    }

    /// Closes every connection, as a hook that restarts does.
    pub fn hang_up(&self) {
        self.hang_up.notify_waiters();
    }
}

#[derive(Clone)]
struct Served {
    script: watch::Receiver<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    cancelled: Arc<Notify>,
    asked: Arc<Notify>,
    hang_up: Arc<Notify>,
    retire: Arc<Notify>,
    release: Arc<Notify>,
}

impl Served {
    async fn connection(self, socket: tokio::net::TcpStream) {
        socket.set_nodelay(true).expect("nodelay");
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
        let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
        let (hang_up, retire) = (self.hang_up.clone(), self.retire.clone());
        loop {
            tokio::select! {
                accepted = connection.accept() => match accepted {
                    Some(Ok((request, respond))) => drop(tokio::spawn(self.clone().call(request, respond))),
                    _ => return,
                },
                () = hang_up.notified() => return,
                () = retire.notified() => connection.graceful_shutdown(),
            }
        }
    }

    async fn call(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let (parts, mut stream) = request.into_parts();
        let mut body = BytesMut::new();
        while let Some(data) = stream.data().await {
            let Ok(data) = data else {
                self.cancelled.notify_one();
                return;
            };
            let _ = stream.flow_control().release_capacity(data.len());
            body.extend_from_slice(&data);
        }
        let body = body.freeze();
        let uid = AdmissionReview::decode(body.slice(5.min(body.len())..))
            .ok()
            .and_then(|review| review.request?.uid)
            .unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let health = path == "/grpc.health.v1.Health/Check";
        let asked = path.clone();
        self.seen.lock().expect("lock").push(Seen { path, headers: parts.headers, body });
        self.asked.notify_one();
        let script = self.script.borrow().clone();
        let yes = AdmissionResponse { uid: Some(uid.clone()), allowed: Some(true), ..Default::default() };
        let said = |response| framed(&AdmissionReview { request: None, response: Some(response) });
        match script {
            // A stranger to the health service, so that probes fall back to a review.
            _ if health => end(&mut respond, None, 12, "no health service here"),
            Script::Allow => end(&mut respond, Some(said(yes)), 0, ""),
            Script::Only(path) if asked == path => end(&mut respond, Some(said(yes)), 0, ""),
            Script::Only(_) => end(&mut respond, None, 12, "no such method here"),
            Script::Slow(time) => {
                tokio::time::sleep(time).await;
                end(&mut respond, Some(said(yes)), 0, "");
            }
            Script::Respond(response) => {
                let uid = response.uid.clone().or(Some(uid));
                end(&mut respond, Some(said(AdmissionResponse { uid, ..response })), 0, "");
            }
            Script::RespondAfter(time, response) => {
                tokio::time::sleep(time).await;
                end(&mut respond, Some(said(AdmissionResponse { uid: Some(uid), ..response })), 0, "");
            }
            Script::Held => {
                self.release.notified().await;
                end(&mut respond, Some(said(yes)), 0, "");
            }
            Script::Deny(message) => {
                let status = Some(Status { message: Some(message.into()), ..Default::default() });
                let no = AdmissionResponse { uid: Some(uid), allowed: Some(false), status, ..Default::default() };
                end(&mut respond, Some(said(no)), 0, "");
            }
            Script::Message(message) => {
                let mut body = BytesMut::new();
                body.put_u8(0);
                body.put_u32(message.len() as u32);
                body.extend_from_slice(&message);
                end(&mut respond, Some(body.freeze()), 0, "");
            }
            Script::Body(body) => end(&mut respond, Some(body), 0, ""),
            Script::Status(code, message) => end(&mut respond, None, code, message),
            Script::Http(status) => {
                let response = Response::builder().status(status).body(()).expect("response");
                let _ = respond.send_response(response, true);
            }
            Script::Hang => {
                std::future::poll_fn(|cx| respond.poll_reset(cx)).await.ok();
                self.cancelled.notify_one();
            }
            Script::Endless => {
                let Ok(mut stream) = respond.send_response(ok(), false) else { return };
                loop {
                    stream.reserve_capacity(16384);
                    match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                        Some(Ok(n)) => {
                            if stream.send_data(Bytes::from(vec![0; n]), false).is_err() {
                                break;
                            }
                        }
                        _ => break,
                    }
                }
                self.cancelled.notify_one();
            }
            Script::Reset(reason) => respond.send_reset(reason),
            Script::HangUp => {
                self.hang_up.notify_waiters();
                // The call itself is not reset: it ends with the connection.
                std::future::poll_fn(|cx| respond.poll_reset(cx)).await.ok();
            }
        }
    }
}

fn ok() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("response")
}

fn end(respond: &mut SendResponse<Bytes>, body: Option<Bytes>, status: u32, message: &str) {
    let Ok(mut stream) = respond.send_response(ok(), false) else { return };
    if let Some(body) = body {
        let _ = stream.send_data(body, false);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    if !message.is_empty() {
        trailers.insert("grpc-message", message.parse().expect("a header value"));
    }
    let _ = stream.send_trailers(trailers);
}

//! A front in process, and a gRPC caller that can misbehave.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: each test uses its part"
)]

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use gatepost::{
    front::{DrainSummary, Front, FrontLimits, Listener, Worker, accept},
    live::{Current, ReplicaHealth},
    review::AdmissionDeps,
    telemetry::Metrics,
};
use gatepost_base::memory::MemoryBudget;
use gatepost_wire::{
    pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionReview},
    request,
};
use h2::{
    SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, StatusCode};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

/// The longest anything may take here.
pub const LONG: Duration = Duration::from_secs(20);
/// The memory budget, unless a test says another.
const BUDGET: usize = 512 << 20;
pub const REVIEW: &str = "/gatepost.v1.Admission/Review";

pub struct Sidecar {
    pub address: SocketAddr,
    pub front: Arc<Front>,
    pub current: Arc<Current>,
    pub health: Arc<ReplicaHealth>,
    pub metrics: Arc<Metrics>,
    pub shutdown: oneshot::Sender<()>,
    pub serving: JoinHandle<DrainSummary>,
}

/// A sidecar without hooks, freshly configured.
pub async fn sidecar(limits: FrontLimits) -> Sidecar {
    let sidecar = unconfigured(limits).await;
    // Read in an hour's time: fresh for as long as a test may last on a busy machine.
    sidecar.current.freshness().stamp_awake(Instant::now() + Duration::from_secs(3600));
    sidecar
}

/// The same with another memory budget.
pub async fn sidecar_with_budget(limits: FrontLimits, budget: usize) -> Sidecar {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let sidecar = before_with(gate(), limits, budget, address, Listener::Tcp(listener));
    sidecar.current.freshness().stamp_awake(Instant::now() + Duration::from_secs(3600));
    sidecar
}

/// A sidecar that has not read its configuration yet.
pub async fn unconfigured(limits: FrontLimits) -> Sidecar {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    serving(limits, address, Listener::Tcp(listener))
}

pub fn serving(limits: FrontLimits, address: SocketAddr, bound: Listener) -> Sidecar {
    before(gate(), limits, address, bound)
}

fn gate() -> Arc<AdmissionDeps> {
    Arc::new(AdmissionDeps::new(Arc::new(Current::new(Instant::now())), Arc::new(Metrics::new(1))))
}

/// A front before this gate.
pub fn before(gate: Arc<AdmissionDeps>, limits: FrontLimits, address: SocketAddr, bound: Listener) -> Sidecar {
    before_with(gate, limits, BUDGET, address, bound)
}

fn before_with(
    gate: Arc<AdmissionDeps>,
    limits: FrontLimits,
    budget: usize,
    address: SocketAddr,
    bound: Listener,
) -> Sidecar {
    let (current, metrics) = (Arc::clone(&gate.current), Arc::clone(&gate.metrics));
    let health =
        Arc::new(ReplicaHealth::of(Arc::clone(&current), Arc::clone(&gate.status), Arc::clone(&gate.break_glass)));
    let front = Front::new(gate, Arc::clone(&health), limits, MemoryBudget::new(budget)).expect("front");
    let workers = vec![Worker::new(0, Handle::current())];
    let (shutdown, signal) = oneshot::channel::<()>();
    let signal = async { drop(signal.await) };
    let serving = tokio::spawn(accept::serve(Arc::clone(&front), vec![bound], workers, signal));
    Sidecar { address, front, current, health, metrics, shutdown, serving }
}

impl Sidecar {
    /// One sample of the metrics, 0 when there is none.
    pub fn metric(&self, sample: &str) -> f64 {
        let text = self.metrics.render().expect("metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }
}

/// Waits until it holds, giving way to the other tasks in between.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A page of the admin address, with its head.
pub async fn admin_page(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).await.expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// One sample of the metrics at the admin address.
pub async fn admin_metric(admin: SocketAddr, sample: &str) -> f64 {
    let page = admin_page(admin, "/metrics").await;
    let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.expect(sample).parse().expect("a number")
}

/// Waits until a sample of the metrics holds.
pub async fn until_metric(admin: SocketAddr, sample: &str, holds: impl Fn(f64) -> bool) {
    let waiting = async {
        while !holds(admin_metric(admin, sample).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.expect(sample);
}

/// End of a call.
#[derive(Debug)]
pub struct Ended {
    pub http: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub status: Option<i32>,
    pub message: String,
}

impl Ended {
    pub fn assert(&self, status: i32, message: &str) {
        assert_eq!(
            (self.http, self.status, self.message.as_str()),
            (StatusCode::OK, Some(status), message),
            "{self:?}"
        );
    }

    /// A `metav1.Status` with this message and the HTTP status as its code.
    pub fn assert_says(&self, message: &str) {
        let status: serde_json::Value = serde_json::from_slice(&self.body).expect("a Status");
        assert_eq!(
            (&status["kind"], &status["status"], &status["code"], &status["message"]),
            (&"Status".into(), &"Failure".into(), &self.http.as_u16().into(), &message.into()),
            "{status}"
        );
    }

    /// Status 0 and a verdict that allows the review of that uid.
    pub fn assert_allowed(&self, uid: &str) {
        self.assert(0, "");
        let (head, message) = self.body.split_at_checked(5).expect("a frame head");
        assert_eq!(head, [&[0], &(message.len() as u32).to_be_bytes()[..]].concat(), "one whole plain message");
        let response = AdmissionReview::decode(message).expect("a review").response.expect("a response");
        assert_eq!((response.uid(), response.allowed()), (uid, true));
    }
}

/// One HTTP/2 connection.
pub struct Caller(pub SendRequest<Bytes>);

pub async fn caller(address: SocketAddr) -> Caller {
    let stream = TcpStream::connect(address).await.expect("connects");
    over(stream).await
}

pub async fn over<Io>(io: Io) -> Caller
where
    Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (send, connection) = h2::client::handshake(io).await.expect("handshake");
    tokio::spawn(connection);
    Caller(send)
}

pub fn grpc(path: &str) -> Request<()> {
    Request::post(format!("http://gatepost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("request")
}

pub fn with(mut request: Request<()>, name: &'static str, value: &str) -> Request<()> {
    request.headers_mut().insert(name, value.parse().expect("value"));
    request
}

impl Caller {
    /// Begins a call; its message is yet to be sent.
    pub async fn begin(&self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        self.0.clone().ready().await.expect("connection lives").send_request(request, false).expect("sent")
    }

    /// A whole call with these payloads.
    pub async fn call(&self, request: Request<()>, payloads: impl IntoIterator<Item = Bytes>) -> Ended {
        let (response, mut stream) = self.begin(request).await;
        let mut payloads = payloads.into_iter().peekable();
        if payloads.peek().is_none() {
            stream.send_data(Bytes::new(), true).expect("sent");
        }
        while let Some(payload) = payloads.next() {
            // An error says that the answer came first, which is for the test to judge.
            let _ = stream.send_data(payload, payloads.peek().is_none());
        }
        ended(response).await
    }

    pub async fn review(&self, uid: &str, object: usize) -> Ended {
        self.call(grpc(REVIEW), [review(uid, object)]).await
    }
}

/// The whole answer.
pub async fn ended(response: ResponseFuture) -> Ended {
    timeout(LONG, reading(response)).await.expect("answered")
}

async fn reading(response: ResponseFuture) -> Ended {
    let response: Response<_> = response.await.expect("a response");
    let (parts, mut stream) = response.into_parts();
    let mut body = BytesMut::new();
    while let Some(data) = poll_fn(|cx| stream.poll_data(cx)).await {
        body.extend_from_slice(&data.expect("data"));
    }
    let trailers = poll_fn(|cx| stream.poll_trailers(cx)).await.expect("trailers").unwrap_or_default();
    let find =
        |name: &str| trailers.get(name).or(parts.headers.get(name)).map(|v| v.to_str().expect("ascii").to_owned());
    Ended {
        http: parts.status,
        status: find("grpc-status").map(|status| status.parse().expect("number")),
        message: find("grpc-message").unwrap_or_default(),
        body: body.freeze(),
        headers: parts.headers,
    }
}

/// A framed message.
pub fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.extend_from_slice(message);
    framed.freeze()
}

/// A good review with an object of that size.
pub fn review(uid: &str, object: usize) -> Bytes {
    let create = request::create(uid, "Pod", "pods", vec![b'x'; object].into());
    let request = Some(AdmissionRequest { namespace: Some("shop".into()), ..create });
    framed(&AdmissionReview { request, response: None }.encode_to_vec())
}

//! A front without sockets, and connections to it in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, duplex},
    sync::watch,
    task::JoinHandle,
};

use super::{
    accept::{client::Identity, clients::AdmittedConnection},
    connection,
    drain::{self, ServerStage},
    limits::FrontLimits,
    state::{ConnectionContext, Front},
};
use crate::{
    live::{Current, ReplicaHealth},
    review::AdmissionDeps,
};
use gatepost_base::memory::MemoryBudget;

/// A framed review with uid "u", of an unknown kind, and operation CREATE.
pub(super) const MESSAGE: &[u8] =
    b"\0\0\0\0\x24\x0a\x22\x0a\x01u\x12\x09\x12\x02v1\x1a\x03Xyz\x1a\x0a\x12\x02v1\x1a\x04xyzs:\x06CREATE";

/// A front with that memory budget, freshly configured.
pub(super) fn front(budget: usize) -> Arc<Front> {
    let deps = AdmissionDeps::new(Arc::new(Current::new(Instant::now())), Arc::default());
    deps.current.freshness().stamp_awake(Instant::now() + Duration::from_secs(3600));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&deps.current)));
    Front::new(Arc::new(deps), health, FrontLimits::default(), MemoryBudget::new(budget)).expect("front")
}

/// Serves a connection from a loopback address until the sender is dropped.
pub(super) fn serve<Io>(front: &Arc<Front>, io: Io) -> (watch::Sender<ServerStage>, JoinHandle<()>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The tokio clock, which tests pause.
    let now = tokio::time::Instant::now().into_std();
    let admitted = front.clients.admit(Identity::Loopback, now).expect("room");
    serve_admitted(front, io, admitted)
}

/// Serves a connection that was admitted.
pub(super) fn serve_admitted<Io>(
    front: &Arc<Front>,
    io: Io,
    admitted: AdmittedConnection,
) -> (watch::Sender<ServerStage>, JoinHandle<()>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stage, drain) = drain::channel(front.limits.drain);
    let context =
        ConnectionContext { front: Arc::clone(front), session: Arc::clone(&admitted.session), worker: 0, drain };
    let serving = tokio::spawn(async move {
        connection::serve_http(context, io).await;
        drop(admitted);
    });
    (stage, serving)
}

/// Serves a new in-memory connection, and returns its client end.
pub(super) fn connect(front: &Arc<Front>) -> (DuplexStream, watch::Sender<ServerStage>, JoinHandle<()>) {
    let (ours, theirs) = duplex(1 << 16);
    let (stage, serving) = serve(front, theirs);
    (ours, stage, serving)
}

/// Returns the value of one sample of the metrics.
pub(super) fn metric(front: &Front, sample: &str) -> f64 {
    let page = front.deps.metrics.render().expect("metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.expect("there").parse().expect("a number")
}

/// Returns the number of connections or calls refused for that reason.
pub(super) fn refused(front: &Front, reason: &str) -> f64 {
    metric(front, &format!("gatepost_refused_total{{reason=\"{reason}\"}}"))
}

/// Returns the head of a gRPC request for a review.
pub(super) fn review() -> Request<()> {
    let request = Request::post("http://gatepost/gatepost.v1.Admission/Review");
    request.header("content-type", "application/grpc").body(()).expect("request")
}

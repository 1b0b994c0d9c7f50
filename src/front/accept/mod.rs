//! Accepts connections, assigns them to workers, and drains. Knows nothing of reviews. The worker that serves a
//! connection does its TLS handshake, so that a slow or hostile handshake delays no other connection.
//!
//! One accept loop for each socket assigns each connection to the worker with the fewest connections. `SO_REUSEPORT`
//! for each worker would avoid this step, but it spreads connections by a hash of their addresses: an apiserver keeps a
//! handful of connections for hours, and a hash easily assigns all of them to one core. The assignment costs
//! microseconds per connection. ([`SharedPort`](listener::SharedPort) is for another process on the same port.)

pub(crate) mod client;
pub(crate) mod clients;
pub mod listener;

use std::{
    convert::Infallible,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{
    client::Identity,
    clients::ConnectionRefusal,
    listener::{AcceptedStream, HANDSHAKE_SETTLE_TIME, Listener, is_peer_abort},
};
use crate::{
    front::{
        connection,
        drain::{self, DrainSignal, ServerStage},
        state::Front,
    },
    telemetry::{Reading, RefusalReason, Throttle},
};
use gatepost_base::clock::Backoff;

/// Shortest and longest pause after an accept that failed for lack of resources.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Time for cut connections to end.
const CUT_TIMEOUT: Duration = Duration::from_millis(200);
/// Interval at which watchers of the health service are sent changes.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// Runtime of one core.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    /// Handle of the worker's runtime.
    pub handle: Handle,
    /// Cloned for each connection that the worker serves, and so their counter.
    connections: Arc<()>,
}

impl Worker {
    /// Creates the worker with the number `index` (0..n) on a runtime.
    pub fn new(index: usize, handle: Handle) -> Arc<Self> {
        Arc::new(Self { index, handle, connections: Arc::default() })
    }

    /// Returns the number of connections that the worker serves.
    fn connections(&self) -> usize {
        Arc::strong_count(&self.connections) - 1
    }
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainSummary {
    /// Connections that were closed with calls under way, because the drain had reached its limit.
    pub cut: usize,
}

/// Serves until `shutdown`, then lets calls under way end for up to [`FrontLimits::drain`](crate::front::FrontLimits).
///
/// `workers` must not be empty, and their runtimes must outlive this call.
pub async fn serve(
    front: Arc<Front>,
    sockets: Vec<Listener>,
    workers: Vec<Arc<Worker>>,
    shutdown: impl Future<Output = ()>,
) -> DrainSummary {
    let (stage, signal) = drain::channel(front.limits.drain);
    // Every connection has a sender; when all senders are dropped, all connections have ended.
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let workers: Arc<[_]> = workers.into();
    let counted = Arc::clone(&workers);
    front.deps.metrics.observe(Reading::OpenConnections, move || {
        Some(counted.iter().map(|worker| worker.connections()).sum::<usize>() as f64)
    });
    let (close, closed) = watch::channel(false);
    let (mut accepting, mut following) = (JoinSet::new(), JoinSet::new());
    for socket in sockets {
        let acceptor = Acceptor {
            front: Arc::clone(&front),
            workers: Arc::clone(&workers),
            drain: signal.clone(),
            closed: closed.clone(),
            alive: alive.clone(),
        };
        accepting.spawn(acceptor.serve(socket));
    }
    following.spawn(follow_readiness(Arc::clone(&front)));
    drop(alive);
    shutdown.await;
    front.health.begin_stopping();
    close.send_replace(true);
    while accepting.join_next().await.is_some() {}
    following.shutdown().await;
    // Watchers of the health service should get the change before their stream ends.
    front.aux_services.refresh_health().await;
    stage.send_replace(ServerStage::Draining);
    let _ = timeout(front.limits.drain, ended.recv()).await;
    // A connection that waits for its peer to close has no call left.
    let cut = front.clients.busy();
    stage.send_replace(ServerStage::Over);
    let _ = timeout(CUT_TIMEOUT, ended.recv()).await;
    DrainSummary { cut }
}

/// Reports changes of the readiness to watchers of the health service.
async fn follow_readiness(front: Arc<Front>) {
    loop {
        front.aux_services.refresh_health().await;
        sleep(HEALTH_INTERVAL).await;
    }
}

/// State of an accept loop.
struct Acceptor {
    front: Arc<Front>,
    workers: Arc<[Arc<Worker>]>,
    drain: DrainSignal,
    closed: watch::Receiver<bool>,
    alive: mpsc::Sender<Infallible>,
}

impl Acceptor {
    /// Accepts connections until the socket is closed, and assigns also those that are queued by then.
    async fn serve(self, socket: Listener) {
        let mut closed = self.closed.clone();
        let mut closed = pin!(closed.wait_for(|closed| *closed));
        let socket = match socket {
            Listener::Shared(port) => {
                let opened = tokio::select! {
                    _ = &mut closed => return,
                    opened = port.open(&self.front.health) => opened,
                };
                match opened {
                    Ok(socket) => socket,
                    Err(error) => return tracing::error!(%error, "cannot listen: no caller is served on this socket"),
                }
            }
            socket => socket,
        };
        tokio::select! {
            _ = &mut closed => {}
            () = self.accept(&socket) => {}
        }
        if socket.divert_new_connections() {
            let _ = timeout(HANDSHAKE_SETTLE_TIME, self.accept(&socket)).await;
        }
        // A queued client is connected already; without this its connection would be reset.
        if let Err(error) = socket.close(|accepted, identity| self.assign(accepted, identity)) {
            tracing::warn!(%error, "connections waiting to be accepted are lost");
        }
    }

    async fn accept(&self, socket: &Listener) {
        let mut backoff = Backoff::new(ACCEPT_BACKOFF.0, ACCEPT_BACKOFF.1);
        loop {
            match socket.accept().await {
                Ok((accepted, identity)) => {
                    backoff.reset();
                    self.assign(accepted, identity);
                }
                Err(error) if is_peer_abort(&error) => {}
                Err(error) => {
                    // Most likely too many files are open: an immediate retry would only burn the core.
                    static ACCEPT_ERRORS: Throttle = Throttle::new();
                    let pause = backoff.pause();
                    if let Some(suppressed) = ACCEPT_ERRORS.pass() {
                        tracing::warn!(%error, ?pause, suppressed, "cannot accept connections; trying again after a pause");
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    /// Assigns the connection to the worker with the fewest connections, unless it is beyond a limit.
    fn assign(&self, accepted: AcceptedStream, identity: Identity) {
        let metrics = &self.front.deps.metrics;
        let admitted = match self.front.clients.admit(identity, Instant::now()) {
            Ok(admitted) => admitted,
            Err(ConnectionRefusal::Full) => {
                static TOO_MANY: Throttle = Throttle::new();
                let limit = self.front.limits.connections;
                if let Some(suppressed) = TOO_MANY.pass() {
                    tracing::warn!(limit, suppressed, "too many connections; this one is closed");
                }
                return metrics.record_refusal(RefusalReason::Connections);
            }
            Err(ConnectionRefusal::Share) => {
                static SHARE: Throttle = Throttle::new();
                if let Some(suppressed) = SHARE.pass() {
                    tracing::warn!(suppressed, "a client is at its share of the connections; this one is closed");
                }
                return metrics.record_refusal(RefusalReason::ClientShare);
            }
        };
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.connections()) else { return };
        let serving = Arc::clone(&worker.connections);
        let (front, drain, alive) = (Arc::clone(&self.front), self.drain.clone(), self.alive.clone());
        let index = worker.index;
        worker.handle.spawn(async move {
            connection::serve(front, index, accepted, admitted, drain).await;
            drop((serving, alive));
        });
    }
}

//! Accept, hand out, drain. Is given bound sockets and a shutdown signal; knows no reviews. A TLS handshake is made by
//! the worker that serves the connection, so that a slow or hostile one holds up nobody.
//!
//! One accept loop a socket hands each connection to the worker that has the fewest. `SO_REUSEPORT` for each worker
//! would save the hand-over, but it spreads connections by a hash of their addresses: an apiserver keeps a handful of
//! connections for hours, and a hash easily puts all of them on one core. A hand-over costs microseconds, once in a
//! connection's life. ([`SharedPort`] is for another process on the same port.)

use std::{
    convert::Infallible,
    io,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    bound::Accepted, clients::NoRoom, identity::Identity, life::Life, shared_port::SETTLE, worker::least_busy,
};
use crate::{
    clock::Backoff,
    front::{Bound, Front, Worker},
    telemetry::{Reading, Refused, Throttle},
};

/// First and longest pause after an accept that failed for want of resources.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Time for connections that were cut to be gone.
const CUT: Duration = Duration::from_millis(200);

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that still had calls when the bound was reached, and were closed under them.
    pub cut: usize,
}

/// Serves until `shutdown`, then lets calls under way end, at most for [`Limits::drain`](crate::front::Limits).
///
/// `workers` must not be empty; their runtimes must outlive this.
pub async fn serve(
    front: Arc<Front>,
    sockets: Vec<Bound>,
    workers: Vec<Arc<Worker>>,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let (life, watched) = watch::channel(Life::Serving);
    // Every connection holds a sender; when all are dropped, all connections have ended.
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let workers: Arc<[_]> = workers.into();
    let counted = Arc::clone(&workers);
    front.gate().metrics.observe(Reading::OpenConnections, move || Some(open(&counted) as f64));
    let (close, closed) = watch::channel(false);
    let (mut accepting, mut following) = (JoinSet::new(), JoinSet::new());
    for socket in sockets {
        let acceptor = Acceptor {
            front: Arc::clone(&front),
            workers: Arc::clone(&workers),
            life: watched.clone(),
            closed: closed.clone(),
            alive: alive.clone(),
        };
        accepting.spawn(acceptor.serve(socket));
    }
    following.spawn(follow_readiness(Arc::clone(&front)));
    drop(alive);
    shutdown.await;
    front.gate().current.drain();
    close.send_replace(true);
    while accepting.join_next().await.is_some() {}
    following.shutdown().await;
    // Watchers of our health should hear of it before the stream ends.
    front.aux_services().refresh_health().await;
    life.send_replace(Life::Draining);
    let _ = timeout(front.limits().drain, ended.recv()).await;
    // One that waits for its peer to close it has no call any more.
    let cut = front.clients().busy();
    life.send_replace(Life::Over);
    let _ = timeout(CUT, ended.recv()).await;
    Drained { cut }
}

fn open(workers: &[Arc<Worker>]) -> usize {
    workers.iter().map(|worker| worker.open()).sum()
}

/// Watchers of the health service get a change within a second.
async fn follow_readiness(front: Arc<Front>) {
    loop {
        front.aux_services().refresh_health().await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// State that an accept loop needs.
struct Acceptor {
    front: Arc<Front>,
    workers: Arc<[Arc<Worker>]>,
    life: watch::Receiver<Life>,
    closed: watch::Receiver<bool>,
    alive: mpsc::Sender<Infallible>,
}

impl Acceptor {
    /// Until it is closed, and what has come by then is handed out.
    async fn serve(self, socket: Bound) {
        let mut closed = self.closed.clone();
        let mut closed = pin!(closed.wait_for(|closed| *closed));
        let socket = match socket {
            Bound::Shared(port) => {
                let opened = tokio::select! {
                    _ = &mut closed => return,
                    opened = port.opened(&self.front.gate().current) => opened,
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
        if socket.turn_away() {
            let _ = timeout(SETTLE, self.accept(&socket)).await;
        }
        // A client in the queue is connected already, and would be reset.
        if let Err(error) = socket.close(|accepted, identity| self.hand_out(accepted, identity)) {
            tracing::warn!(%error, "connections waiting to be accepted are lost");
        }
    }

    async fn accept(&self, socket: &Bound) {
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        loop {
            match socket.accept().await {
                Ok((accepted, identity)) => {
                    backoff.reset();
                    self.hand_out(accepted, identity);
                }
                // The peer gave up while it waited in the backlog.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(error) => {
                    // Most likely too many open files: trying again at once would only burn the core.
                    static CANNOT: Throttle = Throttle::new();
                    let pause = backoff.pause();
                    if let Some(held_back) = CANNOT.pass() {
                        tracing::warn!(%error, ?pause, held_back, "cannot accept connections; trying again after a pause");
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    fn hand_out(&self, accepted: Accepted, identity: Identity) {
        let metrics = &self.front.gate().metrics;
        let admitted = match self.front.clients().admit(identity, Instant::now()) {
            Ok(admitted) => admitted,
            Err(NoRoom::Full) => {
                static TOO_MANY: Throttle = Throttle::new();
                let limit = self.front.limits().connections;
                if let Some(held_back) = TOO_MANY.pass() {
                    tracing::warn!(limit, held_back, "too many connections; this one is closed");
                }
                return metrics.refused(Refused::Connections);
            }
            Err(NoRoom::Share) => {
                static SHARE: Throttle = Throttle::new();
                if let Some(held_back) = SHARE.pass() {
                    tracing::warn!(held_back, "a client is at its share of the connections; this one is closed");
                }
                return metrics.refused(Refused::ClientShare);
            }
        };
        let Some(worker) = least_busy(&self.workers) else { return };
        let serving = worker.enter();
        let (front, life, alive) = (Arc::clone(&self.front), self.life.clone(), self.alive.clone());
        let index = worker.index();
        worker.handle().spawn(async move {
            let alive = alive;
            if let Err(error) = accepted.serve(front, index, admitted, life, serving).await {
                tracing::debug!(%error, "a connection ended before it began");
            }
            drop(alive);
        });
    }
}

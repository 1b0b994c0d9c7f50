//! A sidecar that serves: the handle of whoever started it, and the control plane behind it until it has drained.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use super::{
    background::Loops,
    listeners::SocketFile,
    threads::{UnwaitedRuntime, Workers},
};
use crate::{
    front::{Bound, Front, accept},
    live::{Current, ReplicaHealth},
    telemetry::{Audit, Metrics},
};

/// Timeout of a stop for an audit sink that takes nothing, where there is time.
const AUDIT_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC and plain HTTP over TCP.
    pub tcp: SocketAddr,
    /// The same over a unix socket.
    pub uds: Option<PathBuf>,
    /// The admin pages.
    pub admin: SocketAddr,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainResult {
    /// Connections that still had reviews under way when time was up; `None` when the control plane broke.
    pub cut: Option<usize>,
}

impl DrainResult {
    /// Was every review under way finished?
    pub fn complete(self) -> bool {
        self.cut == Some(0)
    }
}

/// A sidecar that serves. Dropping it stops it and waits, as [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    /// Bound addresses.
    pub addresses: Addresses,
    /// Generation in force.
    pub current: Arc<Current>,
    /// What it reports about itself.
    pub health: Arc<ReplicaHealth>,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) ended: oneshot::Receiver<DrainResult>,
    /// Result of the drain, once it is known; records may still be written out then.
    pub(super) outcome: Arc<OnceLock<DrainResult>>,
    /// Sink of audit records.
    pub(super) audit: Arc<Audit>,
    /// Longest time from the stop signal to the end.
    pub(super) ends_within: Duration,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Turns readiness red, takes nothing new, lets reviews under way finish for a bounded time, and ends every thread.
    /// Blocks meanwhile.
    pub fn stop(mut self) -> DrainResult {
        self.begin_to_stop();
        self.join();
        self.ended.try_recv().unwrap_or(DrainResult { cut: None })
    }

    pub(super) fn begin_to_stop(&self) {
        self.stop.send_replace(true);
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_to_stop();
        self.join();
    }
}

/// The control plane of a sidecar: accepts connections and hands them to the workers, beside its loops.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) front: Arc<Front>,
    pub(super) sockets: Vec<Bound>,
    pub(super) socket_file: Option<SocketFile>,
    pub(super) workers: Workers,
    pub(super) loops: Loops,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) outcome: Arc<OnceLock<DrainResult>>,
    pub(super) end: oneshot::Sender<DrainResult>,
}

impl Service {
    /// Serves until stopped and drained, then ends the workers. The configuration is followed, and the admin pages are
    /// served, to the last.
    pub(super) fn run(self, runtime: UnwaitedRuntime) {
        let Self { front, sockets, socket_file, workers, loops, mut stopped, outcome, end } = self;
        let audit = Arc::clone(&front.gate.audit);
        let drained = runtime.block_on(async {
            let stopped = async move { stopped.wait_for(|stopped| *stopped).await.map_or((), drop) };
            let mut loops = loops.spawn();
            let drained = tokio::select! {
                drained = accept::serve(front, sockets, workers.handles(), stopped) => Some(drained.cut),
                () = loops.panicked() => None,
            };
            let drained = DrainResult { cut: drained };
            // The only report of the drain's outcome.
            let _ = outcome.set(drained);
            audit.begin_to_close();
            loops.end().await;
            drained
        });
        if let Some(file) = socket_file {
            file.remove();
        }
        drop(runtime);
        workers.shut_down();
        if !audit.close_within(AUDIT_CLOSE_TIMEOUT) {
            tracing::warn!("cannot write the last lines of the audit log; they are lost");
        }
        let _ = end.send(drained);
        workers.join();
    }
}

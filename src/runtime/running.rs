//! Running sidecar: the handle of its starter, and the control plane until it has drained.

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
    front::{Front, Listener, accept},
    live::{Current, ReplicaHealth},
    telemetry::{Audit, Metrics},
};

/// Time that a stop waits for an audit sink that accepts nothing.
const AUDIT_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Address of gRPC and plain HTTP over TCP.
    pub tcp: SocketAddr,
    /// Path of the unix socket with the same services.
    pub uds: Option<PathBuf>,
    /// Address of the admin pages.
    pub admin: SocketAddr,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainResult {
    /// Connections that had reviews under way when the time was over; `None` if the control plane panicked.
    pub cut: Option<usize>,
}

impl DrainResult {
    /// Returns true if every review under way was finished.
    pub fn complete(self) -> bool {
        self.cut == Some(0)
    }
}

/// Handle of a sidecar that serves. Dropping it stops the sidecar and waits, as [`Running::stop`] does.
#[derive(Debug)]
pub struct Running {
    /// Bound addresses.
    pub addresses: Addresses,
    /// Generation in force.
    pub current: Arc<Current>,
    /// Health of the replica.
    pub health: Arc<ReplicaHealth>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) ended: oneshot::Receiver<DrainResult>,
    /// Result of the drain, once it is known; audit records may still be written then.
    pub(super) outcome: Arc<OnceLock<DrainResult>>,
    /// Sink of audit records.
    pub(super) audit: Arc<Audit>,
    /// Maximum time from the stop signal to the end.
    pub(super) ends_within: Duration,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Reports unready, accepts nothing new, lets reviews under way finish for a bounded time, and ends every thread.
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
            // The panic of a thread is on stderr already.
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

/// Control plane of a sidecar: accepts connections and assigns them to the workers, besides its loops.
pub(super) struct Service {
    pub(super) front: Arc<Front>,
    pub(super) sockets: Vec<Listener>,
    pub(super) socket_file: Option<SocketFile>,
    pub(super) workers: Workers,
    pub(super) loops: Loops,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) outcome: Arc<OnceLock<DrainResult>>,
    pub(super) end: oneshot::Sender<DrainResult>,
}

impl Service {
    /// Serves until stopped and drained, then ends the workers. The loops, such as the admin pages, run to the end of
    /// the drain.
    pub(super) fn run(self, runtime: UnwaitedRuntime) {
        let Self { front, sockets, socket_file, workers, loops, mut stopped, outcome, end } = self;
        let audit = Arc::clone(&front.deps.audit);
        let drained = runtime.block_on(async {
            let stopped = async move { stopped.wait_for(|stopped| *stopped).await.map_or((), drop) };
            let mut loops = loops.spawn();
            let drained = tokio::select! {
                drained = accept::serve(front, sockets, workers.workers.clone(), stopped) => Some(drained.cut),
                () = loops.panicked() => None,
            };
            let drained = DrainResult { cut: drained };
            // The outcome is set only here.
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

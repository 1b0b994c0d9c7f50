//! Running: a sidecar that serves, and how it ends.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    live::Current,
    telemetry::{Audit, Metrics},
};

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

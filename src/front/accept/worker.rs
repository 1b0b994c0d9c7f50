//! Worker: one core's runtime, as the accept loop sees it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::runtime::Handle;

/// One core's runtime.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    handle: Handle,
    open: AtomicUsize,
}

impl Worker {
    /// The worker of that number (0..n), which runs on that runtime.
    pub fn new(index: usize, handle: Handle) -> Arc<Self> {
        Arc::new(Self { index, handle, open: AtomicUsize::new(0) })
    }

    /// Its number, 0..n.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Connections it serves.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts one more connection until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Serving {
        self.open.fetch_add(1, Ordering::Relaxed);
        Serving(Arc::clone(self))
    }
}

/// One connection of a worker.
#[derive(Debug)]
pub(crate) struct Serving(Arc<Worker>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The worker with the fewest connections, the first of several; `None` of none.
pub(crate) fn least_busy(workers: &[Arc<Worker>]) -> Option<&Arc<Worker>> {
    workers.iter().min_by_key(|worker| worker.open())
}

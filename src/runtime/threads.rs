//! Threads of a sidecar and their runtimes.

use std::{
    io,
    ops::Deref,
    sync::Arc,
    thread::{Builder as ThreadBuilder, JoinHandle},
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
};

use crate::front::Worker;

/// Lowers the priority of the calling thread below that of the workers.
pub(crate) fn lower_priority() {
    /// With this value a thread gets a quarter of a core beside a busy worker: enough for a read to meet its deadline.
    const NICENESS: i32 = 5;
    // On Linux this sets the priority of the calling thread. If it fails, reviews wait a little longer. A process that
    // is nicer already keeps its priority, because root could otherwise raise these threads above the reviews.
    if rustix::process::getpriority_process(None).is_ok_and(|now| now < NICENESS) {
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

/// Runtime whose drop waits for no blocking work. An ordinary runtime waits until every read of a file and every name
/// lookup has ended, and some of them never do.
#[derive(Debug)]
pub(crate) struct UnwaitedRuntime(Option<Runtime>);

impl UnwaitedRuntime {
    /// Creates a runtime on the current thread.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub(crate) fn new() -> io::Result<Self> {
        Self::build(Builder::new_current_thread().enable_all())
    }

    /// Builds a runtime.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub(crate) fn build(builder: &mut Builder) -> io::Result<Self> {
        builder.build().map(|runtime| Self(Some(runtime)))
    }
}

impl Deref for UnwaitedRuntime {
    type Target = Runtime;

    #[allow(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for UnwaitedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Creates a runtime for the control plane or a worker. Its blocking threads have a lower priority than reviews:
/// reading and checking a large configuration keeps a core busy for longer than a review takes.
pub(super) fn new_runtime() -> io::Result<UnwaitedRuntime> {
    UnwaitedRuntime::build(Builder::new_current_thread().enable_all().on_thread_start(lower_priority))
}

/// Starts a named thread.
pub(super) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    ThreadBuilder::new().name(name).spawn(run)
}

/// Threads that serve reviews. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) workers: Vec<Arc<Worker>>,
    threads: Vec<JoinHandle<()>>,
    end: watch::Sender<bool>,
}

impl Workers {
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let mut workers = Self { workers: Vec::new(), threads: Vec::new(), end: watch::Sender::new(false) };
        for index in 0..count {
            let runtime = new_runtime()?;
            workers.workers.push(Worker::new(index, runtime.handle().clone()));
            let mut end = workers.end.subscribe();
            let run = move || drop(runtime.block_on(end.wait_for(|end| *end)));
            workers.threads.push(spawn(format!("gatepost-worker-{index}"), run)?);
        }
        Ok(workers)
    }

    /// Returns the runtimes of the workers.
    pub(super) fn runtimes(&self) -> Vec<Handle> {
        self.workers.iter().map(|worker| worker.handle.clone()).collect()
    }

    /// Makes the workers end.
    pub(super) fn shut_down(&self) {
        self.end.send_replace(true);
    }

    /// Waits until the workers have ended.
    pub(super) fn join(self) {
        for thread in self.threads {
            // The panic of a thread is on stderr already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn blocking_work_of_the_control_plane_gives_way_to_reviews() {
        let runtime = new_runtime().unwrap();
        let ours = getpriority_process(None).unwrap();
        let beside = runtime.block_on(runtime.spawn_blocking(|| getpriority_process(None).unwrap())).unwrap();
        assert_eq!((getpriority_process(None).unwrap(), beside), (ours, 5.max(ours)));
    }

    #[test]
    fn runtime_ends_despite_blocked_tasks() {
        let (release, hung) = mpsc::channel::<()>();
        let (blocks, begun) = mpsc::channel();
        let runtime = UnwaitedRuntime::new().unwrap();
        runtime.spawn_blocking(move || {
            blocks.send(()).unwrap();
            hung.recv().unwrap_or_default();
        });
        begun.recv().unwrap();
        drop(runtime);
        drop(release);
    }
}

//! Background loops: tasks of the control plane besides the reviews, from the start of a sidecar until it has drained.

use std::pin::Pin;

use tokio::{
    sync::watch,
    task::{Id, JoinSet},
};

/// Signal for the loops to end, sent after reviews have drained.
#[derive(Clone, Debug)]
pub(super) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Runs `work` until it ends or the signal is sent.
    pub(super) async fn or(mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            // A dropped sender ends the loops, too.
            _ = self.0.wait_for(|shutdown| *shutdown) => {}
        }
    }
}

/// Loop that has not started.
type BackgroundLoop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Background loops of a sidecar that has not started.
pub(super) struct Loops {
    loops: Vec<(&'static str, BackgroundLoop)>,
    shutdown: watch::Sender<bool>,
}

impl Default for Loops {
    fn default() -> Self {
        Self { loops: Vec::new(), shutdown: watch::Sender::new(false) }
    }
}

impl Loops {
    /// Adds a loop that is dropped at the shutdown, at any of its await points.
    pub(super) fn add(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.add_with_shutdown(name, |shutdown| shutdown.or(run));
    }

    /// Adds a loop that handles the shutdown itself; the shutdown waits for its end.
    pub(super) fn add_with_shutdown<F>(&mut self, name: &'static str, run: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.loops.push((name, Box::pin(run(Shutdown(self.shutdown.subscribe())))));
    }

    /// Spawns all loops on the current runtime.
    pub(super) fn spawn(self) -> RunningLoops {
        let mut tasks = JoinSet::new();
        let names = self.loops.into_iter().map(|(name, run)| (tasks.spawn(run).id(), name)).collect();
        RunningLoops { tasks, names, shutdown: self.shutdown }
    }
}

/// Background loops of a sidecar that serves. Dropping this aborts them.
#[derive(Debug)]
pub(super) struct RunningLoops {
    tasks: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
    shutdown: watch::Sender<bool>,
}

impl RunningLoops {
    /// Waits until a loop panics, which is a bug. A loop may end when it has nothing more to do.
    pub(super) async fn panicked(&mut self) {
        while let Some(joined) = self.tasks.join_next().await {
            if let Err(error) = joined {
                let name = self.names.iter().find(|(id, _)| *id == error.id()).map(|(_, name)| name);
                return tracing::error!(name, "a background loop panicked; this is a bug in gatepost");
            }
        }
        std::future::pending().await
    }

    /// Ends all loops and waits for them.
    pub(super) async fn end(mut self) {
        self.shutdown.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn loops_run_until_shutdown_and_farewells_are_waited_for() {
        let (farewells, mut said) = tokio::sync::mpsc::unbounded_channel();
        let mut loops = Loops::default();
        loops.add("ends by itself", async {});
        loops.add("runs for ever", pending());
        loops.add_with_shutdown("leaves", |shutdown| async move {
            shutdown.or(pending()).await;
            farewells.send("good-bye").unwrap();
        });
        let running = loops.spawn();
        tokio::task::yield_now().await;
        assert!(said.try_recv().is_err());
        running.end().await;
        assert_eq!(said.try_recv(), Ok("good-bye"));
    }

    #[tokio::test]
    async fn panic_of_a_background_loop_is_noticed() {
        let mut loops = Loops::default();
        loops.add("runs for ever", pending());
        loops.add("panics", async { panic!("on purpose") });
        loops.spawn().panicked().await;
    }
}

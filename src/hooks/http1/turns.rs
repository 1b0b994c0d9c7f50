//! Turns: how calls get through to a hook that serves one connection at a time.
//!
//! Such a hook hears nobody else while one of our connections is open, idle or not; and which hooks are like that, only
//! waiting tells. So idle connections give way, on all lanes, when somebody has waited on a new connection for a while,
//! unless the hook was seen to serve several at once.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::timeout,
};

use super::barren::Barren;

/// Wait for a new connection, TLS included, after which an idle one may be ended for it. One that has been idle for
/// less stays: calls made at the same time are answered at about the same time.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// State that the clients of one endpoint share about their HTTP/1.1 connections.
#[derive(Debug, Default)]
pub(in super::super) struct Turns {
    /// Callers that have waited long enough for an idle connection to be ended.
    waiting: AtomicUsize,
    /// Idle connections.
    idle: AtomicUsize,
    /// The hook has answered on a new connection while another was idle.
    several: AtomicBool,
    called: Notify,
    /// Connections that carried no answer.
    pub(super) barren: Barren,
}

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a Turns);

/// A connection that is idle.
#[derive(Debug)]
pub(super) struct Resting(Arc<Turns>);

impl Turns {
    /// Does what takes a new connection. It has so long until idle ones give way to it.
    pub(in super::super) async fn patiently<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(PATIENCE, &mut work).await {
            return done;
        }
        let _waiting = self.wait();
        work.await
    }

    /// Somebody's patience is over, who waits until this is dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, SeqCst);
        self.called.notify_waiters();
        Waiting(self)
    }

    /// A connection is idle until this is dropped.
    pub(super) fn rest(self: &Arc<Self>) -> Resting {
        self.idle.fetch_add(1, SeqCst);
        Resting(self.clone())
    }

    /// A lane waits for room for a connection: the others look whether they have an idle one.
    pub(super) fn seek_room(&self) {
        self.called.notify_waiters();
    }

    /// A call on a new connection was answered.
    pub(super) fn answered(&self) {
        self.barren.answered();
        if self.idle.load(SeqCst) > 0 {
            self.several.store(true, SeqCst);
        }
    }

    /// Are idle connections to give way?
    pub(super) fn are_called(&self) -> bool {
        self.waiting.load(SeqCst) > 0 && !self.several.load(SeqCst)
    }

    /// Ready when somebody's patience is over, or a lane seeks room.
    pub(super) fn call(&self) -> Notified<'_> {
        self.called.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.idle.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_called_while_somebody_waits() {
        let turns = Arc::new(Turns::default());
        assert!(!turns.are_called());
        let waiting = turns.wait();
        assert!(turns.are_called());
        turns.answered();
        assert!(turns.are_called(), "nothing was idle: the hook may serve one after the other");
        drop(waiting);
        assert!(!turns.are_called());
    }

    #[test]
    fn a_hook_that_serves_several_at_once_keeps_its_connections() {
        let turns = Arc::new(Turns::default());
        let resting = turns.rest();
        turns.answered();
        drop(resting);
        let _waiting = turns.wait();
        assert!(!turns.are_called());
    }
}

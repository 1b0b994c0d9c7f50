//! IdleArbiter: access to a hook that serves one connection at a time.
//!
//! Such a hook serves no other connection while one of our connections is open, idle or not; and which hooks are like
//! that, only waiting shows. So idle connections give way, on all clients, when somebody has waited on a new connection
//! for a while, unless the hook was seen to serve several at once.

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

use super::connect_breaker::ConnectBreaker;

/// Wait for a new connection, TLS included, after which an idle one may be ended for it. One that has been idle for
/// less stays: calls made at the same time are answered at about the same time.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// State that the clients of one endpoint share about their HTTP/1.1 connections.
#[derive(Debug, Default)]
pub(in super::super) struct IdleArbiter {
    /// Callers that have waited long enough for an idle connection to be ended.
    waiting: AtomicUsize,
    /// Idle connections.
    idle: AtomicUsize,
    /// The hook has answered on a new connection while another was idle.
    several: AtomicBool,
    changes: Notify,
    /// Connections that carried no answer.
    pub(super) breaker: ConnectBreaker,
}

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct EvictionWanted<'a>(&'a IdleArbiter);

/// A connection that is idle.
#[derive(Debug)]
pub(super) struct IdleGuard(Arc<IdleArbiter>);

impl IdleArbiter {
    /// Does what takes a new connection. It has so long until idle ones give way to it.
    pub(in super::super) async fn run_or_evict_idle<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(PATIENCE, &mut work).await {
            return done;
        }
        let _waiting = self.want_eviction();
        work.await
    }

    /// Somebody's patience is over, who waits until this is dropped.
    pub(super) fn want_eviction(&self) -> EvictionWanted<'_> {
        self.waiting.fetch_add(1, SeqCst);
        self.changes.notify_waiters();
        EvictionWanted(self)
    }

    /// A connection is idle until this is dropped.
    pub(super) fn idle_guard(self: &Arc<Self>) -> IdleGuard {
        self.idle.fetch_add(1, SeqCst);
        IdleGuard(self.clone())
    }

    /// A client waits for room for a connection: the others look whether they have an idle one.
    pub(super) fn want_room(&self) {
        self.changes.notify_waiters();
    }

    /// A call on a new connection was answered.
    pub(super) fn answered(&self) {
        self.breaker.answered();
        if self.idle.load(SeqCst) > 0 {
            self.several.store(true, SeqCst);
        }
    }

    /// Are idle connections to give way?
    pub(super) fn eviction_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0 && !self.several.load(SeqCst)
    }

    /// Ready when somebody's patience is over, or a client seeks room.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changes.notified()
    }
}

impl Drop for EvictionWanted<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.0.idle.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_called_while_somebody_waits() {
        let arbiter = Arc::new(IdleArbiter::default());
        assert!(!arbiter.eviction_wanted());
        let waiting = arbiter.want_eviction();
        assert!(arbiter.eviction_wanted());
        arbiter.answered();
        assert!(arbiter.eviction_wanted(), "nothing was idle: the hook may serve one after the other");
        drop(waiting);
        assert!(!arbiter.eviction_wanted());
    }

    #[test]
    fn a_hook_that_serves_several_at_once_keeps_its_connections() {
        let arbiter = Arc::new(IdleArbiter::default());
        let guard = arbiter.idle_guard();
        arbiter.answered();
        drop(guard);
        let _waiting = arbiter.want_eviction();
        assert!(!arbiter.eviction_wanted());
    }
}

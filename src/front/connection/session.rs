//! Session: state that the calls of one connection share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use tokio::sync::{Notify, futures::Notified};

use super::unsent::Unsent;
use crate::front::accept::share::ConnectedClient;

/// State shared by the calls of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    client: Arc<ConnectedClient>,
    unsent: Arc<Unsent>,
    /// Reviews being read or decided.
    calls: AtomicUsize,
    /// Calls of health and reflection.
    pub(crate) aux_calls: AtomicUsize,
    /// Streams of initializers.
    pub(crate) attached: AtomicUsize,
    /// Calls about unfinished objects.
    pub(crate) initializing: AtomicUsize,
    /// Instances of initializers: those of these streams whose claim is good.
    instances: AtomicUsize,
    /// Has it had a verdict?
    served: AtomicBool,
    /// The second in which it came, or its last review.
    last_used: AtomicU64,
    evicted: Notify,
}

impl Session {
    /// The connection of that number and client, which came at that second.
    pub(crate) fn new(number: u64, client: Arc<ConnectedClient>, now: Instant, second: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            client,
            unsent: Unsent::new(now),
            calls: AtomicUsize::new(0),
            aux_calls: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
            initializing: AtomicUsize::new(0),
            instances: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            last_used: AtomicU64::new(second),
            evicted: Notify::new(),
        })
    }

    /// Its number, which no other connection ever has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Client of the connection.
    pub(crate) fn client(&self) -> &Arc<ConnectedClient> {
        &self.client
    }

    /// Its verdicts that are not written yet.
    pub(crate) fn unsent(&self) -> &Arc<Unsent> {
        &self.unsent
    }

    /// Reviews being read or decided.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Has it a review that is read, decided or answered, or an instance of an initializer?
    pub(crate) fn is_busy(&self) -> bool {
        self.calls() > 0 || self.instances.load(Relaxed) > 0 || !self.unsent.is_empty()
    }

    /// An instance of an initializer is attached until the guard is dropped.
    pub(crate) fn attach(&self) -> InstanceGuard<'_> {
        self.instances.fetch_add(1, Relaxed);
        InstanceGuard(&self.instances)
    }

    /// A review begins in that second.
    pub(crate) fn begin(&self, second: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.last_used.store(second, Relaxed);
    }

    /// A review ends.
    pub(crate) fn end(&self) {
        self.calls.fetch_sub(1, Relaxed);
    }

    /// It had a verdict.
    pub(crate) fn had_verdict(&self) {
        if !self.served.load(Relaxed) {
            self.served.store(true, Relaxed);
        }
    }

    /// Worth of an idle connection: less if it never had a verdict, and the longer it has been idle.
    pub(crate) fn idle(&self) -> Option<(bool, u64)> {
        let idle = self.calls() == 0 && self.instances.load(Relaxed) == 0;
        idle.then(|| (self.served.load(Relaxed), self.last_used.load(Relaxed)))
    }

    /// Evicts the connection, which makes room for others.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Done once it has been asked to.
    pub(crate) fn evicted(&self) -> Notified<'_> {
        self.evicted.notified()
    }
}

/// One instance of an initializer.
#[derive(Debug)]
pub(crate) struct InstanceGuard<'a>(&'a AtomicUsize);

impl Drop for InstanceGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

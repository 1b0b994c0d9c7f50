//! Session: what the calls of one connection share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use tokio::sync::{Notify, futures::Notified};

use super::{share::Client, unsent::Unsent};

/// State shared by the calls of one connection.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    client: Arc<Client>,
    unsent: Arc<Unsent>,
    /// Reviews being read or decided.
    calls: AtomicUsize,
    /// Calls of health and reflection.
    pub(super) cold_calls: AtomicUsize,
    /// Has it had a verdict?
    served: AtomicBool,
    /// The second in which it came, or its last review.
    last_used: AtomicU64,
    evicted: Notify,
}

impl Session {
    /// The connection of that number and client, which came at that second.
    pub(super) fn new(number: u64, client: Arc<Client>, now: Instant, second: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            client,
            unsent: Unsent::new(now),
            calls: AtomicUsize::new(0),
            cold_calls: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            last_used: AtomicU64::new(second),
            evicted: Notify::new(),
        })
    }

    /// Its number, which no other connection ever has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whose connection it is.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Its verdicts that are not written yet.
    pub(super) fn unsent(&self) -> &Arc<Unsent> {
        &self.unsent
    }

    /// Reviews being read or decided.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Has it a review that is read, decided or answered?
    pub(super) fn is_busy(&self) -> bool {
        self.calls() > 0 || !self.unsent.is_empty()
    }

    /// A review begins in that second.
    pub(super) fn begin(&self, second: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.last_used.store(second, Relaxed);
    }

    /// A review ends.
    pub(super) fn end(&self) {
        self.calls.fetch_sub(1, Relaxed);
    }

    /// It had a verdict.
    pub(super) fn had_verdict(&self) {
        if !self.served.load(Relaxed) {
            self.served.store(true, Relaxed);
        }
    }

    /// How much it is missed, where it is idle: less if it never had a verdict, and the longer it has been idle.
    pub(super) fn idle(&self) -> Option<(bool, u64)> {
        (self.calls() == 0).then(|| (self.served.load(Relaxed), self.last_used.load(Relaxed)))
    }

    /// Tells the connection to make room.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Done once it has been told.
    pub(super) fn evicted(&self) -> Notified<'_> {
        self.evicted.notified()
    }
}

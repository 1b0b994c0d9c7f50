//! Connection budget: limits on connections to hooks, for all hooks together and for each.
//!
//! File descriptors that one hook uses are not available to other hooks, nor to the readers of the configuration. So
//! all hooks together have a limit. Each hook is guaranteed a few of these connections, may take more from those that
//! are guaranteed to no hook, and has a limit of its own. A connection counts from before it is dialled until its
//! socket is closed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections to one hook over all workers, unless one for each worker is more.
const MAX_CONNECTIONS_PER_HOOK: usize = 64;
/// Maximum number of simultaneous extra connection attempts, which dials begin when their first address is silent. They
/// count as connections only once they win, so the limit on connections must leave room for them.
pub const MAX_FURTHER_ATTEMPTS: usize = 32;

/// The connections to all hooks.
#[derive(Debug)]
pub struct ConnectionBudget {
    limit: usize,
    open: AtomicUsize,
    /// Connections guaranteed to no hook.
    shared: Arc<Semaphore>,
    /// Guaranteed connections that other hooks still use.
    owed: Mutex<usize>,
    /// Sum of the hooks' guarantees, which may exceed the limit.
    guaranteed: AtomicUsize,
    /// Number of dials that wait for one of `shared`.
    waiting: AtomicUsize,
    /// Permits for extra attempts of dials whose first address is silent.
    pub(super) further_attempts: Semaphore,
}

/// All connections of the budget are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {limit} connections to hooks that this process may have are in use; raise RLIMIT_NOFILE")]
pub(super) struct Exhausted {
    limit: usize,
}

impl ConnectionBudget {
    /// Creates a budget of at most `limit` connections to all hooks.
    pub fn new(limit: usize) -> Arc<Self> {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            limit,
            open: AtomicUsize::new(0),
            shared: Arc::new(Semaphore::new(limit)),
            owed: Mutex::new(0),
            guaranteed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            further_attempts: Semaphore::new(MAX_FURTHER_ATTEMPTS),
        })
    }

    /// Returns the maximum number of connections.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of connections that are open or being dialled.
    pub fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// Returns by how many connections the guarantees exceed the limit. Some calls then fail while other hooks are
    /// busy, or always.
    pub fn missing(&self) -> usize {
        self.guaranteed.load(SeqCst).saturating_sub(self.limit)
    }

    /// Returns the share of one more hook. While all guarantees together do not exceed the limit, it is guaranteed a
    /// connection for each client, and one more for the successor of a connection that takes no more calls.
    pub(super) fn share(self: &Arc<Self>, clients: usize) -> Arc<Share> {
        let own = clients + 1;
        self.guaranteed.fetch_add(own, SeqCst);
        // Nothing panics while the lock is held.
        *self.owed.lock().unwrap_or_else(PoisonError::into_inner) += own - self.shared.forget_permits(own);
        Arc::new(Share {
            own: Arc::new(Semaphore::new(own)),
            beyond: Arc::new(Semaphore::new(MAX_CONNECTIONS_PER_HOOK.saturating_sub(own))),
            guaranteed: own,
            per_client: (MAX_CONNECTIONS_PER_HOOK.max(own) / clients.max(1)).max(1),
            waiting: AtomicUsize::new(0),
            budget: Arc::clone(self),
        })
    }

    /// Gives connections back to all hooks, or settles owed connections with them.
    fn release(&self, connections: usize) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let paid = connections.min(*owed);
        *owed -= paid;
        self.shared.add_permits(connections - paid);
    }
}

/// The connections to one hook.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) budget: Arc<ConnectionBudget>,
    /// Guaranteed connections.
    own: Arc<Semaphore>,
    /// Further connections that it may have, each of which takes one of the budget's.
    beyond: Arc<Semaphore>,
    guaranteed: usize,
    /// Number of connections that each worker's client may keep while another one waits.
    pub(super) per_client: usize,
    /// Number of clients that wait for a connection to this hook.
    waiting: AtomicUsize,
}

impl Share {
    /// Takes a slot for a connection if one is free.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Result<Slot, Exhausted>> {
        if let Ok(own) = self.own.clone().try_acquire_owned() {
            return Some(self.slot(own, None));
        }
        let beyond = self.beyond.clone().try_acquire_owned().ok()?;
        let shared = self.budget.shared.clone().try_acquire_owned().ok()?;
        Some(self.slot(beyond, Some(shared)))
    }

    /// Waits for a slot for a connection, and takes it. Slots are given in the order of the calls.
    pub(super) async fn take(self: Arc<Self>) -> Result<Slot, Exhausted> {
        if let Some(slot) = self.try_take() {
            return slot;
        }
        let _waits = CountGuard::new(&self.waiting);
        let own = async { Some((self.own.clone().acquire_owned().await.ok()?, None)) };
        let further = async {
            let beyond = self.beyond.clone().acquire_owned().await.ok()?;
            let _waits = CountGuard::new(&self.budget.waiting);
            Some((beyond, Some(self.budget.shared.clone().acquire_owned().await.ok()?)))
        };
        let taken = tokio::select! {
            biased;
            own = own => own,
            further = further => further,
        };
        // The semaphores are never closed.
        let (permit, shared) = taken.ok_or(Exhausted { limit: self.budget.limit })?;
        self.slot(permit, shared)
    }

    fn slot(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        shared: Option<OwnedSemaphorePermit>,
    ) -> Result<Slot, Exhausted> {
        let limit = self.budget.limit;
        let open = self.budget.open.fetch_add(1, SeqCst);
        let slot = Slot { _permit: permit, shared, share: Arc::clone(self) };
        // Only owed connections can exceed the limit.
        if open < limit { Ok(slot) } else { Err(Exhausted { limit }) }
    }

    /// Returns the number of clients that wait for a connection to this hook.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Returns true if another hook waits for a connection that is guaranteed to none.
    pub(super) fn others_wait(&self) -> bool {
        self.budget.waiting.load(SeqCst) > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.guaranteed.fetch_sub(self.guaranteed, SeqCst);
        self.budget.release(self.guaranteed);
    }
}

/// Permission for one connection. It lives as long as the connection's socket.
#[derive(Debug)]
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    /// One of the connections that are guaranteed to no hook.
    shared: Option<OwnedSemaphorePermit>,
    share: Arc<Share>,
}

impl Slot {
    /// Returns true if the connection is beyond those that its hook is guaranteed.
    pub(super) fn is_beyond_guarantee(&self) -> bool {
        self.shared.is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.share.budget.open.fetch_sub(1, SeqCst);
        if let Some(permit) = self.shared.take() {
            permit.forget();
            self.share.budget.release(1);
        }
    }
}

/// Increments a counter until this is dropped.
#[derive(Debug)]
pub(super) struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests;

//! Connection budget: limits on connections to hooks, all together and each.
//!
//! A descriptor that one hook takes is missing to all others, and to whoever reads the configuration. So there is a
//! limit for all; each hook is guaranteed a few connections of it, takes more from what nobody is guaranteed, and has a
//! limit of its own. A connection counts from before it is dialled until its socket is closed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most connections to one hook, over all workers, where its workers do not need more.
const MOST_A_HOOK: usize = 64;
/// The most further connection attempts at once of dials whose first address is silent. They are not counted as
/// connections until they win; whoever makes the budget leaves room for them.
pub const FURTHER_ATTEMPTS: usize = 32;

/// The connections to all hooks.
#[derive(Debug)]
pub struct ConnectionBudget {
    limit: usize,
    open: AtomicUsize,
    /// Connections guaranteed to no hook.
    shared: Arc<Semaphore>,
    /// Guaranteed connections that other hooks still use.
    owed: Mutex<usize>,
    /// All that hooks are guaranteed, whether or not there is as much.
    guaranteed: AtomicUsize,
    /// Somebody waits for one of `shared`.
    wanted: AtomicUsize,
    further_attempts: Semaphore,
}

/// There is no connection left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted {
    limit: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(f, "all {limit} connections to hooks that this process may have are in use; raise RLIMIT_NOFILE")
    }
}

impl ConnectionBudget {
    /// At most `limit` connections to all hooks.
    pub fn new(limit: usize) -> Arc<Self> {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            limit,
            open: AtomicUsize::new(0),
            shared: Arc::new(Semaphore::new(limit)),
            owed: Mutex::new(0),
            guaranteed: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            further_attempts: Semaphore::new(FURTHER_ATTEMPTS),
        })
    }

    /// The most there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Connections that are open or being made.
    pub fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// Connections that hooks are guaranteed and that cannot be had: calls fail while others are busy, or for ever.
    pub fn missing(&self) -> usize {
        self.guaranteed.load(SeqCst).saturating_sub(self.limit)
    }

    /// Room for one more attempt beside one that is silent.
    pub(super) fn further_attempts(&self) -> &Semaphore {
        &self.further_attempts
    }

    /// One more hook. It may have a connection for every client whatever the others do, as long as all that is
    /// guaranteed is not more than the limit; and one more, for the successor of a connection that takes no more calls.
    pub(super) fn share(self: &Arc<Self>, clients: usize) -> Arc<Share> {
        let own = clients + 1;
        self.guaranteed.fetch_add(own, SeqCst);
        self.guarantee(own);
        Arc::new(Share {
            own: Arc::new(Semaphore::new(own)),
            beyond: Arc::new(Semaphore::new(MOST_A_HOOK.saturating_sub(own))),
            guaranteed: own,
            fair: (MOST_A_HOOK.max(own) / clients.max(1)).max(1),
            wanted: AtomicUsize::new(0),
            budget: Arc::clone(self),
        })
    }

    fn guarantee(&self, own: usize) {
        // Nothing panics while the lock is held.
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        *owed += own - self.shared.forget_permits(own);
    }

    /// Connections are for anybody again, or pay what is owed.
    fn release(&self, connections: usize) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let paid = connections.min(*owed);
        *owed -= paid;
        self.shared.add_permits(connections - paid);
    }

    fn count(self: &Arc<Self>) -> Result<Counted, Exhausted> {
        let counted = Counted(Arc::clone(self));
        // Only what is owed can be above the limit.
        if self.open.fetch_add(1, SeqCst) < self.limit { Ok(counted) } else { Err(Exhausted { limit: self.limit }) }
    }
}

/// The connections to one hook.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<ConnectionBudget>,
    /// Guaranteed ones.
    own: Arc<Semaphore>,
    /// Further ones that it may have, each of which takes one of the budget's.
    beyond: Arc<Semaphore>,
    guaranteed: usize,
    /// Connections that each worker's client may keep while another waits.
    fair: usize,
    /// Somebody waits for a connection to this hook.
    wanted: AtomicUsize,
}

impl Share {
    /// Room for a connection, if there is any at once.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Result<Slot, Exhausted>> {
        if let Ok(own) = self.own.clone().try_acquire_owned() {
            return Some(self.slot(own, None));
        }
        let beyond = self.beyond.clone().try_acquire_owned().ok()?;
        let shared = self.budget.shared.clone().try_acquire_owned().ok()?;
        Some(self.slot(beyond, Some(shared)))
    }

    /// Room for a connection, once there is any; those who wait are served in order.
    pub(super) async fn take(self: Arc<Self>) -> Result<Slot, Exhausted> {
        if let Some(slot) = self.try_take() {
            return slot;
        }
        let _waits = Wanted::of(&self.wanted);
        let own = async { Some((self.own.clone().acquire_owned().await.ok()?, None)) };
        let further = async {
            let beyond = self.beyond.clone().acquire_owned().await.ok()?;
            let _waits = Wanted::of(&self.budget.wanted);
            Some((beyond, Some(self.budget.shared.clone().acquire_owned().await.ok()?)))
        };
        let taken = tokio::select! {
            biased;
            own = own => own,
            further = further => further,
        };
        // They are never closed.
        let (permit, shared) = taken.ok_or(Exhausted { limit: self.budget.limit })?;
        self.slot(permit, shared)
    }

    fn slot(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        shared: Option<OwnedSemaphorePermit>,
    ) -> Result<Slot, Exhausted> {
        let shared = shared.map(|permit| Shared { permit: Some(permit), budget: Arc::clone(&self.budget) });
        Ok(Slot { _counted: self.budget.count()?, _permit: permit, shared, _share: Arc::clone(self) })
    }

    /// Number of clients that wait for a connection to this hook.
    pub(super) fn waiting(&self) -> usize {
        self.wanted.load(SeqCst)
    }

    /// Some other hook waits for a connection that nobody is guaranteed.
    pub(super) fn others_wait(&self) -> bool {
        self.budget.wanted.load(SeqCst) > 0
    }

    /// Connections that each worker's client may keep while another waits.
    pub(super) fn fair(&self) -> usize {
        self.fair
    }

    pub(super) fn further_attempts(&self) -> &Semaphore {
        self.budget.further_attempts()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.guaranteed.fetch_sub(self.guaranteed, SeqCst);
        self.budget.release(self.guaranteed);
    }
}

/// Room for one connection. It lives as long as the connection's socket.
#[derive(Debug)]
pub(super) struct Slot {
    _counted: Counted,
    _permit: OwnedSemaphorePermit,
    shared: Option<Shared>,
    _share: Arc<Share>,
}

impl Slot {
    /// Beyond what its hook is guaranteed.
    pub(super) fn is_beyond(&self) -> bool {
        self.shared.is_some()
    }
}

/// One of those that nobody is guaranteed.
#[derive(Debug)]
struct Shared {
    permit: Option<OwnedSemaphorePermit>,
    budget: Arc<ConnectionBudget>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forget();
            self.budget.release(1);
        }
    }
}

/// One connection, as long as this lives.
#[derive(Debug)]
struct Counted(Arc<ConnectionBudget>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// Somebody who waits.
struct Wanted<'a>(&'a AtomicUsize);

impl<'a> Wanted<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests;

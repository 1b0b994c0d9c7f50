//! Registry of the connected clients and their connections.
//!
//! A connection beyond the limit of its client, or of all clients, evicts an idle connection: first one without a
//! verdict, then the one that has been idle longest. So idle connections exclude no client. If no connection is idle,
//! the new one is closed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use super::client::{ConnectedClient, Identity, Session, Share};

/// Number of remembered clients without a connection, as a multiple of the limit on connections.
const REMEMBERED_PER_CONNECTION: usize = 4;

/// Registry of the connected clients and their connections.
#[derive(Debug)]
pub(crate) struct Clients {
    began: Instant,
    limit: usize,
    /// Number of known clients with a connection.
    known: AtomicUsize,
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    clients: HashMap<Identity, Arc<ConnectedClient>>,
    sessions: HashMap<u64, Arc<Session>>,
}

/// Reason why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// All clients together have too many connections.
    Full,
    /// The client has used up its share.
    Share,
}

impl Clients {
    /// Creates an empty registry of at most `limit` connections.
    pub(crate) fn new(limit: usize, now: Instant) -> Arc<Self> {
        Arc::new(Self { began: now, limit, known: AtomicUsize::new(0), registry: Mutex::default() })
    }

    /// Returns the seconds from the start of the front to `at`.
    pub(crate) fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }

    /// Returns the share of `limit` that `client` has at `second`.
    pub(crate) fn share(&self, client: &ConnectedClient, limit: usize, second: u64) -> Share {
        Share::of(limit, client.is_known(second), self.known.load(Relaxed) > 1)
    }

    /// Admits a connection of the client `identity`, evicting an idle connection if needed.
    pub(crate) fn admit(
        self: &Arc<Self>,
        identity: Identity,
        now: Instant,
    ) -> Result<AdmittedConnection, ConnectionRefusal> {
        let second = self.second(now);
        let mut registry = self.lock();
        let client = registry.client(identity);
        registry.make_room(self.limit, &client, second)?;
        registry.next += 1;
        let session = Session::new(registry.next, client, now, second);
        registry.insert(Arc::clone(&session));
        self.count_known(&registry, second);
        Ok(AdmittedConnection { clients: Arc::clone(self), session })
    }

    /// Returns the number of connections with a review that is being read, decided or answered, or with an attached
    /// instance of an initializer. Evicted connections do not count.
    pub(crate) fn busy(&self) -> usize {
        self.lock().sessions.values().filter(|session| session.is_busy()).count()
    }

    fn count_known(&self, registry: &Registry, second: u64) {
        let known = registry.clients.values().filter(|client| client.is_connected() && client.is_known(second)).count();
        self.known.store(known, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn client(&mut self, identity: Identity) -> Arc<ConnectedClient> {
        let entry = self.clients.entry(identity);
        let new = Arc::new(ConnectedClient::new(entry.key().clone()));
        Arc::clone(entry.or_insert(new))
    }

    /// Makes room for one more connection of `client`, evicting idle connections if needed.
    fn make_room(&mut self, limit: usize, client: &Arc<ConnectedClient>, second: u64) -> Result<(), ConnectionRefusal> {
        let known = client.is_known(second);
        let is_other = |other: &ConnectedClient| other.is_connected() && other.identity != client.identity;
        let beside_others = self.clients.values().any(|other| is_other(other) && other.is_known(second));
        let share = Share::of(limit, known, beside_others);
        if client.connections.load(Relaxed) >= share.own
            && !self.evict(|session| session.client.identity == client.identity)
        {
            return Err(ConnectionRefusal::Share);
        }
        let is_unknown = |session: &Session| !session.client.is_known(second);
        let unknown = self.sessions.values().filter(|session| is_unknown(session)).count();
        if !known && unknown >= share.of_all && !self.evict(is_unknown) {
            return Err(ConnectionRefusal::Full);
        }
        if self.sessions.len() >= limit && !self.evict(|session| known || is_unknown(session)) {
            return Err(ConnectionRefusal::Full);
        }
        Ok(())
    }

    /// Evicts the least worthy idle connection that `among` selects; returns false if none is idle.
    fn evict(&mut self, among: impl Fn(&Session) -> bool) -> bool {
        let idle = self.sessions.values().filter(|session| among(session));
        let least = idle.filter_map(|session| Some((session.idle_worth()?, session.number))).min();
        let Some((_, number)) = least else { return false };
        self.remove(number).inspect(|session| session.evict()).is_some()
    }

    fn insert(&mut self, session: Arc<Session>) {
        session.client.connections.fetch_add(1, Relaxed);
        self.sessions.insert(session.number, session);
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Session>> {
        let session = self.sessions.remove(&number)?;
        session.client.connections.fetch_sub(1, Relaxed);
        Some(session)
    }

    /// Removes unknown clients without a connection; all clients without a connection if there are too many clients.
    fn forget(&mut self, limit: usize, second: u64) {
        let many = self.clients.len() > limit.saturating_mul(REMEMBERED_PER_CONNECTION);
        self.clients.retain(|_, client| client.is_connected() || (!many && client.is_known(second)));
    }
}

/// Connection that counts towards the limits until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedConnection {
    clients: Arc<Clients>,
    pub(crate) session: Arc<Session>,
}

impl AdmittedConnection {
    /// Replaces the client by the one that its certificate names, before the first call. The client with the
    /// connection's address counts as known from then on.
    pub(crate) fn identify(&mut self, identity: Identity, now: Instant) -> Result<(), ConnectionRefusal> {
        let second = self.clients.second(now);
        let mut registry = self.clients.lock();
        // The connection may have been evicted meanwhile, and then ends.
        let Some(before) = registry.remove(self.session.number) else { return Err(ConnectionRefusal::Full) };
        before.client.had_verdict(second);
        let client = registry.client(identity);
        registry.make_room(self.clients.limit, &client, second)?;
        self.session = Session::new(before.number, client, now, second);
        registry.insert(Arc::clone(&self.session));
        self.clients.count_known(&registry, second);
        Ok(())
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        let second = self.clients.second(Instant::now());
        let mut registry = self.clients.lock();
        registry.remove(self.session.number);
        registry.forget(self.clients.limit, second);
        self.clients.count_known(&registry, second);
    }
}

#[cfg(test)]
#[path = "clients/tests.rs"]
mod tests;

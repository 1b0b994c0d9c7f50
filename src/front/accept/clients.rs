//! Clients: who is connected, and with how many connections.
//!
//! A connection beyond the limit of its client, or of all clients, takes the place of an idle one: first one that never
//! had a verdict, then the one idle longest. So idle connections keep out no client. If none is idle, the new connection
//! is closed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use super::client::{ConnectedClient, Identity, Session, Share};

/// Clients without a connection that are remembered, as a multiple of the limit on connections.
const REMEMBERED_PER_CONNECTION: usize = 4;

/// The connected clients.
#[derive(Debug)]
pub(crate) struct Clients {
    began: Instant,
    limit: usize,
    /// Known clients with a connection.
    known: AtomicUsize,
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    clients: HashMap<Identity, Connected>,
    sessions: HashMap<u64, Arc<Session>>,
}

/// A client with the number of its connections.
#[derive(Debug)]
struct Connected {
    client: Arc<ConnectedClient>,
    connections: usize,
}

/// Reason why there is no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All clients together have too many.
    Full,
    /// The client has its share.
    Share,
}

impl Clients {
    /// Empty table; at most `limit` connections later.
    pub(crate) fn new(limit: usize, now: Instant) -> Arc<Self> {
        Arc::new(Self { began: now, limit, known: AtomicUsize::new(0), registry: Mutex::default() })
    }

    /// Seconds from the beginning of the front to that moment.
    pub(crate) fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs()
    }

    /// Share of `limit` for that client at that second.
    pub(crate) fn share(&self, client: &ConnectedClient, limit: usize, second: u64) -> Share {
        Share::of(limit, client.is_known(second), self.known.load(Relaxed) > 1)
    }

    /// Makes room for a connection of that client.
    pub(crate) fn admit(self: &Arc<Self>, identity: Identity, now: Instant) -> Result<AdmittedConnection, NoRoom> {
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

    /// Number of connections with a review that is read, decided or answered, or with an instance of an initializer.
    /// Those that were evicted and still finish one do not count.
    pub(crate) fn busy(&self) -> usize {
        self.lock().sessions.values().filter(|session| session.is_busy()).count()
    }

    fn count_known(&self, registry: &Registry, second: u64) {
        let known = registry.clients.values().filter(|one| one.connections > 0 && one.client.is_known(second)).count();
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
        Arc::clone(&entry.or_insert(Connected { client: new, connections: 0 }).client)
    }

    fn connections(&self, client: &ConnectedClient) -> usize {
        self.clients.get(&client.identity).map_or(0, |connected| connected.connections)
    }

    /// Room for one more connection of that client, by ending idle ones where that is needed.
    fn make_room(&mut self, limit: usize, client: &Arc<ConnectedClient>, second: u64) -> Result<(), NoRoom> {
        let known = client.is_known(second);
        let beside_others = self.clients.values().any(|other| {
            other.connections > 0 && other.client.is_known(second) && other.client.identity != client.identity
        });
        let share = Share::of(limit, known, beside_others);
        if self.connections(client) >= share.own && !self.evict(|session| session.client.identity == client.identity) {
            return Err(NoRoom::Share);
        }
        let is_unknown = |session: &Session| !session.client.is_known(second);
        let unknown = self.sessions.values().filter(|session| is_unknown(session)).count();
        if !known && unknown >= share.of_all && !self.evict(is_unknown) {
            return Err(NoRoom::Full);
        }
        if self.sessions.len() >= limit && !self.evict(|session| known || is_unknown(session)) {
            return Err(NoRoom::Full);
        }
        Ok(())
    }

    /// Ends the idle connection of least worth among these; false if none is idle.
    fn evict(&mut self, among: impl Fn(&Session) -> bool) -> bool {
        let idle = self.sessions.values().filter(|session| among(session));
        let least = idle.filter_map(|session| Some((session.idle_worth()?, session.number))).min();
        let Some((_, number)) = least else { return false };
        self.remove(number).inspect(|session| session.evict()).is_some()
    }

    fn insert(&mut self, session: Arc<Session>) {
        if let Some(connected) = self.clients.get_mut(&session.client.identity) {
            connected.connections += 1;
        }
        self.sessions.insert(session.number, session);
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Session>> {
        let session = self.sessions.remove(&number)?;
        if let Some(connected) = self.clients.get_mut(&session.client.identity) {
            connected.connections -= 1;
        }
        Some(session)
    }

    /// Forgets clients without a connection that are not known; when there are many clients, all without one.
    fn forget(&mut self, limit: usize, second: u64) {
        let many = self.clients.len() > limit.saturating_mul(REMEMBERED_PER_CONNECTION);
        self.clients.retain(|_, one| one.connections > 0 || (!many && one.client.is_known(second)));
    }
}

/// One connection that has its place, until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedConnection {
    clients: Arc<Clients>,
    pub(crate) session: Arc<Session>,
}

impl AdmittedConnection {
    /// Replaces the client by the one that its certificate names, before the first call. The address it came from
    /// counts as known from then on.
    pub(crate) fn identify(&mut self, identity: Identity, now: Instant) -> Result<(), NoRoom> {
        let second = self.clients.second(now);
        let mut registry = self.clients.lock();
        // It may have been evicted meanwhile, and ends then.
        let Some(before) = registry.remove(self.session.number) else { return Err(NoRoom::Full) };
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

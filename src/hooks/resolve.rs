//! Resolver: names to addresses, on few threads of its own.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout},
};

use super::services::ServiceAddresses;

/// The most lookups at once. `getaddrinfo` blocks its thread for as long as the name servers are silent.
const MOST_LOOKUPS: usize = 16;
/// The longest that a dial waits for a name; the lookup itself goes on, and the next dial joins it.
const RESOLVE_WITHIN: Duration = Duration::from_secs(4);
/// A result is used again for so long: a lookup that came too late for who asked first is not in vain, and calls that
/// each need a connection do not each ask the name servers.
const FRESH: Duration = Duration::from_secs(1);

/// A resolver's function: `getaddrinfo`, but in tests.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
/// Result of a lookup, and its time.
type Ended = (Instant, Result<Arc<[SocketAddr]>, Arc<str>>);

/// Resolver of hooks' names. Everybody who asks for the same name at the same time shares one lookup.
pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    threads: Arc<Semaphore>,
    services: Option<Arc<ServiceAddresses>>,
    lookups: Mutex<HashMap<Box<str>, watch::Receiver<Option<Ended>>>>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("idle", &self.threads.available_permits()).finish_non_exhaustive()
    }
}

impl Resolver {
    pub(super) fn with(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        let threads = Arc::new(Semaphore::new(MOST_LOOKUPS));
        Self { look_up: Arc::new(look_up), threads, services: None, lookups: Mutex::default() }
    }

    /// The same, where the names of these Services are not looked up.
    pub(super) fn knowing(self, services: Arc<ServiceAddresses>) -> Self {
        Self { services: Some(services), ..self }
    }

    /// The addresses of that host, in the resolver's order; an address is its own.
    ///
    /// # Errors
    /// Message: the lookup failed or took too long, or the Service has no ready endpoint.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let endpoints = self.services.as_ref().and_then(|known| known.of(host, port, std::time::Instant::now()));
        if let Some(endpoints) = endpoints {
            return match endpoints.is_empty() {
                true => Err("the Service has no ready endpoint".to_owned()),
                false => Ok(endpoints.to_vec()),
            };
        }
        let found = timeout(RESOLVE_WITHIN, self.look_up(host)).await;
        let found = found.unwrap_or_else(|_| Err(format!("no answer within {RESOLVE_WITHIN:?}").into()));
        let with_port = |address: &SocketAddr| {
            let mut address = *address;
            address.set_port(port);
            address
        };
        match found {
            Ok(addresses) if addresses.is_empty() => Err("the name has no address".to_owned()),
            Ok(addresses) => Ok(addresses.iter().map(with_port).collect()),
            Err(why) => Err(why.to_string()),
        }
    }

    async fn look_up(&self, host: &str) -> Result<Arc<[SocketAddr]>, Arc<str>> {
        let mut lookup = match self.join(host, None)? {
            Some(lookup) => lookup,
            None => {
                let thread = self.threads.clone().acquire_owned().await.ok();
                self.join(host, thread)?.ok_or("the resolver is gone")?
            }
        };
        let ended = lookup.wait_for(Option::is_some).await.map_err(|_| "the lookup broke off")?;
        ended.clone().map_or_else(|| Err("the lookup has no result".into()), |(_, result)| result)
    }

    /// The lookup of that name: one under way, one just ended, or a new one where there is a thread for it.
    fn join(
        &self,
        host: &str,
        thread: Option<OwnedSemaphorePermit>,
    ) -> Result<Option<watch::Receiver<Option<Ended>>>, Arc<str>> {
        // Nothing panics while the lock is held.
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        lookups.retain(|_, lookup| is_of_use(lookup));
        if let Some(lookup) = lookups.get(host) {
            return Ok(Some(lookup.clone()));
        }
        let Some(thread) = thread.or_else(|| self.threads.clone().try_acquire_owned().ok()) else { return Ok(None) };
        let (result, lookup) = watch::channel(None);
        let (look_up, name) = (self.look_up.clone(), host.to_owned());
        // Not on a runtime's thread for blocking work: a runtime waits for those when it ends, and has other uses for
        // them.
        let spawned = thread::Builder::new().name("gatepost-resolve".to_owned()).spawn(move || {
            let found = look_up(&name);
            let found = found.map(Arc::from).map_err(|error| Arc::from(error.to_string()));
            result.send_replace(Some((Instant::now(), found)));
            drop(thread);
        });
        spawned.map_err(|error| format!("no thread to look the name up: {error}"))?;
        lookups.insert(host.into(), lookup.clone());
        Ok(Some(lookup))
    }
}

/// Under way, or just ended well.
fn is_of_use(lookup: &watch::Receiver<Option<Ended>>) -> bool {
    match &*lookup.borrow() {
        Some((at, result)) => result.is_ok() && at.elapsed() < FRESH,
        None => lookup.has_changed().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    };

    use super::*;

    fn somewhere() -> Vec<SocketAddr> {
        vec![SocketAddr::from(([10, 0, 0, 1], 0))]
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        let resolver = Resolver::with(|_| panic!("asked"));
        for (host, text) in [("127.0.0.1", "127.0.0.1:9"), ("::1", "[::1]:9")] {
            assert_eq!(resolver.resolve(host, 9).await, Ok(vec![text.parse().expect("an address")]));
        }
    }

    #[tokio::test]
    async fn the_endpoints_of_a_service_that_is_known_are_not_looked_up() {
        let services = ServiceAddresses::new(std::time::Instant::now());
        let resolver = Resolver::with(|_| Ok(somewhere())).knowing(Arc::clone(&services));
        let found = async |host: &str| resolver.resolve(host, 443).await;
        let cluster_ip = Ok(vec![SocketAddr::from(([10, 0, 0, 1], 443))]);
        assert_eq!(found("hook.policy.svc").await, cluster_ip, "nothing is known yet");
        let endpoints: Arc<[SocketAddr]> = [SocketAddr::from(([10, 1, 0, 7], 8443))].into();
        let known = |host: &str, endpoints| (Box::from(host), [(443, endpoints)].into_iter().collect());
        let both = [known("hook.policy.svc", endpoints.clone()), known("gone.policy.svc", Arc::default())];
        services.replace(both.into_iter().collect());
        services.stamp(crate::clock::Moment::now(crate::clock::slept));
        assert_eq!(found("hook.policy.svc").await, Ok(endpoints.to_vec()));
        assert_eq!(found("gone.policy.svc").await, Err("the Service has no ready endpoint".to_owned()));
        assert_eq!(found("other.policy.svc").await, cluster_ip);
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_found_says_why_and_is_asked_anew() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let resolver = Resolver::with(move |_| {
            counted.fetch_add(1, SeqCst);
            Err(io::Error::other("no such host"))
        });
        for _ in 0..2 {
            assert_eq!(resolver.resolve("hook", 1).await, Err("no such host".to_owned()));
        }
        assert_eq!(asked.load(SeqCst), 2);
        assert_eq!(Resolver::with(|_| Ok(vec![])).resolve("hook", 1).await, Err("the name has no address".to_owned()));
        assert!(Resolver::with(|_| panic!("a bug")).resolve("hook", 1).await.is_err());
    }

    #[tokio::test]
    async fn all_who_ask_for_one_name_share_one_lookup() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, gate) = (asked.clone(), Arc::new(Barrier::new(2)));
        let held = gate.clone();
        let resolver = Resolver::with(move |_| {
            counted.fetch_add(1, SeqCst);
            held.wait();
            Ok(somewhere())
        });
        let both = async { tokio::join!(resolver.resolve("hook", 1), resolver.resolve("hook", 2)) };
        let release = tokio::task::spawn_blocking(move || gate.wait());
        let (first, second) = both.await;
        release.await.expect("released");
        assert_eq!(first.expect("found")[0].port(), 1);
        assert_eq!(second.expect("found")[0].port(), 2);
        assert_eq!(asked.load(SeqCst), 1);
        assert!(resolver.resolve("hook", 3).await.is_ok(), "still fresh");
        assert_eq!(asked.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn names_that_hang_take_few_threads_and_no_more_time_than_a_dial_has() {
        let (release, held) = mpsc::channel::<()>();
        let (held, asked) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        let resolver = Arc::new(Resolver::with(move |_| {
            counted.fetch_add(1, SeqCst);
            // Until the test ends.
            let _ = held.lock().map(|held| held.recv());
            Ok(somewhere())
        }));
        tokio::time::pause();
        let hooks: Vec<_> = (0..MOST_LOOKUPS * 4)
            .map(|hook| {
                let resolver = resolver.clone();
                tokio::spawn(async move { resolver.resolve(&format!("hook-{hook}"), 1).await })
            })
            .collect();
        for hook in hooks {
            assert_eq!(hook.await.expect("no panic"), Err("no answer within 4s".to_owned()));
        }
        assert_eq!(resolver.threads.available_permits(), 0);
        drop(release);
        // Threads may not all have begun; never are there more.
        assert!(asked.load(SeqCst) <= MOST_LOOKUPS);
    }
}

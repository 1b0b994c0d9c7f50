//! Resolver: resolves names of hooks to addresses, by lookup or as the endpoints of a Service.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{self, timeout},
};

use gatepost_base::clock::{Age, Moment, SuspendedTime, suspended_time};

/// Maximum number of simultaneous lookups. `getaddrinfo` blocks its thread for as long as the name servers are silent.
const MAX_LOOKUPS: usize = 16;
/// Maximum time that a dial waits for a name. The lookup itself continues, and the next dial joins it.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for which a result is reused, so that a dial can use the lookup that an earlier dial timed out on.
const LOOKUP_TTL: Duration = Duration::from_secs(1);

/// Function that resolves a name: `getaddrinfo`, except in tests.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
/// Result of a lookup, and its time.
type LookupResult = (time::Instant, Result<Arc<[SocketAddr]>, Arc<str>>);

/// Resolver of hooks' names, on a few threads of its own. Simultaneous requests for one name share one lookup.
pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    threads: Arc<Semaphore>,
    services: Option<Arc<ServiceAddresses>>,
    lookups: Mutex<HashMap<Box<str>, watch::Receiver<Option<LookupResult>>>>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with_lookup(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("idle", &self.threads.available_permits()).finish_non_exhaustive()
    }
}

impl Resolver {
    pub(super) fn with_lookup(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        let threads = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { look_up: Arc::new(look_up), threads, services: None, lookups: Mutex::default() }
    }

    /// Creates a resolver that resolves the names of these Services without lookups.
    pub(super) fn with_services(services: Arc<ServiceAddresses>) -> Self {
        Self { services: Some(services), ..Self::default() }
    }

    /// Returns the addresses of that host, in the resolver's order.
    ///
    /// # Errors
    /// The lookup failed or took too long, or the Service has no ready endpoint.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let endpoints = self.services.as_ref().and_then(|known| known.endpoints(host, port, Instant::now()));
        if let Some(endpoints) = endpoints {
            return match endpoints.is_empty() {
                true => Err("the Service has no ready endpoint".to_owned()),
                false => Ok(endpoints.to_vec()),
            };
        }
        let result = timeout(RESOLVE_TIMEOUT, self.look_up(host)).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {RESOLVE_TIMEOUT:?}").into()));
        let with_port = |address: &SocketAddr| {
            let mut address = *address;
            address.set_port(port);
            address
        };
        match result {
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
        let result = lookup.wait_for(Option::is_some).await.map_err(|_| "the lookup broke off")?;
        result.clone().map_or_else(|| Err("the lookup has no result".into()), |(_, result)| result)
    }

    /// Returns the lookup of that name: one that is running, a recent one, or a new one if there is a thread for it.
    fn join(
        &self,
        host: &str,
        thread: Option<OwnedSemaphorePermit>,
    ) -> Result<Option<watch::Receiver<Option<LookupResult>>>, Arc<str>> {
        // Nothing panics while the lock is held.
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        lookups.retain(|_, lookup| is_usable(lookup));
        if let Some(lookup) = lookups.get(host) {
            return Ok(Some(lookup.clone()));
        }
        let Some(thread) = thread.or_else(|| self.threads.clone().try_acquire_owned().ok()) else { return Ok(None) };
        let (sender, lookup) = watch::channel(None);
        let (look_up, name) = (self.look_up.clone(), host.to_owned());
        // Not a blocking thread of the runtime: the runtime has other uses for those, and waits for them when it ends.
        let spawned = thread::Builder::new().name("gatepost-resolve".to_owned()).spawn(move || {
            let result = look_up(&name);
            let result = result.map(Arc::from).map_err(|error| Arc::from(error.to_string()));
            sender.send_replace(Some((time::Instant::now(), result)));
            drop(thread);
        });
        spawned.map_err(|error| format!("no thread to look the name up: {error}"))?;
        lookups.insert(host.into(), lookup.clone());
        Ok(Some(lookup))
    }
}

/// Returns true if the lookup is running, or has succeeded recently.
fn is_usable(lookup: &watch::Receiver<Option<LookupResult>>) -> bool {
    match &*lookup.borrow() {
        Some((at, result)) => result.is_ok() && at.elapsed() < LOOKUP_TTL,
        None => lookup.has_changed().is_ok(),
    }
}

/// Maximum time since the apiserver last confirmed the endpoints. After it, names are looked up again.
pub const SERVICES_STALE_AFTER: Duration = Duration::from_secs(90);

/// Ready endpoints behind each port of a Service.
pub type Ports = HashMap<u16, Arc<[SocketAddr]>>;

/// Addresses of the endpoints of Services by name (`NAME.NAMESPACE.svc`), as a watcher of the cluster reports them.
///
/// A Service's name resolves to its ClusterIP. A proxy behind it picks an endpoint for each connection, so a connection
/// that carries all calls stays with one endpoint. With this type a dial sees every ready endpoint. A Service that is
/// unknown, or whose endpoints are too old, is looked up as any other name.
#[derive(Debug)]
pub struct ServiceAddresses {
    known: RwLock<HashMap<Box<str>, Ports>>,
    /// Time since the apiserver last confirmed the endpoints; unknown before the first complete list.
    confirmed: Age,
    /// True while hooks name Services.
    named: AtomicBool,
    /// Time since hooks started to name Services.
    named_since: Age,
    /// True if the log says that names are looked up, because the endpoints are too old.
    logged_old: AtomicBool,
}

impl ServiceAddresses {
    /// Creates the table without any Service.
    pub fn new(now: Instant) -> Arc<Self> {
        Self::with_clock(suspended_time, now)
    }

    /// Creates the table as [`ServiceAddresses::new`] does, with another clock of suspended time.
    pub fn with_clock(suspended_time: SuspendedTime, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            known: RwLock::default(),
            confirmed: Age::new(now, suspended_time),
            named: AtomicBool::new(false),
            named_since: Age::new(now, suspended_time),
            logged_old: AtomicBool::new(false),
        })
    }

    /// Replaces all known Services.
    pub fn replace(&self, services: HashMap<Box<str>, Ports>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = services;
    }

    /// Records whether hooks name Services at this moment.
    pub fn set_named(&self, named: bool, at: Moment) {
        if !self.named.swap(named, Relaxed) && named {
            self.named_since.renew(at);
        }
    }

    /// Returns the time since the apiserver has last confirmed the endpoints, or since hooks started to name Services,
    /// whichever is shorter; `None` if no hook names one.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let since = self.named_since.at(now).filter(|_| self.named.load(Relaxed))?;
        Some(self.confirmed.at(now).map_or(since, |confirmed| confirmed.min(since)))
    }

    /// Records that the apiserver has confirmed the endpoints.
    pub fn confirm(&self, at: Moment) {
        self.confirmed.renew(at);
        if self.logged_old.swap(false, Relaxed) {
            tracing::info!("hooks addressed through a Service are dialled at its endpoints again");
        }
    }

    /// Returns the ready endpoints of that host's port; `None` if they are unknown or too old.
    pub fn endpoints(&self, host: &str, port: u16, now: Instant) -> Option<Arc<[SocketAddr]>> {
        if !host.ends_with(".svc") {
            return None;
        }
        let endpoints = self.known.read().unwrap_or_else(PoisonError::into_inner).get(host)?.get(&port).cloned()?;
        if self.confirmed.at(now).is_some_and(|age| age < SERVICES_STALE_AFTER) {
            return Some(endpoints);
        }
        if !self.logged_old.swap(true, Relaxed) {
            tracing::warn!(
                "no news of EndpointSlices for {SERVICES_STALE_AFTER:?}; hooks addressed through a Service are dialled \
                 at the address that their name resolves to"
            );
        }
        None
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
    async fn ip_address_needs_no_lookup() {
        let resolver = Resolver::with_lookup(|_| panic!("looked up"));
        for (host, text) in [("127.0.0.1", "127.0.0.1:9"), ("::1", "[::1]:9")] {
            assert_eq!(resolver.resolve(host, 9).await, Ok(vec![text.parse().expect("an address")]));
        }
    }

    #[tokio::test]
    async fn known_service_resolves_to_its_endpoints() {
        let services = ServiceAddresses::new(Instant::now());
        let resolver = Resolver { services: Some(Arc::clone(&services)), ..Resolver::with_lookup(|_| Ok(somewhere())) };
        let found = async |host: &str| resolver.resolve(host, 443).await;
        let cluster_ip = Ok(vec![SocketAddr::from(([10, 0, 0, 1], 443))]);
        assert_eq!(found("hook.policy.svc").await, cluster_ip, "nothing is known yet");
        let endpoints: Arc<[SocketAddr]> = [SocketAddr::from(([10, 1, 0, 7], 8443))].into();
        let known = |host: &str, endpoints| (Box::from(host), [(443, endpoints)].into_iter().collect());
        let both = [known("hook.policy.svc", endpoints.clone()), known("gone.policy.svc", Arc::default())];
        services.replace(both.into_iter().collect());
        services.confirm(Moment::now(suspended_time));
        assert_eq!(found("hook.policy.svc").await, Ok(endpoints.to_vec()));
        assert_eq!(found("gone.policy.svc").await, Err("the Service has no ready endpoint".to_owned()));
        assert_eq!(found("other.policy.svc").await, cluster_ip);
    }

    #[tokio::test]
    async fn failed_lookup_is_reported_and_repeated() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = lookups.clone();
        let resolver = Resolver::with_lookup(move |_| {
            counted.fetch_add(1, SeqCst);
            Err(io::Error::other("no such host"))
        });
        for _ in 0..2 {
            assert_eq!(resolver.resolve("hook", 1).await, Err("no such host".to_owned()));
        }
        assert_eq!(lookups.load(SeqCst), 2);
        assert_eq!(
            Resolver::with_lookup(|_| Ok(vec![])).resolve("hook", 1).await,
            Err("the name has no address".to_owned())
        );
        assert!(Resolver::with_lookup(|_| panic!("a bug")).resolve("hook", 1).await.is_err());
    }

    #[tokio::test]
    async fn simultaneous_requests_for_one_name_share_one_lookup() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let (counted, gate) = (lookups.clone(), Arc::new(Barrier::new(2)));
        let held = gate.clone();
        let resolver = Resolver::with_lookup(move |_| {
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
        assert_eq!(lookups.load(SeqCst), 1);
        assert!(resolver.resolve("hook", 3).await.is_ok(), "still fresh");
        assert_eq!(lookups.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn hanging_lookups_take_few_threads_and_time_out() {
        let (release, held) = mpsc::channel::<()>();
        let (held, lookups) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = lookups.clone();
        let resolver = Arc::new(Resolver::with_lookup(move |_| {
            counted.fetch_add(1, SeqCst);
            // Until the test ends.
            let _ = held.lock().map(|held| held.recv());
            Ok(somewhere())
        }));
        time::pause();
        let hooks: Vec<_> = (0..MAX_LOOKUPS * 4)
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
        // Not all threads may have started; there are never more than MAX_LOOKUPS.
        assert!(lookups.load(SeqCst) <= MAX_LOOKUPS);
    }

    fn ports(port: u16, addresses: &[&str]) -> Ports {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        [(port, addresses)].into_iter().collect()
    }

    #[test]
    fn endpoints_of_services_age_while_hooks_name_services() {
        let start = Instant::now();
        let services = ServiceAddresses::with_clock(|| Duration::ZERO, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let moment = |seconds| Moment { instant: at(seconds), suspended_time: Duration::ZERO };
        let age = |seconds| services.age(at(seconds)).map(|age| age.as_secs());
        assert_eq!(age(5), None, "no hook names a Service");
        services.set_named(true, moment(10));
        services.set_named(true, moment(20));
        assert_eq!(age(25), Some(15), "the first list has failed");
        services.confirm(moment(30));
        assert_eq!(age(32), Some(2));
        services.set_named(false, moment(40));
        assert_eq!(age(50), None);
        services.set_named(true, moment(60));
        assert_eq!(age(61), Some(1), "not confirmed while no hook used Services");
    }

    #[test]
    fn fresh_endpoints_of_services_are_used() {
        let start = Instant::now();
        let services = ServiceAddresses::with_clock(|| Duration::ZERO, start);
        let of = |host: &str, port, at| services.endpoints(host, port, at).map(|found| found.len());
        services.replace(
            [("hook.policy.svc".into(), ports(443, &["10.0.0.1:8443", "10.0.0.2:8443"]))].into_iter().collect(),
        );
        assert_eq!(of("hook.policy.svc", 443, start), None, "before the first complete list");
        services.confirm(Moment { instant: start, suspended_time: Duration::ZERO });
        assert_eq!(of("hook.policy.svc", 443, start), Some(2));
        assert_eq!(of("hook.policy.svc", 8443, start), None, "another port");
        assert_eq!(of("other.policy.svc", 443, start), None);
        assert_eq!(of("hook.policy", 443, start), None);
        let late = start + SERVICES_STALE_AFTER;
        assert_eq!(of("hook.policy.svc", 443, late), None);
        services.confirm(Moment { instant: late, suspended_time: Duration::ZERO });
        assert_eq!(of("hook.policy.svc", 443, late), Some(2));
        services.replace([("hook.policy.svc".into(), ports(443, &[]))].into_iter().collect());
        assert_eq!(of("hook.policy.svc", 443, late), Some(0), "known to have none");
    }
}

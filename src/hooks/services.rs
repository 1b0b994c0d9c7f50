//! Services: addresses of the endpoints of Services that hooks are named by, as a watcher of the cluster reports them.
//!
//! A Service's name resolves to its ClusterIP, behind which a proxy picks an endpoint for each connection; one connection
//! that carries all calls stays with one endpoint. Here a dial sees every ready endpoint. A Service that is not
//! reported, or was last reported too long ago, is looked up as any other name.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::clock::{Age, Moment, Slept, slept};

/// Without a sign of life from the apiserver for so long, names are looked up again.
pub const TOO_OLD_AFTER: Duration = Duration::from_secs(90);

/// The ready endpoints behind each port of a Service.
pub type Ports = HashMap<u16, Arc<[SocketAddr]>>;

/// Addresses of the endpoints of Services, by the Services' names as dials have them: `NAME.NAMESPACE.svc`.
pub struct ServiceAddresses {
    known: RwLock<HashMap<Box<str>, Ports>>,
    /// Since the last sign of life; unknown before the first whole list.
    alive: Age,
    /// True while hooks name Services.
    named: AtomicBool,
    /// Since they do.
    named_since: Age,
    /// Names are looked up since then, and the log says so.
    logged_old: AtomicBool,
}

impl fmt::Debug for ServiceAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAddresses").finish_non_exhaustive()
    }
}

impl ServiceAddresses {
    /// None known yet.
    pub fn new(now: Instant) -> Arc<Self> {
        Self::by(slept, now)
    }

    /// The same, with another clock of the time that the machine has slept.
    pub fn by(slept: Slept, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            known: RwLock::default(),
            alive: Age::new(now, slept),
            named: AtomicBool::new(false),
            named_since: Age::new(now, slept),
            logged_old: AtomicBool::new(false),
        })
    }

    /// From now on these are known, and no others.
    pub fn replace(&self, services: HashMap<Box<str>, Ports>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = services;
    }

    /// Hooks name Services at that moment, or none.
    pub fn set_named(&self, named: bool, at: Moment) {
        if !self.named.swap(named, Relaxed) && named {
            self.named_since.renew(at);
        }
    }

    /// Time since the apiserver has last confirmed the endpoints, or since hooks name Services, whichever is shorter; `None`
    /// while they name none.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let since = self.named_since.at(now).filter(|_| self.named.load(Relaxed))?;
        Some(self.alive.at(now).map_or(since, |heard| heard.min(since)))
    }

    /// The apiserver was heard then.
    pub fn stamp(&self, at: Moment) {
        self.alive.renew(at);
        if self.logged_old.swap(false, Relaxed) {
            tracing::info!("hooks that are named by a Service are dialled at its endpoints again");
        }
    }

    /// The ready endpoints of that host's port, which may be none; `None` where they are not known, or too old.
    pub fn of(&self, host: &str, port: u16, now: Instant) -> Option<Arc<[SocketAddr]>> {
        if !host.ends_with(".svc") {
            return None;
        }
        let endpoints = self.known.read().unwrap_or_else(PoisonError::into_inner).get(host)?.get(&port).cloned()?;
        if self.alive.at(now).is_some_and(|age| age < TOO_OLD_AFTER) {
            return Some(endpoints);
        }
        if !self.logged_old.swap(true, Relaxed) {
            tracing::warn!(
                "no news of EndpointSlices for {TOO_OLD_AFTER:?}; hooks that are named by a Service are dialled at the \
                 address that their name resolves to"
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(port: u16, addresses: &[&str]) -> Ports {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        [(port, addresses)].into_iter().collect()
    }

    #[test]
    fn endpoints_age_while_hooks_name_services_whether_they_were_ever_listed_or_not() {
        let start = Instant::now();
        let services = ServiceAddresses::by(|| Duration::ZERO, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let moment = |seconds| Moment { instant: at(seconds), slept: Duration::ZERO };
        let age = |seconds| services.age(at(seconds)).map(|age| age.as_secs());
        assert_eq!(age(5), None, "no hook names a Service");
        services.set_named(true, moment(10));
        services.set_named(true, moment(20));
        assert_eq!(age(25), Some(15), "the first list has failed");
        services.stamp(moment(30));
        assert_eq!(age(32), Some(2));
        services.set_named(false, moment(40));
        assert_eq!(age(50), None);
        services.set_named(true, moment(60));
        assert_eq!(age(61), Some(1), "nothing was to be heard meanwhile");
    }

    #[test]
    fn what_is_known_and_fresh_is_used_and_nothing_else() {
        let start = Instant::now();
        let services = ServiceAddresses::by(|| Duration::ZERO, start);
        let of = |host: &str, port, at| services.of(host, port, at).map(|found| found.len());
        services.replace(
            [("hook.policy.svc".into(), ports(443, &["10.0.0.1:8443", "10.0.0.2:8443"]))].into_iter().collect(),
        );
        assert_eq!(of("hook.policy.svc", 443, start), None, "before the first whole list");
        services.stamp(Moment { instant: start, slept: Duration::ZERO });
        assert_eq!(of("hook.policy.svc", 443, start), Some(2));
        assert_eq!(of("hook.policy.svc", 8443, start), None, "another port");
        assert_eq!(of("other.policy.svc", 443, start), None);
        assert_eq!(of("hook.policy", 443, start), None);
        let late = start + TOO_OLD_AFTER;
        assert_eq!(of("hook.policy.svc", 443, late), None);
        services.stamp(Moment { instant: late, slept: Duration::ZERO });
        assert_eq!(of("hook.policy.svc", 443, late), Some(2));
        services.replace([("hook.policy.svc".into(), ports(443, &[]))].into_iter().collect());
        assert_eq!(of("hook.policy.svc", 443, late), Some(0), "known to have none");
    }
}

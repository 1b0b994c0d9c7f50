//! Client of a connection: its identity, and the state that its connections share.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use tokio::sync::{Notify, futures::Notified};

use crate::front::outgoing::Unsent;

/// Seconds for which a client is known after a verdict.
const KNOWN_SECONDS: u64 = 600;
/// Seconds between two renewals of that time.
const KNOWN_RENEWAL_SECONDS: u64 = 60;

/// Identity of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The name in a verified client certificate.
    Certificate(Arc<str>),
    /// A client on this machine over TCP: any process here may use any loopback address.
    Loopback,
    /// The address of a client; for IPv6 its /64 network, since one client usually has all addresses of that network.
    Address(IpAddr),
    /// The user id of the peer of a unix socket.
    User(u32),
    /// The peer of a unix socket whose user is unknown.
    Unix,
}

impl Identity {
    /// Returns the identity of a peer without a client certificate.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V6(v6) => Self::Address(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()),
            v4 => Self::Address(v4),
        }
    }

    /// Returns the identity as a text that differs for any two clients.
    pub(crate) fn to_key(&self) -> Arc<str> {
        match self {
            Self::Certificate(name) => format!("certificate {name}").into(),
            Self::Address(address) => format!("address {address}").into(),
            Self::User(user) => format!("user {user}").into(),
            Self::Loopback => "loopback".into(),
            Self::Unix => "unix".into(),
        }
    }

    /// Returns true if the client is known before its first verdict: it has a certificate, or is on this machine.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Self::Address(_))
    }
}

/// One client's share of a limit on all clients together.
///
/// A client is known if [`Identity::is_known`] says so or if it had a verdict lately. A known client may use the whole
/// limit while no other known client is connected, otherwise half. An unknown client may use half, and only while the
/// total is below three quarters: the last quarter is reserved for known clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Share of the client itself.
    pub(crate) own: usize,
    /// Total of all clients beyond which this client may use no more.
    pub(crate) of_all: usize,
}

impl Share {
    /// Returns the share of `limit`. `beside_others` says whether other known clients are connected.
    pub(crate) fn of(limit: usize, known: bool, beside_others: bool) -> Self {
        match (known, beside_others) {
            (true, false) => Self { own: limit, of_all: limit },
            (true, true) => Self { own: limit.div_ceil(2), of_all: limit },
            (false, _) => Self { own: limit.div_ceil(2), of_all: limit - limit / 4 },
        }
    }
}

/// Kind of a call that is no review. Each kind has its own [`Quota`](crate::front::limits::Quota), so that long calls
/// cannot exclude a kubelet's health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaKind {
    /// Calls of health and reflection.
    Aux,
    /// Instances of initializers, apiservers that report their unfinished objects, and plugins.
    Attached,
    /// Calls about unfinished objects: an apiserver has one for each CREATE that it delays.
    Initialization,
}

/// Number of calls by [`QuotaKind`].
pub(crate) type QuotaCounts = [AtomicUsize; 3];

/// One client with all its connections.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    pub(crate) identity: Identity,
    /// Number of its connections. Changed only by the registry, under its lock.
    pub(super) connections: AtomicUsize,
    /// Bytes of its reviews in the memory budget.
    bytes: AtomicUsize,
    /// Calls that are no reviews, on all its connections.
    pub(crate) quota_counts: QuotaCounts,
    /// End of the time for which a verdict made it known, in seconds since the front began; 0 if it had no verdict.
    known_until: AtomicU64,
}

impl ConnectedClient {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            connections: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            quota_counts: QuotaCounts::default(),
            known_until: AtomicU64::new(0),
        }
    }

    /// Returns true if the client has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.connections.load(Relaxed) > 0
    }

    /// Returns true if the client is known at `second`.
    pub(crate) fn is_known(&self, second: u64) -> bool {
        self.identity.is_known() || second < self.known_until.load(Relaxed)
    }

    /// Records that the client had a verdict. Stored at most once a minute, since every worker reads it.
    pub(crate) fn had_verdict(&self, second: u64) {
        let renewed = second + KNOWN_SECONDS;
        if !self.identity.is_known() && self.known_until.load(Relaxed) < renewed - KNOWN_RENEWAL_SECONDS {
            self.known_until.store(renewed, Relaxed);
        }
    }

    /// Adds `bytes` to the client's use. If the sum would exceed `limit`, returns false and changes nothing.
    pub(crate) fn try_take(&self, bytes: usize, limit: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            self.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        true
    }

    /// Subtracts `bytes` from the client's use.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// State that the calls of one connection share.
#[derive(Debug)]
pub(crate) struct Session {
    /// Number of the connection, never reused.
    pub(crate) number: u64,
    /// Client of the connection.
    pub(crate) client: Arc<ConnectedClient>,
    /// Verdicts of the connection that are not written yet.
    pub(crate) unsent: Arc<Unsent>,
    /// Reviews that are being read or decided.
    calls: AtomicUsize,
    /// Calls that are no reviews.
    pub(crate) quota_counts: QuotaCounts,
    /// Attached instances of initializers.
    instances: AtomicUsize,
    /// True once the connection had a verdict.
    served: AtomicBool,
    /// Second in which the connection was accepted, or in which its last review began.
    last_used: AtomicU64,
    evicted: Notify,
}

impl Session {
    /// Creates the state of a connection that is accepted at `second`.
    pub(crate) fn new(number: u64, client: Arc<ConnectedClient>, now: Instant, second: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            client,
            unsent: Unsent::new(now),
            calls: AtomicUsize::new(0),
            quota_counts: QuotaCounts::default(),
            instances: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            last_used: AtomicU64::new(second),
            evicted: Notify::new(),
        })
    }

    /// Returns the number of reviews that are being read or decided.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Returns true while a review is being read, decided or answered, or an instance of an initializer is attached.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_idle() || !self.unsent.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.calls() == 0 && self.instances.load(Relaxed) == 0
    }

    /// Counts an attached instance of an initializer until the guard is dropped.
    pub(crate) fn attach(&self) -> InstanceGuard<'_> {
        self.instances.fetch_add(1, Relaxed);
        InstanceGuard(&self.instances)
    }

    /// Records that a review begins at `second`.
    pub(crate) fn begin(&self, second: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.last_used.store(second, Relaxed);
    }

    /// Records that a review ends.
    pub(crate) fn end(&self) {
        self.calls.fetch_sub(1, Relaxed);
    }

    /// Records that the connection had a verdict.
    pub(crate) fn had_verdict(&self) {
        if !self.served.load(Relaxed) {
            self.served.store(true, Relaxed);
        }
    }

    /// Returns the worth of an idle connection: least without a verdict, and less the longer it is idle. `None` if
    /// busy.
    pub(crate) fn idle_worth(&self) -> Option<(bool, u64)> {
        self.is_idle().then(|| (self.served.load(Relaxed), self.last_used.load(Relaxed)))
    }

    /// Evicts the connection, to make room for another.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until the connection is evicted.
    pub(crate) fn evicted(&self) -> Notified<'_> {
        self.evicted.notified()
    }
}

/// Guard of one attached instance of an initializer.
#[derive(Debug)]
pub(crate) struct InstanceGuard<'a>(&'a AtomicUsize);

impl Drop for InstanceGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_identity_ignores_client_chosen_values() {
        let of = |address: &str| Identity::of(address.parse().unwrap());
        assert_eq!(of("127.0.0.1"), of("127.9.9.9"));
        assert_eq!(of("::1"), of("::ffff:127.0.0.1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert!(of("::1").is_known() && !of("192.0.2.1").is_known());
    }

    #[test]
    fn share_keeps_the_last_quarter_for_known_clients() {
        assert_eq!(Share::of(1024, true, false), Share { own: 1024, of_all: 1024 });
        assert_eq!(Share::of(1024, true, true), Share { own: 512, of_all: 1024 });
        assert_eq!(Share::of(1024, false, true), Share { own: 512, of_all: 768 });
        assert_eq!(Share::of(1, false, false), Share { own: 1, of_all: 1 }, "one is one");
    }

    #[test]
    fn client_is_known_for_ten_minutes_after_a_verdict() {
        let client = ConnectedClient::new(Identity::of([192, 0, 2, 1].into()));
        assert!(!client.is_known(0));
        client.had_verdict(100);
        client.had_verdict(130);
        assert!(client.is_known(699) && !client.is_known(700));
        client.had_verdict(170);
        assert!(client.is_known(769) && !client.is_known(770));
        assert!(ConnectedClient::new(Identity::Loopback).is_known(0));
    }
}

//! Client: who is at the other end of a connection, and what its connections share.

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

/// Time for which a client that had a verdict is known, in seconds.
const KNOWN_SECONDS: u64 = 600;
/// Interval at which that is renewed, in seconds.
const KNOWN_RENEWAL_SECONDS: u64 = 60;

/// Identity of a client among others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The name in a certificate that was let in.
    Certificate(Arc<str>),
    /// A client on this machine over TCP: any address of the loopback network is anybody's here.
    Loopback,
    /// An address; for IPv6 its network of 64 bits, since one client usually has all addresses of it.
    Address(IpAddr),
    /// The user at the other end of a unix socket.
    User(u32),
    /// A unix socket whose other end is unknown.
    Unix,
}

impl Identity {
    /// A peer by its address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V6(v6) => Self::Address(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()),
            v4 => Self::Address(v4),
        }
    }

    /// The identity as one text. No two clients have the same.
    pub(crate) fn to_key(&self) -> Arc<str> {
        match self {
            Self::Certificate(name) => format!("certificate {name}").into(),
            Self::Address(address) => format!("address {address}").into(),
            Self::User(user) => format!("user {user}").into(),
            Self::Loopback => "loopback".into(),
            Self::Unix => "unix".into(),
        }
    }

    /// True for a client that is known before its first verdict: it has shown a certificate, or is on this machine.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Self::Address(_))
    }
}

/// One client's share of a limit on all clients together.
///
/// Where the limit is N, a client that is known (see [`Identity::is_known`]; or it had a verdict lately) may take all
/// of it while no other known client is connected, else half. A client that is not known may take half, and only while
/// three quarters are not taken: the last quarter is kept for known clients, whatever floods come from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The client's own.
    pub(crate) own: usize,
    /// Total of all clients above which only others may take more.
    pub(crate) of_all: usize,
}

impl Share {
    /// Share of `limit`, for a client that is known or not, beside other known ones or not.
    pub(crate) fn of(limit: usize, known: bool, beside_others: bool) -> Self {
        match (known, beside_others) {
            (true, false) => Self { own: limit, of_all: limit },
            (true, true) => Self { own: limit.div_ceil(2), of_all: limit },
            (false, _) => Self { own: limit.div_ceil(2), of_all: limit - limit / 4 },
        }
    }
}

/// Kinds of calls that are no reviews. Each kind has places of its own, so that calls that stay long do not keep out
/// a kubelet's health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Places {
    /// Calls of health and reflection.
    #[default]
    Aux,
    /// Instances of initializers, and apiservers that report their unfinished objects.
    Attached,
    /// Calls about unfinished objects: an apiserver has one for each CREATE that it holds.
    Initialization,
}

/// Number of places taken, by [`Places`].
pub(crate) type PlaceCounts = [AtomicUsize; 3];

/// One client, however many connections it has.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    pub(crate) identity: Identity,
    /// Bytes of its reviews in the memory budget.
    bytes: AtomicUsize,
    /// Places that it has taken on all its connections.
    pub(crate) places: PlaceCounts,
    /// Time until which it is known for its verdicts, in seconds since the front began; 0 for never.
    known_until: AtomicU64,
}

impl ConnectedClient {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, bytes: AtomicUsize::new(0), places: PlaceCounts::default(), known_until: AtomicU64::new(0) }
    }

    /// True if it is known at that second.
    pub(crate) fn is_known(&self, second: u64) -> bool {
        self.identity.is_known() || second < self.known_until.load(Relaxed)
    }

    /// It has had a verdict. Written once a minute, as every worker reads it.
    pub(crate) fn had_verdict(&self, second: u64) {
        let renewed = second + KNOWN_SECONDS;
        if !self.identity.is_known() && self.known_until.load(Relaxed) < renewed - KNOWN_RENEWAL_SECONDS {
            self.known_until.store(renewed, Relaxed);
        }
    }

    /// Takes so many bytes of its share. If that is more than `limit`, returns false and changes nothing.
    pub(crate) fn try_take(&self, bytes: usize, limit: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            self.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        true
    }

    /// Gives bytes back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// State that the calls of one connection share.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, which no other connection ever has.
    pub(crate) number: u64,
    /// Client of the connection.
    pub(crate) client: Arc<ConnectedClient>,
    /// Its verdicts that are not written yet.
    pub(crate) unsent: Arc<Unsent>,
    /// Reviews being read or decided.
    calls: AtomicUsize,
    /// Places that its calls have taken.
    pub(crate) places: PlaceCounts,
    /// Instances of initializers: its streams whose claim is good.
    instances: AtomicUsize,
    /// True once it had a verdict.
    served: AtomicBool,
    /// Second in which it came, or in which its last review began.
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
            places: PlaceCounts::default(),
            instances: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            last_used: AtomicU64::new(second),
            evicted: Notify::new(),
        })
    }

    /// Number of reviews being read or decided.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// True while a review is read, decided or answered, or an instance of an initializer is attached.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_idle() || !self.unsent.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.calls() == 0 && self.instances.load(Relaxed) == 0
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
    pub(crate) fn idle_worth(&self) -> Option<(bool, u64)> {
        self.is_idle().then(|| (self.served.load(Relaxed), self.last_used.load(Relaxed)))
    }

    /// Evicts the connection, which makes room for others.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Done once the connection is evicted.
    pub(crate) fn evicted(&self) -> Notified<'_> {
        self.evicted.notified()
    }
}

/// One attached instance of an initializer.
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
    fn client_identity_ignores_what_a_client_can_choose() {
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

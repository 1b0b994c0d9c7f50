//! Labels of the cluster's namespaces, kept current by a watch.
//!
//! Every request whose hooks select by namespace reads them, so reads take no lock. Only one task writes. The names are
//! distributed to shards by hash, each a small map behind an arc-swap: a change copies one shard (some forty names in a
//! cluster with ten thousand), and readers never wait for it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{mpsc, oneshot};

use gatepost_api::Labels;
use gatepost_base::clock::{Age, Moment, SuspendedTime, suspended_time};

/// Time without a message of the apiserver after which the labels are too old. The apiserver sends a message at least
/// every minute (a bookmark), and the watcher reads anew before this time.
pub const TOO_OLD_AFTER: Duration = Duration::from_secs(90);

const SHARDS: usize = 256;
/// Maximum number of queued lookups of unknown namespaces; each belongs to one request.
const MAX_QUEUED_LOOKUPS: usize = 1024;

type Shard = HashMap<Box<str>, Arc<Labels>>;

/// Labels of the cluster's namespaces. Only the namespace watcher writes.
#[derive(Debug)]
pub struct Namespaces {
    shards: Box<[ArcSwap<Shard>]>,
    /// Randomly keyed, since tenants choose the names.
    hasher: RandomState,
    /// Age of the last message of the apiserver; unknown before the first complete list.
    alive: Age,
    lookups: mpsc::Sender<NamespaceLookup>,
}

/// Immutable view of a shard with one namespace. Must be held only briefly: it borrows without counting a reference, so
/// that threads which read the same namespace do not write to the same cache line.
pub struct NamespaceView(Guard<Arc<Shard>>);

impl NamespaceView {
    /// Returns the labels of the namespace that was looked up; `None` if it was unknown.
    pub fn labels(&self, namespace: &str) -> Option<&Labels> {
        self.0.get(namespace).map(AsRef::as_ref)
    }
}

/// Lookup of one namespace at the apiserver, sent by a request for an unknown namespace.
#[derive(Debug)]
pub struct NamespaceLookup {
    /// Name of the namespace.
    pub namespace: Box<str>,
    /// Sender of the result: `Ok(None)` if the namespace does not exist, `Err` if the lookup failed.
    pub answer: oneshot::Sender<Result<Option<Labels>, String>>,
}

impl Namespaces {
    /// Creates an empty table, and the receiver of the lookups for the watcher.
    pub fn new(now: Instant) -> (Arc<Self>, mpsc::Receiver<NamespaceLookup>) {
        Self::with_clock(suspended_time, now)
    }

    /// Like [`Namespaces::new`], with another clock of suspended time.
    pub fn with_clock(suspended_time: SuspendedTime, now: Instant) -> (Arc<Self>, mpsc::Receiver<NamespaceLookup>) {
        let (lookups, receiver) = mpsc::channel(MAX_QUEUED_LOOKUPS);
        let shards = (0..SHARDS).map(|_| ArcSwap::default()).collect();
        (Arc::new(Self { shards, hasher: RandomState::new(), alive: Age::new(now, suspended_time), lookups }), receiver)
    }

    /// Returns a view for one namespace.
    pub fn seen(&self, namespace: &str) -> NamespaceView {
        NamespaceView(self.shard(namespace).load())
    }

    /// Returns the labels of a namespace for longer use; `None` if it is unknown.
    pub fn get(&self, namespace: &str) -> Option<Arc<Labels>> {
        self.shard(namespace).load().get(namespace).cloned()
    }

    /// Returns the number of known namespaces.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.load().len()).sum()
    }

    /// Returns true if no namespace is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time since the last message, including time suspended; `None` before the first complete list.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.alive.at(now)
    }

    /// Returns true if requests may be decided by these labels.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < TOO_OLD_AFTER)
    }

    /// Looks up a namespace at the apiserver, through the watcher. The caller bounds the wait.
    ///
    /// # Errors
    /// Returns a message if too many lookups wait, or if the lookup failed.
    pub async fn look_up(&self, namespace: &str) -> Result<Option<Labels>, String> {
        let (answer, answered) = oneshot::channel();
        let lookup = NamespaceLookup { namespace: namespace.into(), answer };
        self.lookups.try_send(lookup).map_err(|_| "too many lookups of unknown namespaces at once".to_owned())?;
        answered.await.unwrap_or_else(|_| Err("the follower of namespaces has ended".to_owned()))
    }

    /// Records a message of the apiserver at `now`, since when the machine has not been suspended: the labels were
    /// current then.
    pub fn stamp(&self, now: Instant) {
        self.alive.renew_awake(now);
    }

    /// Confirms that the known labels were current at `moment`.
    pub fn stamp_at(&self, moment: Moment) {
        self.alive.renew(moment);
    }

    /// Adds or replaces one namespace.
    pub fn set(&self, namespace: &str, labels: Labels) {
        self.change(namespace, |shard| _ = shard.insert(namespace.into(), Arc::new(labels)));
    }

    /// Removes one namespace.
    pub fn remove(&self, namespace: &str) {
        self.change(namespace, |shard| _ = shard.remove(namespace));
    }

    /// Replaces all namespaces.
    pub fn replace(&self, all: impl IntoIterator<Item = (Box<str>, Labels)>) {
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
        for (namespace, labels) in all {
            shards[self.place(&namespace)].insert(namespace, Arc::new(labels));
        }
        for (old, new) in self.shards.iter().zip(shards) {
            old.store(Arc::new(new));
        }
    }

    /// Changes one shard. Only one task writes, so nothing is lost between the load and the store.
    fn change(&self, namespace: &str, change: impl FnOnce(&mut Shard)) {
        let shard = self.shard(namespace);
        let mut copy = Shard::clone(&shard.load());
        change(&mut copy);
        shard.store(Arc::new(copy));
    }

    fn shard(&self, namespace: &str) -> &ArcSwap<Shard> {
        &self.shards[self.place(namespace)]
    }

    fn place(&self, namespace: &str) -> usize {
        self.hasher.hash_one(namespace) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(value: &str) -> Labels {
        [("team", value)].into_iter().collect()
    }

    #[test]
    fn changes_are_seen_and_a_list_replaces_everything() {
        let (namespaces, _questions) = Namespaces::new(Instant::now());
        for number in 0..10_000 {
            namespaces.set(&format!("ns-{number}"), labels("a"));
        }
        assert_eq!(namespaces.len(), 10_000);
        let fullest = namespaces.shards.iter().map(|shard| shard.load().len()).max();
        assert!(fullest < Some(120), "shards fill evenly, or a change copies too much: {fullest:?}");
        namespaces.set("ns-7", labels("b"));
        assert_eq!(namespaces.get("ns-7").as_deref(), Some(&labels("b")));
        namespaces.remove("ns-7");
        assert_eq!(namespaces.get("ns-7"), None);
        namespaces.replace([("only".into(), labels("c"))]);
        assert_eq!((namespaces.len(), namespaces.get("only").as_deref()), (1, Some(&labels("c"))));
    }

    #[test]
    fn its_age_counts_from_the_last_sign_of_life() {
        let epoch = Instant::now();
        let (namespaces, _questions) = Namespaces::new(epoch);
        assert!(!namespaces.is_fresh(epoch), "no list yet");
        namespaces.stamp(epoch);
        assert!(namespaces.is_fresh(epoch + TOO_OLD_AFTER - Duration::from_millis(1)));
        assert!(!namespaces.is_fresh(epoch + TOO_OLD_AFTER));
    }

    thread_local! {
        static SLEPT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn suspended_time_makes_it_old() {
        let epoch = Instant::now();
        let suspended_time = || Duration::from_secs(SLEPT.get());
        let (namespaces, _questions) = Namespaces::with_clock(suspended_time, epoch);
        namespaces.stamp(epoch);
        let listing = Moment::now(suspended_time);
        SLEPT.set(3600);
        assert!(!namespaces.is_fresh(epoch));
        namespaces.stamp_at(listing);
        assert!(!namespaces.is_fresh(epoch), "a list that was slept through is as old as its start");
        namespaces.stamp(epoch);
        assert!(namespaces.is_fresh(epoch));
    }

    #[tokio::test]
    async fn unknown_namespace_is_looked_up() {
        let (namespaces, mut lookups) = Namespaces::new(Instant::now());
        let follower = async {
            let lookup = lookups.recv().await.unwrap();
            assert_eq!(&*lookup.namespace, "new");
            lookup.answer.send(Ok(Some(labels("n")))).unwrap();
        };
        assert_eq!(tokio::join!(namespaces.look_up("new"), follower).0, Ok(Some(labels("n"))));
        drop(lookups);
        assert!(namespaces.look_up("new").await.is_err(), "the follower has stopped");
    }
}

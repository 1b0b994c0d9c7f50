//! Namespaces: the labels of the cluster's namespaces, as a source follows them.
//!
//! Read on every request whose hooks select by namespace, so reading takes no lock. One follower writes. The names are
//! spread over shards by hash, each a small map behind an arc-swap: a change copies one shard (some forty names where
//! a cluster has ten thousand), and readers never wait for it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{mpsc, oneshot};

use gatepost_api::Labels;
use gatepost_base::clock::{Age, Moment, Slept, slept};

/// Without a sign of life from the apiserver for so long, what is known is too old to decide on. It sends one at least
/// every minute (a bookmark), and the follower asks anew before that.
pub const TOO_OLD_AFTER: Duration = Duration::from_secs(90);

const SHARDS: usize = 256;
/// Questions about unknown namespaces that may wait at once; each is one request that waits for its answer.
const QUESTIONS: usize = 1024;

type Shard = HashMap<Box<str>, Arc<Labels>>;

/// The labels of the cluster's namespaces.
#[derive(Debug)]
pub struct Namespaces {
    shards: Box<[ArcSwap<Shard>]>,
    /// Keyed, as tenants choose the names.
    hasher: RandomState,
    /// Since the last sign of life; unknown before the first whole list.
    alive: Age,
    questions: mpsc::Sender<NamespaceQuestion>,
}

/// A namespace and its neighbours as one look found them, whatever changes meanwhile. To be held for a moment only: it
/// is lent, not counted, so that threads that look at the same namespace do not write one place in memory.
pub struct NamespaceView(Guard<Arc<Shard>>);

impl NamespaceView {
    /// The labels of the namespace that was looked at, where it was known then.
    pub fn labels(&self, namespace: &str) -> Option<&Labels> {
        self.0.get(namespace).map(AsRef::as_ref)
    }
}

/// Asks the apiserver itself about one namespace: what a request does that met an unknown one.
#[derive(Debug)]
pub struct NamespaceQuestion {
    /// The namespace.
    pub namespace: Box<str>,
    /// `Ok(None)`: there is no such namespace. `Err`: the apiserver could not be asked, and why.
    pub answer: oneshot::Sender<Result<Option<Labels>, String>>,
}

impl Namespaces {
    /// None known yet, and the questions that the follower has to answer.
    pub fn new(now: Instant) -> (Arc<Self>, mpsc::Receiver<NamespaceQuestion>) {
        Self::by(slept, now)
    }

    /// The same, with another clock for the time that the machine has slept.
    pub fn by(slept: Slept, now: Instant) -> (Arc<Self>, mpsc::Receiver<NamespaceQuestion>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let shards = (0..SHARDS).map(|_| ArcSwap::default()).collect();
        (Arc::new(Self { shards, hasher: RandomState::new(), alive: Age::new(now, slept), questions }), asked)
    }

    /// One look at a namespace.
    pub fn seen(&self, namespace: &str) -> NamespaceView {
        NamespaceView(self.shard(namespace).load())
    }

    /// The labels of a namespace, where it is known, for whoever keeps them.
    pub fn get(&self, namespace: &str) -> Option<Arc<Labels>> {
        self.shard(namespace).load().get(namespace).cloned()
    }

    /// Number of namespaces known.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.load().len()).sum()
    }

    /// True while none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Time since the last sign of life, time slept included; `None` before the first whole list.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.alive.at(now)
    }

    /// May a request be decided on it?
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age < TOO_OLD_AFTER)
    }

    /// Asks the apiserver itself; the follower answers. The caller bounds the wait.
    ///
    /// # Errors
    /// Message: too many lookups wait, or the apiserver cannot be asked.
    pub async fn ask(&self, namespace: &str) -> Result<Option<Labels>, String> {
        let (answer, answered) = oneshot::channel();
        let question = NamespaceQuestion { namespace: namespace.into(), answer };
        self.questions.try_send(question).map_err(|_| "too many lookups of unknown namespaces at once".to_owned())?;
        answered.await.unwrap_or_else(|_| Err("the follower of namespaces has ended".to_owned()))
    }

    /// The apiserver has spoken at `now`, and the machine has not slept since: what is known was current then.
    pub fn stamp(&self, now: Instant) {
        self.alive.renew_awake(now);
    }

    /// Confirms that the known labels were current at that moment.
    pub fn stamp_at(&self, moment: Moment) {
        self.alive.renew(moment);
    }

    /// Takes up one namespace, new or changed.
    pub fn set(&self, namespace: &str, labels: Labels) {
        self.change(namespace, |shard| _ = shard.insert(namespace.into(), Arc::new(labels)));
    }

    /// Forgets one.
    pub fn remove(&self, namespace: &str) {
        self.change(namespace, |shard| _ = shard.remove(namespace));
    }

    /// Takes up a whole list in place of what was known.
    pub fn replace(&self, all: impl IntoIterator<Item = (Box<str>, Labels)>) {
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
        for (namespace, labels) in all {
            shards[self.place(&namespace)].insert(namespace, Arc::new(labels));
        }
        for (old, new) in self.shards.iter().zip(shards) {
            old.store(Arc::new(new));
        }
    }

    /// Only one follower writes, so nothing is lost between the load and the store.
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
    fn time_slept_makes_it_old() {
        let epoch = Instant::now();
        let slept = || Duration::from_secs(SLEPT.get());
        let (namespaces, _questions) = Namespaces::by(slept, epoch);
        namespaces.stamp(epoch);
        let listing = Moment::now(slept);
        SLEPT.set(3600);
        assert!(!namespaces.is_fresh(epoch));
        namespaces.stamp_at(listing);
        assert!(!namespaces.is_fresh(epoch), "a list that was slept through is as old as its start");
        namespaces.stamp(epoch);
        assert!(namespaces.is_fresh(epoch));
    }

    #[tokio::test]
    async fn an_unknown_one_is_asked_about() {
        let (namespaces, mut questions) = Namespaces::new(Instant::now());
        let follower = async {
            let question = questions.recv().await.unwrap();
            assert_eq!(&*question.namespace, "new");
            question.answer.send(Ok(Some(labels("n")))).unwrap();
        };
        assert_eq!(tokio::join!(namespaces.ask("new"), follower).0, Ok(Some(labels("n"))));
        drop(questions);
        assert!(namespaces.ask("new").await.is_err(), "nobody follows any more");
    }
}

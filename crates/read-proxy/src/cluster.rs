//! Cluster: questions of the proxy itself to the apiserver, under its own account: who owns a token, who may initialize,
//! how an object stands.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

use super::{requester::Account, resources::ResourcePath};
use crate::metrics::{ProxyQuestion, QuestionEnd, ReadProxyMetrics};
use gatepost_api::initialization::VERB;
use gatepost_base::throttle::Throttle;
use gatepost_cel::{AccessCheck, AccessTarget, ResourceAccess, Subject};
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, ReloadingClient};

/// Age up to which an answer about an account is used again.
const FRESH: Duration = Duration::from_secs(10);
/// Answers about accounts that are kept.
const MOST_KEPT: usize = 4096;
/// Interval at which a client is checked for changed credentials.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Questions about users that are asked at the same time.
const MOST_REVIEWS: usize = 32;
/// Longest wait for a place among them.
const REVIEWED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a token, or of an account, that the apiserver is asked about in the proxy's own name.
const LARGEST: usize = 32 << 10;
/// A token that is nobody's.
const NOBODY: &str = "gatepost-read-proxy-asks-whether-it-may-ask";

/// Reason why nothing is known about a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The apiserver did not say.
    Failed,
    /// Too many questions are under way.
    Busy,
    /// The token, or the account, is larger than any honest one.
    TooLarge,
}

/// Apiserver, as the proxy itself asks it.
#[derive(Debug)]
pub struct Cluster {
    connection: AsyncMutex<(ReloadingClient, Option<(KubeClient, Instant)>)>,
    /// Owners by the digests of their tokens. A token that is nobody's is not kept: made-up tokens push no others out.
    tokens: Recent<[u8; 32], Account>,
    /// Answers by the digests of account and question.
    rights: Recent<[u8; 32], bool>,
    reviews: Semaphore,
    /// Requests that wait for a place among them.
    waiting: AtomicUsize,
    metrics: Arc<ReadProxyMetrics>,
}

/// One of the requests that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn among(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Cluster {
    /// Apiserver as that account asks it. Connects to nothing yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        let connection = AsyncMutex::new((ReloadingClient::new(access).await?, None));
        let reviews = Semaphore::new(MOST_REVIEWS);
        let (tokens, rights) = (Recent::default(), Recent::default());
        let (waiting, metrics) = (AtomicUsize::new(0), Arc::default());
        Ok(Self { connection, tokens, rights, reviews, waiting, metrics })
    }

    /// Counters of the proxy.
    pub(super) fn metrics(&self) -> &Arc<ReadProxyMetrics> {
        &self.metrics
    }

    /// Questions that are being asked and the most of them, and the requests that wait.
    pub(super) fn load(&self) -> ((usize, usize), usize) {
        let asked = MOST_REVIEWS - self.reviews.available_permits();
        ((asked, MOST_REVIEWS), self.waiting.load(Relaxed))
    }

    /// True where the apiserver answers a question of ours.
    pub(super) async fn answers(&self) -> bool {
        let asking = async { self.client().await?.review_token(NOBODY).await };
        match asking.await {
            Ok(_) => true,
            Err(failure) => {
                self.failed(&failure).await;
                false
            }
        }
    }

    /// The client to ask with now.
    ///
    /// # Errors
    /// While there was never one to be had.
    pub(super) async fn client(&self) -> Result<KubeClient, KubeError> {
        let mut held = self.connection.lock().await;
        let (connection, known) = &mut *held;
        if let Some((client, since)) = known
            && since.elapsed() < LOOK_EVERY
        {
            return Ok(client.clone());
        }
        let client = connection.client().await?;
        *known = Some((client.clone(), Instant::now()));
        Ok(client)
    }

    /// Notes and logs a failure.
    pub(super) async fn failed(&self, failure: &KubeError) {
        self.metrics.own_failure();
        let mut held = self.connection.lock().await;
        held.0.failed(failure);
        held.1 = None;
        static LINES: Throttle = Throttle::new();
        if let Some(held_back) = LINES.pass() {
            tracing::warn!(%failure, fix = failure.fix(), held_back, "a question of the read proxy failed");
        }
    }

    /// Place for a question about a user.
    async fn turn(&self, question: ProxyQuestion) -> Result<SemaphorePermit<'_>, Unanswered> {
        let _waiting = Waiting::among(&self.waiting);
        match timeout(REVIEWED_WITHIN, self.reviews.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => {
                drop(self.metrics.begin((question, QuestionEnd::Busy)));
                Err(Unanswered::Busy)
            }
        }
    }

    /// Owner of a bearer token; `None` where it is nobody's.
    ///
    /// # Errors
    /// Why nobody can say.
    pub(super) async fn owner(&self, token: &str) -> Result<Option<Account>, Unanswered> {
        if token.len() > LARGEST {
            return Err(Unanswered::TooLarge);
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(Some(known));
        }
        let _turn = self.turn(ProxyQuestion::Token).await?;
        // Another request of the same user may have asked meanwhile.
        if let Some(known) = self.tokens.get(&key) {
            return Ok(Some(known));
        }
        let mut counted = self.metrics.begin((ProxyQuestion::Token, QuestionEnd::Abandoned));
        let asking = async { self.client().await?.review_token(token).await };
        let answer = asking.await;
        counted.end.1 = end_of(answer.as_ref().map(Option::is_some));
        match answer {
            Ok(owner) => {
                let owner = owner.map(|(name, user)| Account { name, user });
                if let Some(owner) = &owner {
                    self.tokens.put(key, owner.clone());
                }
                Ok(owner)
            }
            Err(failure) => {
                self.failed(&failure).await;
                Err(Unanswered::Failed)
            }
        }
    }

    /// True where this account may initialize that resource.
    ///
    /// # Errors
    /// Why nobody can say.
    pub(super) async fn may_initialize(&self, account: &Account, path: &ResourcePath) -> Result<bool, Unanswered> {
        if account.size() > LARGEST {
            return Err(Unanswered::TooLarge);
        }
        let target = ResourceAccess {
            group: path.group.as_str().into(),
            resource: path.resource.as_str().into(),
            namespace: path.namespace.as_deref().unwrap_or_default().into(),
            name: path.name.as_deref().unwrap_or_default().into(),
            ..ResourceAccess::default()
        };
        let target = AccessTarget::Resource(target);
        let check = AccessCheck { subject: Subject::Requester, verb: VERB.into(), target };
        let key = digest(&(account, &check));
        if let Some(known) = self.rights.get(&key) {
            return Ok(known);
        }
        let _turn = self.turn(ProxyQuestion::Access).await?;
        if let Some(known) = self.rights.get(&key) {
            return Ok(known);
        }
        let mut counted = self.metrics.begin((ProxyQuestion::Access, QuestionEnd::Abandoned));
        let asking = async { self.client().await?.review_access(&account.name, &account.user, &check).await };
        let answer = asking.await;
        counted.end.1 = end_of(answer.as_ref().map(|decision| decision.allowed));
        match answer {
            Ok(decision) => {
                self.rights.put(key, decision.allowed);
                Ok(decision.allowed)
            }
            Err(failure) => {
                self.failed(&failure).await;
                Err(Unanswered::Failed)
            }
        }
    }
}

/// End of a question with that answer.
fn end_of<E>(answer: Result<bool, E>) -> QuestionEnd {
    match answer {
        Ok(true) => QuestionEnd::Yes,
        Ok(false) => QuestionEnd::No,
        Err(_) => QuestionEnd::Failed,
    }
}

/// SHA-256 of all that makes a value another one. No two of them write the same: texts and lists say where they end.
fn digest(value: &impl Hash) -> [u8; 32] {
    struct Written(Sha256);
    impl Hasher for Written {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }
    let mut written = Written(Sha256::new());
    value.hash(&mut written);
    written.0.finalize().into()
}

/// Answers that were given a short time ago.
#[derive(Debug)]
struct Recent<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(since, _)| since.elapsed() < FRESH).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        // All of them are new: whoever has so many accounts asks more often.
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, (Instant::now(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_digests_of_their_own() {
        let account = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Account { name: name.to_owned(), user: gatepost_cel::User { groups, ..Default::default() } }
        };
        let all = [account("ab", &["c"]), account("a", &["bc"]), account("a", &["b", "c"]), account("a", &["b,c"])];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(digest(one), digest(&one.clone()));
            assert!(all[..at].iter().all(|other| digest(other) != digest(one)), "{one:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_for_a_short_time_and_are_few() {
        let recent = Recent::default();
        recent.put(0, true);
        tokio::time::advance(FRESH - Duration::from_millis(1)).await;
        assert_eq!(recent.get(&0), Some(true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(recent.get(&0), None);
        for key in 0..2 * MOST_KEPT {
            recent.put(key, true);
            assert!(recent.0.lock().unwrap().len() <= MOST_KEPT);
        }
    }
}

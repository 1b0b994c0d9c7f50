//! Requests of the proxy itself to the apiserver, under its own account: token reviews, access reviews, and reads of
//! objects.

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

/// Maximum age of a cached review.
const MAX_REVIEW_AGE: Duration = Duration::from_secs(10);
/// Maximum number of cached reviews of one kind.
const MAX_CACHED_REVIEWS: usize = 4096;
/// Interval at which the client is checked for changed credentials.
const CREDENTIALS_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of concurrent reviews.
const MAX_CONCURRENT_REVIEWS: usize = 32;
/// Timeout of the wait for a review's turn.
const REVIEW_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a token or an account in a review, in bytes.
const MAX_REVIEW_SUBJECT_BYTES: usize = 32 << 10;
/// A token that belongs to nobody.
const INVALID_TOKEN: &str = "gatepost-read-proxy-asks-whether-it-may-ask";

/// Reason why a review has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// The apiserver gave no answer.
    Failed,
    /// Too many reviews are in progress.
    Busy,
    /// The token or the account is larger than any valid one.
    TooLarge,
}

/// The apiserver, as the proxy's own account calls it.
#[derive(Debug)]
pub struct Cluster {
    connection: AsyncMutex<(ReloadingClient, Option<(KubeClient, Instant)>)>,
    /// Owners by the digests of their tokens. Invalid tokens are not cached, so that they cannot evict valid ones.
    tokens: Recent<[u8; 32], Account>,
    /// Decisions by the digests of account and access check.
    rights: Recent<[u8; 32], bool>,
    reviews: Semaphore,
    /// Number of requests that wait for a review's turn.
    waiting: AtomicUsize,
    metrics: Arc<ReadProxyMetrics>,
}

/// One of the waiting requests.
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
    /// Creates the client of the apiserver. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KubeError`] if address or credentials cannot be read.
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        let connection = AsyncMutex::new((ReloadingClient::new(access).await?, None));
        let reviews = Semaphore::new(MAX_CONCURRENT_REVIEWS);
        let (tokens, rights) = (Recent::default(), Recent::default());
        let (waiting, metrics) = (AtomicUsize::new(0), Arc::default());
        Ok(Self { connection, tokens, rights, reviews, waiting, metrics })
    }

    /// Returns the counters of the proxy.
    pub(super) fn metrics(&self) -> &Arc<ReadProxyMetrics> {
        &self.metrics
    }

    /// Returns the number of reviews in progress, their maximum, and the number of waiting requests.
    pub(super) fn load(&self) -> ((usize, usize), usize) {
        let asked = MAX_CONCURRENT_REVIEWS - self.reviews.available_permits();
        ((asked, MAX_CONCURRENT_REVIEWS), self.waiting.load(Relaxed))
    }

    /// Returns true if the apiserver answers a review.
    pub(super) async fn answers_reviews(&self) -> bool {
        let asking = async { self.client().await?.review_token(INVALID_TOKEN).await };
        match asking.await {
            Ok(_) => true,
            Err(failure) => {
                self.record_failure(&failure).await;
                false
            }
        }
    }

    /// Returns the client to use now.
    ///
    /// # Errors
    /// [`KubeError`] if no client could be created yet.
    pub(super) async fn client(&self) -> Result<KubeClient, KubeError> {
        let mut held = self.connection.lock().await;
        let (connection, known) = &mut *held;
        if let Some((client, since)) = known
            && since.elapsed() < CREDENTIALS_CHECK_INTERVAL
        {
            return Ok(client.clone());
        }
        let client = connection.client().await?;
        *known = Some((client.clone(), Instant::now()));
        Ok(client)
    }

    /// Records and logs a failed request.
    pub(super) async fn record_failure(&self, failure: &KubeError) {
        self.metrics.own_failure();
        let mut held = self.connection.lock().await;
        held.0.failed(failure);
        held.1 = None;
        static LINES: Throttle = Throttle::new();
        if let Some(suppressed) = LINES.pass() {
            tracing::warn!(%failure, fix = failure.fix(), suppressed, "a question of the read proxy failed");
        }
    }

    /// Waits for a review's turn.
    async fn turn(&self, question: ProxyQuestion) -> Result<SemaphorePermit<'_>, ReviewError> {
        let _waiting = Waiting::among(&self.waiting);
        match timeout(REVIEW_QUEUE_TIMEOUT, self.reviews.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => {
                drop(self.metrics.begin((question, QuestionEnd::Busy)));
                Err(ReviewError::Busy)
            }
        }
    }

    /// Returns the owner of a bearer token; `None` if the token is invalid.
    ///
    /// # Errors
    /// The reason why the owner is unknown.
    pub(super) async fn owner(&self, token: &str) -> Result<Option<Account>, ReviewError> {
        if token.len() > MAX_REVIEW_SUBJECT_BYTES {
            return Err(ReviewError::TooLarge);
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(Some(known));
        }
        let _turn = self.turn(ProxyQuestion::Token).await?;
        // Another request of the same user may have sent the review meanwhile.
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
                self.record_failure(&failure).await;
                Err(ReviewError::Failed)
            }
        }
    }

    /// Returns true if this account may initialize this resource.
    ///
    /// # Errors
    /// The reason why the decision is unknown.
    pub(super) async fn may_initialize(&self, account: &Account, path: &ResourcePath) -> Result<bool, ReviewError> {
        if account.size() > MAX_REVIEW_SUBJECT_BYTES {
            return Err(ReviewError::TooLarge);
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
                self.record_failure(&failure).await;
                Err(ReviewError::Failed)
            }
        }
    }
}

/// Returns the end of a review with this result.
fn end_of<E>(answer: Result<bool, E>) -> QuestionEnd {
    match answer {
        Ok(true) => QuestionEnd::Yes,
        Ok(false) => QuestionEnd::No,
        Err(_) => QuestionEnd::Failed,
    }
}

/// Returns the SHA-256 of a value. Different values never hash the same bytes, as texts and lists include their end.
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

/// Cache of recent reviews.
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
        kept.get(key).filter(|(since, _)| since.elapsed() < MAX_REVIEW_AGE).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_CACHED_REVIEWS {
            kept.retain(|_, (since, _)| since.elapsed() < MAX_REVIEW_AGE);
        }
        // All entries are recent: with so many accounts, repeated reviews are acceptable.
        if kept.len() >= MAX_CACHED_REVIEWS {
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
        tokio::time::advance(MAX_REVIEW_AGE - Duration::from_millis(1)).await;
        assert_eq!(recent.get(&0), Some(true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(recent.get(&0), None);
        for key in 0..2 * MAX_CACHED_REVIEWS {
            recent.put(key, true);
            assert!(recent.0.lock().unwrap().len() <= MAX_CACHED_REVIEWS);
        }
    }
}

//! Cluster: questions of the proxy itself to the apiserver, under its own account: who owns a token, who may initialize,
//! how an object stands.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

use super::{path::ResourcePath, requester::Account};
use crate::{
    cel::{AccessCheck, AccessTarget, ResourceAccess, Subject},
    initialize::VERB,
    kube::{Access, Client, Connection, KubeError},
    telemetry::Throttle,
};

/// Age up to which an answer about an account is used again.
const FRESH: Duration = Duration::from_secs(10);
/// Answers about accounts that are kept.
const MOST_KEPT: usize = 4096;
/// Interval at which a client is checked for changed credentials.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Apiserver, as the proxy itself asks it.
#[derive(Debug)]
pub struct Cluster {
    connection: AsyncMutex<(Connection, Option<(Client, Instant)>)>,
    tokens: Recent<[u8; 32], Option<Account>>,
    rights: Recent<(Account, AccessCheck), bool>,
}

impl Cluster {
    /// Apiserver as that account asks it. Connects to nothing yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub async fn new(access: Access) -> Result<Self, KubeError> {
        let connection = AsyncMutex::new((Connection::new(access).await?, None));
        Ok(Self { connection, tokens: Recent::default(), rights: Recent::default() })
    }

    /// The client to ask with now.
    ///
    /// # Errors
    /// While there was never one to be had.
    pub(super) async fn client(&self) -> Result<Client, KubeError> {
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
        let mut held = self.connection.lock().await;
        held.0.failed(failure);
        held.1 = None;
        static LINES: Throttle = Throttle::new();
        if let Some(held_back) = LINES.pass() {
            tracing::warn!(%failure, fix = failure.fix(), held_back, "a question of the read proxy failed");
        }
    }

    /// Owner of a bearer token; `None` where it is nobody's, or nobody can say.
    pub(super) async fn owner(&self, token: &str) -> Option<Account> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return known;
        }
        let asking = async { self.client().await?.review_token(token).await };
        match asking.await {
            Ok(owner) => {
                let owner = owner.map(|(name, user)| Account { name, user });
                self.tokens.put(key, owner.clone());
                owner
            }
            Err(failure) => {
                self.failed(&failure).await;
                None
            }
        }
    }

    /// True where this account may initialize that resource; false also where nobody can say.
    pub(super) async fn may_initialize(&self, account: &Account, path: &ResourcePath) -> bool {
        let target = ResourceAccess {
            group: path.group.as_str().into(),
            resource: path.resource.as_str().into(),
            namespace: path.namespace.as_deref().unwrap_or_default().into(),
            name: path.name.as_deref().unwrap_or_default().into(),
            ..ResourceAccess::default()
        };
        let target = AccessTarget::Resource(target);
        let check = AccessCheck { subject: Subject::Requester, verb: VERB.into(), target };
        let key = (account.clone(), check);
        if let Some(known) = self.rights.get(&key) {
            return known;
        }
        let asking = async { self.client().await?.review_access(&account.name, &account.user, &key.1).await };
        match asking.await {
            Ok(decision) => {
                self.rights.put(key, decision.allowed);
                decision.allowed
            }
            Err(failure) => {
                self.failed(&failure).await;
                false
            }
        }
    }
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

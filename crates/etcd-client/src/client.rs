//! Client: questions to one cluster, the content of a prefix, and what is written there.

#[cfg(test)]
mod range_tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tonic::Code;

use crate::{
    EtcdAccess, EtcdError,
    ask::{AuthorizedChannel, Kind, Members, Wrong},
    pb::{
        etcdserverpb::{
            DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
            RangeResponse, ResponseHeader,
            kv_client::KvClient,
            lease_client::LeaseClient,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
};

/// Default timeout of one call: all endpoints together.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The most that is taken from below one prefix, in bytes.
const LARGEST: usize = 64 << 20;

/// Bytes for the messages around it.
const AROUND: usize = 1 << 20;

/// Questions to one cluster, and what is written there. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    members: Arc<Members>,
    patience: Duration,
}

impl EtcdClient {
    /// Reads certificates and password. Connects to nothing yet; whoever asks first does.
    ///
    /// # Errors
    /// [`EtcdError::Access`] and [`EtcdError::Tls`]: settings or files that cannot be used.
    #[allow(clippy::unused_async, reason = "as other clients are opened; and it must be on a runtime, where it stays")]
    pub async fn open(access: &EtcdAccess) -> Result<Self, EtcdError> {
        Ok(Self { members: Arc::new(Members::open(access)?), patience: CALL_TIMEOUT })
    }

    /// The same, with so much time for each call, all endpoints together.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Self {
        Self { members: Arc::clone(&self.members), patience }
    }

    /// Everything below `prefix`, at one revision. Linearizable: nothing is missing that was written before.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Nonsense`] where the answer contradicts itself or is not whole.
    pub async fn get_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Ranged, EtcdError> {
        let prefix = prefix.as_ref();
        let too_large = || EtcdError::TooLarge { prefix: String::from_utf8_lossy(prefix).into_owned(), limit: LARGEST };
        let asked = self.members.ask(Kind::Read, self.patience, |asked, endpoint| async move {
            let answer = kv(&asked).range(asked.request(whole(prefix))).await?.into_inner();
            Ok(ranged(&endpoint, prefix, answer)?)
        });
        match asked.await {
            // tonic's words for an answer beyond `max_decoding_message_size`.
            Err(EtcdError::Refused { code: Code::OutOfRange, cause, .. }) if cause.contains("too large") => {
                Err(too_large())
            }
            Ok(ranged) if bytes_of(&ranged) > LARGEST => Err(too_large()),
            other => other,
        }
    }

    /// State of the keys below `prefix`, enough to see whether any has moved; see [`Glance::holds_the_same_as`].
    /// Linearizable.
    ///
    /// # Errors
    /// As [`EtcdClient::get_prefix`].
    pub async fn glance(&self, prefix: impl AsRef<[u8]>) -> Result<Glance, EtcdError> {
        let prefix = prefix.as_ref();
        let asked = self.members.ask(Kind::Read, self.patience, |asked, endpoint| async move {
            let answer = kv(&asked).range(asked.request(newest(prefix))).await?.into_inner();
            Ok(glance(&endpoint, prefix, &answer)?)
        });
        asked.await
    }

    /// Puts a value, to be gone with the lease where one is given; returns the store's revision then.
    ///
    /// # Errors
    /// [`EtcdError`]. After [`EtcdError::Late`] and [`EtcdError::Unreachable`] the value may have been put all the
    /// same. [`EtcdError::NoLease`] where the lease is over.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        lease: Option<i64>,
    ) -> Result<u64, EtcdError> {
        let (key, value) = (Bytes::copy_from_slice(key.as_ref()), value.into());
        let message = PutRequest { key, value, lease: lease.unwrap_or(0) };
        let asked = self.members.ask(Kind::Write, self.patience, |asked, endpoint| {
            let message = message.clone();
            async move { revision(&endpoint, kv(&asked).put(asked.request(message)).await?.into_inner().header) }
        });
        asked.await
    }

    /// Deletes a key, where it is there; returns the store's revision then.
    ///
    /// # Errors
    /// As [`EtcdClient::put`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<u64, EtcdError> {
        let message = DeleteRangeRequest { key: Bytes::copy_from_slice(key.as_ref()) };
        let asked =
            self.members.ask(Kind::Write, self.patience, |asked, endpoint| {
                let message = message.clone();
                async move {
                    revision(&endpoint, kv(&asked).delete_range(asked.request(message)).await?.into_inner().header)
                }
            });
        asked.await
    }

    /// A lease that ends after `ttl` (whole seconds, at least one) unless it is kept alive.
    ///
    /// # Errors
    /// [`EtcdError`]; after [`EtcdError::Late`] and [`EtcdError::Unreachable`] a lease may exist all the same.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, EtcdError> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let asked = self.members.ask(Kind::Write, self.patience, |asked, endpoint| async move {
            let message = LeaseGrantRequest { ttl: seconds };
            let granted = lease(&asked).lease_grant(asked.request(message)).await?.into_inner();
            match granted.id {
                0 => Err(EtcdError::nonsense(&endpoint, "it has granted a lease without a number").into()),
                id => Ok(id),
            }
        });
        asked.await
    }

    /// Lets the lease begin anew; returns how long it lasts from now.
    ///
    /// # Errors
    /// [`EtcdError::NoLease`] where it is over, or the reason why the write failed.
    pub async fn keep_alive(&self, id: i64) -> Result<Duration, EtcdError> {
        // A lease that is asked for twice lives no longer than one that is asked for once.
        let asked = self.members.ask(Kind::Read, self.patience, |asked, endpoint| async move {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = lease(&asked).lease_keep_alive(asked.request(once)).await?.into_inner();
            let answer = answers.message().await?;
            let answer = answer.ok_or_else(|| EtcdError::nonsense(&endpoint, "it says nothing of the lease"))?;
            match u64::try_from(answer.ttl) {
                Ok(seconds @ 1..) => Ok(Ok(Duration::from_secs(seconds))),
                _ => Ok(Err(EtcdError::NoLease { endpoint })),
            }
        });
        asked.await?
    }

    /// Ends the lease, and with it what was put under it. One that is over already is no error.
    ///
    /// # Errors
    /// As [`EtcdClient::put`].
    pub async fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        let asked = self.members.ask(Kind::Write, self.patience, |asked, _| async move {
            lease(&asked).lease_revoke(asked.request(LeaseRevokeRequest { id })).await?;
            Ok(())
        });
        match asked.await {
            Err(EtcdError::NoLease { .. }) => Ok(()),
            ended => ended,
        }
    }
}

impl std::fmt::Display for EtcdClient {
    /// The endpoints.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.members.names().collect::<Vec<_>>().join(", "))
    }
}

fn kv(asked: &AuthorizedChannel) -> KvClient<tonic::transport::Channel> {
    KvClient::new(asked.channel.clone()).max_decoding_message_size(LARGEST + AROUND)
}

fn lease(asked: &AuthorizedChannel) -> LeaseClient<tonic::transport::Channel> {
    LeaseClient::new(asked.channel.clone())
}

fn bytes_of(ranged: &Ranged) -> usize {
    ranged.pairs.iter().map(|pair| pair.key.len() + pair.value.len()).sum()
}

fn revision(endpoint: &str, header: Option<ResponseHeader>) -> Result<u64, Wrong> {
    let revision = header.and_then(|header| u64::try_from(header.revision).ok());
    Ok(revision.ok_or_else(|| EtcdError::nonsense(endpoint, "it has no revision"))?)
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The whole key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The store's revision when it was last put.
    pub mod_revision: u64,
}

/// Everything below a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranged {
    /// Which cluster has answered.
    pub cluster_id: u64,
    /// Raft term: grows with each election of a leader.
    pub raft_term: u64,
    /// The store's revision at which this is all there is.
    pub revision: u64,
    /// The pairs, by key.
    pub pairs: Vec<Pair>,
}

impl Ranged {
    /// Glance of the same moment.
    pub fn glance(&self) -> Glance {
        let newest_mod = self.pairs.iter().map(|pair| pair.mod_revision).max().unwrap_or(0);
        let &Self { cluster_id, raft_term, revision, ref pairs } = self;
        Glance { cluster_id, raft_term, revision, newest_mod, count: pairs.len() as u64 }
    }
}

/// State of a prefix in a hundred bytes: enough to see whether anything below it has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Which cluster has answered.
    pub cluster_id: u64,
    /// Raft term: grows with each election of a leader.
    pub raft_term: u64,
    /// The store's revision at which this was so.
    pub revision: u64,
    /// The largest `mod_revision` of a key below the prefix; 0 where there is none.
    pub newest_mod: u64,
    /// Number of keys.
    pub count: u64,
}

impl Glance {
    /// Does the prefix hold the same as at that other glance? No false yes, given one store that only goes forward:
    ///
    /// Revisions only grow, and a put gives its key the newest. Had any key that is there now been put since, the
    /// largest `mod_revision` would have grown with it. As it has not, every key that is there now was there before,
    /// with the same value; whatever else has happened, keys were only taken away. Then the count has fallen. As it has
    /// not, none was. (A key deleted and put again is one that was put since.)
    ///
    /// A store restored from a backup goes back, and may come to the same two numbers by another way while nobody
    /// looks. Its members start anew then and choose a leader, so another `raft_term` is never the same: a change of
    /// leader costs one whole read.
    pub fn holds_the_same_as(&self, other: &Self) -> bool {
        (self.cluster_id, self.raft_term) == (other.cluster_id, other.raft_term)
            && (self.newest_mod, self.count) == (other.newest_mod, other.count)
    }
}

/// The question for everything below a prefix.
pub(super) fn whole(prefix: &[u8]) -> RangeRequest {
    let (key, range_end) = below(prefix);
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

/// The question for the key that was put last, without its value.
pub(super) fn newest(prefix: &[u8]) -> RangeRequest {
    let by_mod = (SortTarget::Mod as i32, SortOrder::Descend as i32);
    RangeRequest { limit: 1, keys_only: true, sort_target: by_mod.0, sort_order: by_mod.1, ..whole(prefix) }
}

/// Result of `whole`.
pub(super) fn ranged(endpoint: &str, prefix: &[u8], answer: RangeResponse) -> Result<Ranged, EtcdError> {
    let wrong = |cause: &str| EtcdError::nonsense(endpoint, cause);
    let head = Head::of(endpoint, prefix, &answer)?;
    if answer.more || head.count != answer.kvs.len() as u64 {
        return Err(wrong("it is only a part of what the prefix holds"));
    }
    let mut pairs = Vec::with_capacity(answer.kvs.len());
    for pair in answer.kvs {
        let mod_revision = u64::try_from(pair.mod_revision).map_err(|_| wrong("a revision is negative"))?;
        pairs.push(Pair { key: pair.key, value: pair.value, mod_revision });
    }
    pairs.sort_by(|one, other| one.key.cmp(&other.key));
    if pairs.windows(2).any(|pair| matches!(pair, [one, other] if one.key == other.key)) {
        return Err(wrong("a key is there twice"));
    }
    let Head { cluster_id, raft_term, revision, .. } = head;
    Ok(Ranged { cluster_id, raft_term, revision, pairs })
}

/// Result of `newest`.
pub(super) fn glance(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<Glance, EtcdError> {
    let wrong = |cause: &str| Err(EtcdError::nonsense(endpoint, cause));
    let Head { cluster_id, raft_term, revision, count } = Head::of(endpoint, prefix, answer)?;
    let newest_mod = match (&*answer.kvs, count) {
        ([], 0) => 0,
        ([newest], 1..) => newest.mod_revision as u64,
        _ => return wrong("count and keys contradict each other"),
    };
    Ok(Glance { cluster_id, raft_term, revision, newest_mod, count })
}

/// Fields on the store that every answer has.
struct Head {
    cluster_id: u64,
    raft_term: u64,
    revision: u64,
    count: u64,
}

impl Head {
    fn of(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<Self, EtcdError> {
        let wrong = |cause: &str| EtcdError::nonsense(endpoint, cause);
        let header = answer.header.as_ref().ok_or_else(|| wrong("it says nothing of the store"))?;
        let revision = u64::try_from(header.revision).ok().filter(|revision| *revision > 0);
        let revision = revision.ok_or_else(|| wrong("it has no revision"))?;
        let count = u64::try_from(answer.count).map_err(|_| wrong("its count is negative"))?;
        let sound =
            |pair: &KeyValue| pair.key.starts_with(prefix) && (1..=header.revision).contains(&pair.mod_revision);
        if !answer.kvs.iter().all(sound) {
            return Err(wrong("it holds a key outside of the requested range, or of a later revision"));
        }
        Ok(Self { cluster_id: header.cluster_id, raft_term: header.raft_term, revision, count })
    }
}

/// The range of all keys that begin with `prefix`: up to the prefix plus one.
fn below(prefix: &[u8]) -> (Bytes, Bytes) {
    /// To etcd: the first key there can be, and an end behind the last.
    const ZERO: &[u8] = &[0];
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return (Bytes::copy_from_slice(prefix), end.into());
        }
    }
    let key = if prefix.is_empty() { ZERO } else { prefix };
    (Bytes::copy_from_slice(key), Bytes::from_static(ZERO))
}

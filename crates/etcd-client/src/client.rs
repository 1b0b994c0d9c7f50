//! Calls to one cluster: reads of a prefix, writes, and leases.

#[cfg(test)]
mod range_tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio_stream::StreamExt;
use tonic::{Code, Status, Streaming};

use crate::{
    EtcdAccess, EtcdError,
    ask::{AuthorizedChannel, CallError, CallKind, Members},
    error::Failure,
    pb::{
        etcdserverpb::{
            DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
            RangeResponse, ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse,
            kv_client::KvClient,
            lease_client::LeaseClient,
            range_request::{SortOrder, SortTarget},
            watch_client::WatchClient,
            watch_request::RequestUnion,
        },
        mvccpb::KeyValue,
    },
};

/// Default timeout of one call, over all endpoints.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum size of the keys and values below one prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 64 << 20;

/// Allowance for the message around the keys and values, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 1 << 20;

/// Client of one etcd cluster. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    members: Arc<Members>,
    timeout: Duration,
}

impl EtcdClient {
    /// Reads certificates and password. Connects on the first call.
    ///
    /// # Errors
    /// [`EtcdError::Access`] and [`EtcdError::Tls`] if settings or files cannot be used.
    #[allow(clippy::unused_async, reason = "as other clients are opened; and it must be on a runtime, where it stays")]
    pub async fn open(access: &EtcdAccess) -> Result<Self, EtcdError> {
        Ok(Self { members: Arc::new(Members::open(access)?), timeout: CALL_TIMEOUT })
    }

    /// Returns a client that shares the connections and has this timeout for each call, over all endpoints.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { members: Arc::clone(&self.members), timeout }
    }

    /// Returns all pairs below `prefix` at one revision. The read is linearizable: it contains every earlier write.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::InvalidResponse`] if the response contradicts itself or is incomplete.
    pub async fn get_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<PrefixContents, EtcdError> {
        let prefix = prefix.as_ref();
        let too_large =
            || EtcdError::TooLarge { prefix: String::from_utf8_lossy(prefix).into_owned(), limit: MAX_PREFIX_BYTES };
        let call = self.members.call_any(CallKind::Read, self.timeout, |member, endpoint| async move {
            let answer = kv(&member).range(member.request(whole(prefix))).await?.into_inner();
            Ok(ranged(&endpoint, prefix, answer)?)
        });
        match call.await {
            // tonic's message for a response larger than `max_decoding_message_size`.
            Err(EtcdError::Refused { code: Code::OutOfRange, cause, .. }) if cause.contains("too large") => {
                Err(too_large())
            }
            Ok(ranged) if bytes_of(&ranged) > MAX_PREFIX_BYTES => Err(too_large()),
            other => other,
        }
    }

    /// Returns a summary of the keys below `prefix` that shows if any has changed; see
    /// [`PrefixSummary::has_same_content_as`]. The read is linearizable.
    ///
    /// # Errors
    /// See [`EtcdClient::get_prefix`].
    pub async fn summary(&self, prefix: impl AsRef<[u8]>) -> Result<PrefixSummary, EtcdError> {
        let prefix = prefix.as_ref();
        let call = self.members.call_any(CallKind::Read, self.timeout, |member, endpoint| async move {
            let answer = kv(&member).range(member.request(newest(prefix))).await?.into_inner();
            Ok(summary(&endpoint, prefix, &answer)?)
        });
        call.await
    }

    /// Watches the keys below `prefix`, from now on.
    ///
    /// # Errors
    /// See [`EtcdClient::get_prefix`].
    pub async fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<PrefixWatch, EtcdError> {
        let (key, range_end) = below(prefix.as_ref());
        let create = WatchCreateRequest { key, range_end, fragment: true };
        let message = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let call = self.members.call_any(CallKind::Read, self.timeout, |member, endpoint| {
            // The watch ends with the stream of requests.
            let requests = tokio_stream::once(message.clone()).chain(tokio_stream::pending());
            async move {
                let mut client = WatchClient::new(member.channel.clone());
                let mut watch =
                    PrefixWatch { endpoint, responses: client.watch(member.request(requests)).await?.into_inner() };
                watch.next().await?;
                Ok(watch)
            }
        });
        call.await
    }

    /// Puts a value and returns the store's revision after it. The value is deleted with the lease, if one is given.
    ///
    /// # Errors
    /// [`EtcdError`]. After [`EtcdError::TimedOut`] and [`EtcdError::Unreachable`] the value may have been put
    /// nevertheless. [`EtcdError::NoLease`] if the lease has expired.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        lease: Option<i64>,
    ) -> Result<u64, EtcdError> {
        let (key, value) = (Bytes::copy_from_slice(key.as_ref()), value.into());
        let message = PutRequest { key, value, lease: lease.unwrap_or(0) };
        let call = self.members.call_any(CallKind::Write, self.timeout, |member, endpoint| {
            let message = message.clone();
            async move { revision(&endpoint, kv(&member).put(member.request(message)).await?.into_inner().header) }
        });
        call.await
    }

    /// Deletes a key if it exists, and returns the store's revision after it.
    ///
    /// # Errors
    /// See [`EtcdClient::put`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<u64, EtcdError> {
        let message = DeleteRangeRequest { key: Bytes::copy_from_slice(key.as_ref()) };
        let call =
            self.members.call_any(CallKind::Write, self.timeout, |member, endpoint| {
                let message = message.clone();
                async move {
                    revision(&endpoint, kv(&member).delete_range(member.request(message)).await?.into_inner().header)
                }
            });
        call.await
    }

    /// Grants a lease that expires after `ttl` (whole seconds, at least 1 s) unless it is kept alive. Returns its ID.
    ///
    /// # Errors
    /// [`EtcdError`]; after [`EtcdError::TimedOut`] and [`EtcdError::Unreachable`] a lease may exist nevertheless.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, EtcdError> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let call = self.members.call_any(CallKind::Write, self.timeout, |member, endpoint| async move {
            let message = LeaseGrantRequest { ttl: seconds };
            let granted = lease(&member).lease_grant(member.request(message)).await?.into_inner();
            match granted.id {
                0 => Err(EtcdError::invalid_response(&endpoint, "it has granted a lease without a number").into()),
                id => Ok(id),
            }
        });
        call.await
    }

    /// Renews the lease and returns its remaining time to live.
    ///
    /// # Errors
    /// [`EtcdError::NoLease`] if the lease has expired; otherwise the error of the call.
    pub async fn keep_alive(&self, id: i64) -> Result<Duration, EtcdError> {
        // Two renewals have the effect of one, so the call may be repeated like a read.
        let call = self.members.call_any(CallKind::Read, self.timeout, |member, endpoint| async move {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = lease(&member).lease_keep_alive(member.request(once)).await?.into_inner();
            let answer = answers.message().await?;
            let answer =
                answer.ok_or_else(|| EtcdError::invalid_response(&endpoint, "it says nothing of the lease"))?;
            match u64::try_from(answer.ttl) {
                Ok(seconds @ 1..) => Ok(Ok(Duration::from_secs(seconds))),
                _ => Ok(Err(EtcdError::NoLease { endpoint })),
            }
        });
        call.await?
    }

    /// Revokes the lease, which deletes its keys. Succeeds if the lease has already expired.
    ///
    /// # Errors
    /// See [`EtcdClient::put`].
    pub async fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        let call = self.members.call_any(CallKind::Write, self.timeout, |member, _| async move {
            lease(&member).lease_revoke(member.request(LeaseRevokeRequest { id })).await?;
            Ok(())
        });
        match call.await {
            Err(EtcdError::NoLease { .. }) => Ok(()),
            ended => ended,
        }
    }
}

/// Watch of the keys below a prefix, at one member.
#[derive(Debug)]
pub struct PrefixWatch {
    endpoint: String,
    responses: Streaming<WatchResponse>,
}

impl PrefixWatch {
    /// Returns once keys have changed. Cancel safe.
    ///
    /// # Errors
    /// [`EtcdError`] if the watch has ended.
    pub async fn changed(&mut self) -> Result<(), EtcdError> {
        self.next().await.map_err(|error| match error {
            CallError::Status(status) => Failure::of(&status, &self.endpoint, None).error,
            CallError::Answer(error) => error,
        })
    }

    async fn next(&mut self) -> Result<(), CallError> {
        match self.responses.message().await? {
            Some(WatchResponse { canceled: false, .. }) => Ok(()),
            Some(response) => Err(Status::cancelled(response.cancel_reason).into()),
            None => Err(Status::cancelled("the watch has ended").into()),
        }
    }
}

impl std::fmt::Display for EtcdClient {
    /// Writes the list of endpoints.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.members.names().collect::<Vec<_>>().join(", "))
    }
}

fn kv(member: &AuthorizedChannel) -> KvClient<tonic::transport::Channel> {
    KvClient::new(member.channel.clone()).max_decoding_message_size(MAX_PREFIX_BYTES + MESSAGE_OVERHEAD_BYTES)
}

fn lease(member: &AuthorizedChannel) -> LeaseClient<tonic::transport::Channel> {
    LeaseClient::new(member.channel.clone())
}

fn bytes_of(ranged: &PrefixContents) -> usize {
    ranged.pairs.iter().map(|pair| pair.key.len() + pair.value.len()).sum()
}

fn revision(endpoint: &str, header: Option<ResponseHeader>) -> Result<u64, CallError> {
    let revision = header.and_then(|header| u64::try_from(header.revision).ok());
    Ok(revision.ok_or_else(|| EtcdError::invalid_response(endpoint, "it has no revision"))?)
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Key, including the prefix.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Revision of the store at which the key was last put.
    pub mod_revision: u64,
}

/// All pairs below a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixContents {
    /// ID of the cluster that answered.
    pub cluster_id: u64,
    /// Raft term, which grows with each leader election.
    pub raft_term: u64,
    /// Revision of the store at which the prefix was read.
    pub revision: u64,
    /// The pairs, sorted by key.
    pub pairs: Vec<Pair>,
}

impl PrefixContents {
    /// Returns the summary of these pairs.
    pub fn summary(&self) -> PrefixSummary {
        let newest_mod = self.pairs.iter().map(|pair| pair.mod_revision).max().unwrap_or(0);
        let &Self { cluster_id, raft_term, revision, ref pairs } = self;
        PrefixSummary { cluster_id, raft_term, revision, newest_mod, count: pairs.len() as u64 }
    }
}

/// Summary of a prefix in about a hundred bytes, which shows if anything below it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixSummary {
    /// ID of the cluster that answered.
    pub cluster_id: u64,
    /// Raft term, which grows with each leader election.
    pub raft_term: u64,
    /// Revision of the store at which the prefix was read.
    pub revision: u64,
    /// The largest `mod_revision` of a key below the prefix; 0 if there is no key.
    pub newest_mod: u64,
    /// Number of keys below the prefix.
    pub count: u64,
}

impl PrefixSummary {
    /// Returns true if the prefix has the same content as in `other`. Never a false positive on a store whose revision
    /// only grows:
    ///
    /// A put gives its key the newest revision. If any present key had been put since, the largest `mod_revision` would
    /// have grown. An equal `mod_revision` therefore proves that keys were only deleted, and an equal count proves that
    /// no key was deleted. (A key that was deleted and put again counts as put.)
    ///
    /// A store restored from a backup returns to an older revision, and may reach the same two numbers with other
    /// content. Its members then restart and elect a leader, so a different `raft_term` never counts as the same
    /// content: a change of leader costs one full read.
    pub fn has_same_content_as(&self, other: &Self) -> bool {
        (self.cluster_id, self.raft_term) == (other.cluster_id, other.raft_term)
            && (self.newest_mod, self.count) == (other.newest_mod, other.count)
    }
}

/// Returns the request for all pairs below a prefix.
pub(super) fn whole(prefix: &[u8]) -> RangeRequest {
    let (key, range_end) = below(prefix);
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

/// Returns the request for the key that was put last, without its value.
pub(super) fn newest(prefix: &[u8]) -> RangeRequest {
    let by_mod = (SortTarget::Mod as i32, SortOrder::Descend as i32);
    RangeRequest { limit: 1, keys_only: true, sort_target: by_mod.0, sort_order: by_mod.1, ..whole(prefix) }
}

/// Converts the response to [`whole`], and rejects an incomplete or contradictory one.
pub(super) fn ranged(endpoint: &str, prefix: &[u8], answer: RangeResponse) -> Result<PrefixContents, EtcdError> {
    let wrong = |cause: &str| EtcdError::invalid_response(endpoint, cause);
    let PrefixSummary { cluster_id, raft_term, revision, count, .. } = checked(endpoint, prefix, &answer)?;
    if answer.more || count != answer.kvs.len() as u64 {
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
    Ok(PrefixContents { cluster_id, raft_term, revision, pairs })
}

/// Converts the response to [`newest`], and rejects a contradictory one.
pub(super) fn summary(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<PrefixSummary, EtcdError> {
    let summary = checked(endpoint, prefix, answer)?;
    let newest_mod = match (&*answer.kvs, summary.count) {
        ([], 0) => 0,
        ([newest], 1..) => newest.mod_revision as u64,
        _ => return Err(EtcdError::invalid_response(endpoint, "count and keys contradict each other")),
    };
    Ok(PrefixSummary { newest_mod, ..summary })
}

/// Returns the fields of a range response that are about the store and the prefix, after checking them and the keys.
fn checked(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<PrefixSummary, EtcdError> {
    let wrong = |cause: &str| EtcdError::invalid_response(endpoint, cause);
    let header = answer.header.as_ref().ok_or_else(|| wrong("it says nothing of the store"))?;
    let revision = u64::try_from(header.revision).ok().filter(|revision| *revision > 0);
    let revision = revision.ok_or_else(|| wrong("it has no revision"))?;
    let count = u64::try_from(answer.count).map_err(|_| wrong("its count is negative"))?;
    let sound = |pair: &KeyValue| pair.key.starts_with(prefix) && (1..=header.revision).contains(&pair.mod_revision);
    if !answer.kvs.iter().all(sound) {
        return Err(wrong("it holds a key outside of the requested range, or of a later revision"));
    }
    Ok(PrefixSummary { cluster_id: header.cluster_id, raft_term: header.raft_term, revision, newest_mod: 0, count })
}

/// Returns the range of all keys that begin with `prefix`: from the prefix up to the prefix plus one.
fn below(prefix: &[u8]) -> (Bytes, Bytes) {
    /// Etcd's smallest key; as a range end, it includes all following keys.
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

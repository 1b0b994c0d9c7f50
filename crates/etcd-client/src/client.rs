//! Client: questions to one cluster, and what is written there.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tonic::Code;

use super::{
    EtcdAccess, EtcdError, Glance, Ranged,
    ask::{Asked, Kind, Members, Wrong},
    pb::etcdserverpb::{
        DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, ResponseHeader,
        kv_client::KvClient, lease_client::LeaseClient,
    },
    range,
};

/// Default timeout of one call: all endpoints together.
const PATIENCE: Duration = Duration::from_secs(3);
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
        Ok(Self { members: Arc::new(Members::open(access)?), patience: PATIENCE })
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
            let answer = kv(&asked).range(asked.request(range::whole(prefix))).await?.into_inner();
            Ok(range::ranged(&endpoint, prefix, answer)?)
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
            let answer = kv(&asked).range(asked.request(range::newest(prefix))).await?.into_inner();
            Ok(range::glance(&endpoint, prefix, &answer)?)
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
        // Asked twice, a lease is no longer alive than asked once.
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

fn kv(asked: &Asked) -> KvClient<tonic::transport::Channel> {
    KvClient::new(asked.channel.clone()).max_decoding_message_size(LARGEST + AROUND)
}

fn lease(asked: &Asked) -> LeaseClient<tonic::transport::Channel> {
    LeaseClient::new(asked.channel.clone())
}

fn bytes_of(ranged: &Ranged) -> usize {
    ranged.pairs.iter().map(|pair| pair.key.len() + pair.value.len()).sum()
}

fn revision(endpoint: &str, header: Option<ResponseHeader>) -> Result<u64, Wrong> {
    let revision = header.and_then(|header| u64::try_from(header.revision).ok());
    Ok(revision.ok_or_else(|| EtcdError::nonsense(endpoint, "it has no revision"))?)
}

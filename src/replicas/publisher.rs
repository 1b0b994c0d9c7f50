//! Publisher: publisher of a replica's reports, for readers that do not ask its admin address.

use std::time::Duration;

use super::{Replica, ReplicaReport, StatusObjects};
use crate::etcd::{EtcdClient, EtcdError};

/// A replica that says nothing for so long is taken to be dead. One that cannot reach etcd, where its configuration
/// comes from, refuses every review long before that.
pub const TTL: Duration = Duration::from_secs(15);
/// Longest interval between two reports.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// Most hooks in one report. An etcd takes values of 1.5 MiB.
const MOST_HOOKS: usize = 1500;
/// Timeout of one call to etcd.
const PATIENCE: Duration = Duration::from_secs(2);

/// Publisher of a replica's reports.
#[derive(Debug)]
pub enum Publisher {
    /// Nowhere but at its admin address.
    Nowhere,
    /// As a key of etcd, under a lease.
    Etcd(LeaseKey),
    /// In the status of configuration objects.
    Kubernetes(Box<StatusObjects>),
}

impl Publisher {
    /// Place for people to read; `None` where there is none.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Etcd(etcd) => Some(format!("etcd {}, key {}", etcd.client, etcd.key)),
            Self::Kubernetes(_) => Some("the status of AdmissionControlConfiguration objects".to_owned()),
        }
    }

    /// Longest interval between two reports: the age and the store's revision change all the time.
    pub fn heartbeat(&self) -> Duration {
        match self {
            Self::Nowhere | Self::Etcd(_) => HEARTBEAT,
            Self::Kubernetes(objects) => objects.heartbeat(),
        }
    }

    /// After a failure, tried again so much later.
    pub fn again(&self) -> Duration {
        match self {
            Self::Nowhere | Self::Etcd(_) => Duration::from_secs(1),
            Self::Kubernetes(_) => Duration::from_secs(5),
        }
    }

    /// Most hooks of a report.
    pub fn most_hooks(&self) -> usize {
        match self {
            Self::Nowhere | Self::Etcd(_) => MOST_HOOKS,
            // An object has room for what becomes of its own hooks.
            Self::Kubernetes(_) => usize::MAX,
        }
    }

    /// Publishes a report.
    ///
    /// # Errors
    /// Message with the cause and what to do; the report may not be readable there.
    pub async fn publish(&mut self, report: &ReplicaReport) -> Result<(), String> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Etcd(etcd) => etcd.publish(report.clone()).await,
            Self::Kubernetes(objects) => objects.publish(report).await,
        }
    }

    /// Renews the sign of life, where there is nothing new to report.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub async fn keep_alive(&mut self) -> Result<(), String> {
        match self {
            Self::Nowhere | Self::Kubernetes(_) => Ok(()),
            Self::Etcd(etcd) => etcd.keep_alive().await.map_err(|error| error_chain(&error)),
        }
    }

    /// The replica ends.
    ///
    /// # Errors
    /// Message with the cause; the replica seems alive until its entry expires.
    pub async fn leave(&mut self) -> Result<(), String> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Etcd(etcd) => etcd.leave().await.map_err(|error| error_chain(&error)),
            Self::Kubernetes(objects) => objects.leave().await,
        }
    }
}

/// A key of etcd that is there while its replica lives.
#[derive(Debug)]
pub struct LeaseKey {
    client: EtcdClient,
    key: String,
    lease: Option<i64>,
    /// Put by us at least once.
    ours: bool,
    /// Somebody else puts it as well.
    contested: bool,
}

impl LeaseKey {
    /// The key `<prefix><replica>`; nothing is put yet.
    pub fn new(client: &EtcdClient, prefix: &str, replica: &Replica) -> Self {
        let key = format!("{prefix}{}", replica.name());
        Self { client: client.within(PATIENCE), key, lease: None, ours: false, contested: false }
    }

    async fn publish(&mut self, mut report: ReplicaReport) -> Result<(), String> {
        self.contested = self.is_contested(&report).await.map_err(|error| error_chain(&error))?;
        report.contested = self.contested;
        let value = serde_json::to_vec(&report).map_err(|error| error.to_string())?;
        self.put(value).await.map_err(|error| error_chain(&error))?;
        self.ours = true;
        match self.contested {
            false => Ok(()),
            true => {
                Err(format!("another replica goes by the name {:?}, too: give each its own --replica", report.replica))
            }
        }
    }

    /// Our own report may be overwritten by a namesake, never by a dead replica.
    async fn is_contested(&self, own: &ReplicaReport) -> Result<bool, EtcdError> {
        let found = self.client.get_prefix(&self.key).await?;
        let found = found.pairs.iter().find(|pair| pair.key == self.key.as_bytes());
        let Some(Ok(found)) = found.map(|pair| serde_json::from_slice::<ReplicaReport>(&pair.value)) else {
            return Ok(false);
        };
        Ok(self.ours && found.instance != own.instance)
    }

    /// Puts it first and lives on then: a replica that cannot report must not seem to be in its last reported state.
    async fn put(&mut self, value: Vec<u8>) -> Result<(), EtcdError> {
        if let Some(lease) = self.lease {
            match self.client.put(&self.key, value.clone(), Some(lease)).await {
                Ok(_) => return self.keep_alive().await,
                Err(EtcdError::NoLease { .. }) => self.lease = None,
                Err(error) => return Err(error),
            }
        }
        let lease = *self.lease.insert(self.client.grant(TTL).await?);
        self.client.put(&self.key, value, Some(lease)).await.map(drop)
    }

    async fn keep_alive(&mut self) -> Result<(), EtcdError> {
        let Some(lease) = self.lease else { return Ok(()) };
        let kept = self.client.keep_alive(lease).await.map(drop);
        if matches!(kept, Err(EtcdError::NoLease { .. })) {
            self.lease = None;
        }
        kept
    }

    async fn leave(&mut self) -> Result<(), EtcdError> {
        match self.lease.take() {
            Some(lease) => self.client.revoke(lease).await,
            None => Ok(()),
        }
    }
}

fn error_chain(error: &EtcdError) -> String {
    format!("{error}; {}", error.fix())
}

//! Publisher of a replica's reports, for readers that do not call its admin address.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use gatepost_etcd_client::{EtcdClient, EtcdError};

use crate::{ReplicaReport, StatusObjects};

/// Time without a renewal after which the key of a replica is gone. A replica that cannot reach etcd, where its
/// configuration comes from, rejects every request long before that.
pub const TTL: Duration = Duration::from_secs(15);
/// Longest interval between two reports.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// Maximum number of hooks in one report: etcd accepts values of 1.5 MiB.
const MAX_HOOKS: usize = 1500;
/// Timeout of one call to etcd.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

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

    /// Delay of a retry after a failure.
    pub fn retry_delay(&self) -> Duration {
        match self {
            Self::Nowhere | Self::Etcd(_) => Duration::from_secs(1),
            Self::Kubernetes(_) => Duration::from_secs(5),
        }
    }

    /// Maximum number of hooks in a report.
    pub fn max_hooks(&self) -> usize {
        match self {
            Self::Nowhere | Self::Etcd(_) => MAX_HOOKS,
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
    /// We have put the key at least once.
    was_put: bool,
    /// Somebody else puts it as well.
    contested: bool,
}

impl LeaseKey {
    /// The key `<prefix><replica>`; nothing is put yet.
    pub fn new(client: &EtcdClient, prefix: &str, replica: &Replica) -> Self {
        let key = format!("{prefix}{}", replica.name());
        Self { client: client.within(CALL_TIMEOUT), key, lease: None, was_put: false, contested: false }
    }

    async fn publish(&mut self, mut report: ReplicaReport) -> Result<(), String> {
        self.contested = self.is_contested(&report).await.map_err(|error| error_chain(&error))?;
        report.contested = self.contested;
        let value = serde_json::to_vec(&report).map_err(|error| error.to_string())?;
        self.put(value).await.map_err(|error| error_chain(&error))?;
        self.was_put = true;
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
        Ok(self.was_put && found.instance != own.instance)
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

/// Maximum number of causes that are logged until publishing succeeds again.
const MAX_LOGGED_CAUSES: usize = 16;

/// This sidecar's name, and the progress of its reports.
#[derive(Debug)]
pub struct Replica {
    name: String,
    instance: String,
    publish_status: Mutex<PublishStatus>,
}

/// Progress of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishStatus {
    /// Place of the reports; `None` where they are at the admin address alone.
    pub place: Option<String>,
    /// Time of the last success.
    pub published: Option<SystemTime>,
    /// Failure at present.
    pub failure: Option<String>,
    /// Every cause of a failure since it last succeeded: each is news once, also where several take turns.
    causes: Vec<String>,
}

impl Replica {
    /// One of this name, that publishes nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        let instance = format!("{:016x}", RandomState::new().build_hasher().finish());
        Self { name: name.into(), instance, publish_status: Mutex::default() }
    }

    /// The name of this machine, by which a replica goes where nothing else is said.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identity of this run among all with the same name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Progress of publishing.
    pub fn publish_status(&self) -> PublishStatus {
        self.lock().clone()
    }

    /// Records where reports are published.
    pub fn set_place(&self, place: &str) {
        self.lock().place = Some(place.to_owned());
    }

    /// Records the result of publishing; true where that is news.
    pub fn record(&self, outcome: Result<(), String>, now: SystemTime) -> bool {
        let mut status = self.lock();
        if outcome.is_ok() {
            status.published = Some(now);
        }
        let failure = outcome.err();
        let news = match &failure {
            None => !std::mem::take(&mut status.causes).is_empty(),
            Some(cause) => !status.causes.contains(cause) && status.causes.len() < MAX_LOGGED_CAUSES,
        };
        status.causes.extend(failure.clone().filter(|_| news));
        status.failure = failure;
        news
    }

    fn lock(&self) -> MutexGuard<'_, PublishStatus> {
        self.publish_status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_news_once_until_publishing_succeeds() {
        let replica = Replica::new("cp-1");
        let recorded = |outcome: Result<(), &str>| replica.record(outcome.map_err(str::to_owned), SystemTime::now());
        let news = [Ok(()), Err("reset"), Err("closed"), Err("reset"), Err("closed"), Ok(()), Ok(()), Err("reset")]
            .map(recorded);
        assert_eq!(news, [false, true, true, false, false, true, false, true]);
    }
}

//! Publisher of a replica's reports, for readers that do not call its admin address.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use gatepost_etcd_client::{EtcdClient, EtcdError};

use crate::{ReplicaReport, StatusObjects};

/// Time without a renewal after which etcd deletes a replica's key. A replica that cannot reach etcd, the source of its
/// configuration, rejects every request long before that.
pub const TTL: Duration = Duration::from_secs(15);
/// Maximum interval between two reports.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// Maximum number of hooks in one report: etcd accepts values of 1.5 MiB.
const MAX_HOOKS: usize = 1500;
/// Timeout of one call to etcd.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Publisher of a replica's reports.
#[derive(Debug)]
pub enum Publisher {
    /// Publishes nothing: reports are only at the admin address.
    Nowhere,
    /// Publishes in a key of etcd, under a lease.
    Etcd(LeaseKey),
    /// Publishes in the status of configuration objects.
    Kubernetes(Box<StatusObjects>),
}

impl Publisher {
    /// Returns the place of the reports, for display; `None` if nothing is published.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Etcd(etcd) => Some(format!("etcd {}, key {}", etcd.client, etcd.key)),
            Self::Kubernetes(_) => Some("the status of AdmissionControlConfiguration objects".to_owned()),
        }
    }

    /// Returns the maximum interval between two reports. Age and store revision alone cause no earlier report.
    pub fn heartbeat(&self) -> Duration {
        match self {
            Self::Nowhere | Self::Etcd(_) => HEARTBEAT,
            Self::Kubernetes(objects) => objects.heartbeat(),
        }
    }

    /// Returns the delay of a retry after a failure.
    pub fn retry_delay(&self) -> Duration {
        match self {
            Self::Nowhere | Self::Etcd(_) => Duration::from_secs(1),
            Self::Kubernetes(_) => Duration::from_secs(5),
        }
    }

    /// Returns the maximum number of hooks in a report.
    pub fn max_hooks(&self) -> usize {
        match self {
            Self::Nowhere | Self::Etcd(_) => MAX_HOOKS,
            // Each object has room for the reports of its own hooks.
            Self::Kubernetes(_) => usize::MAX,
        }
    }

    /// Publishes a report.
    ///
    /// # Errors
    /// Message with the cause and its fix. The report might not be readable there.
    pub async fn publish(&mut self, report: &ReplicaReport) -> Result<(), String> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Etcd(etcd) => etcd.publish(report.clone()).await,
            Self::Kubernetes(objects) => objects.publish(report).await,
        }
    }

    /// Renews the lease of the key if there is nothing new to report.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub async fn keep_alive(&mut self) -> Result<(), String> {
        match self {
            Self::Nowhere | Self::Kubernetes(_) => Ok(()),
            Self::Etcd(etcd) => etcd.keep_alive().await.map_err(|error| error_chain(&error)),
        }
    }

    /// Removes the published report when the replica stops.
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

/// Key of etcd that exists while its replica is alive.
#[derive(Debug)]
pub struct LeaseKey {
    client: EtcdClient,
    key: String,
    lease: Option<i64>,
    /// This replica has put the key at least once.
    was_put: bool,
    /// Another replica puts the key, too.
    contested: bool,
}

impl LeaseKey {
    /// Creates the key `<prefix><replica>` without putting it.
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
        if !self.contested {
            return Ok(());
        }
        Err(format!("another replica goes by the name {:?}, too: give each its own --replica", report.replica))
    }

    /// Returns true if another replica of the same name has overwritten our report. A dead replica overwrites none.
    async fn is_contested(&self, own: &ReplicaReport) -> Result<bool, EtcdError> {
        let found = self.client.get_prefix(&self.key).await?;
        let found = found.pairs.iter().find(|pair| pair.key == self.key.as_bytes());
        let Some(Ok(found)) = found.map(|pair| serde_json::from_slice::<ReplicaReport>(&pair.value)) else {
            return Ok(false);
        };
        Ok(self.was_put && found.instance != own.instance)
    }

    /// Puts the value before the lease is renewed: a replica that cannot report must not keep its last report alive.
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

/// Returns the text of the error, with its fix appended.
fn error_chain(error: &EtcdError) -> String {
    format!("{error}; {}", error.fix())
}

/// Maximum number of distinct causes that are logged until publishing succeeds again.
const MAX_LOGGED_CAUSES: usize = 16;

/// Name of this sidecar, and the progress of its reports.
#[derive(Debug)]
pub struct Replica {
    name: String,
    instance: String,
    publish_status: Mutex<PublishStatus>,
}

/// Progress of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishStatus {
    /// Place of the reports; `None` if they are only at the admin address.
    pub place: Option<String>,
    /// Time of the last success.
    pub published: Option<SystemTime>,
    /// Failure of the last attempt.
    pub failure: Option<String>,
    /// Distinct causes of failures since the last success. Each is logged once, even if several alternate.
    causes: Vec<String>,
}

impl Replica {
    /// Creates a replica of this name that has not published yet.
    pub fn new(name: impl Into<String>) -> Self {
        let instance = format!("{:016x}", RandomState::new().build_hasher().finish());
        Self { name: name.into(), instance, publish_status: Mutex::default() }
    }

    /// Returns the name of this machine, which is the default name of a replica.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the identity of this run among all runs with the same name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the progress of publishing.
    pub fn publish_status(&self) -> PublishStatus {
        self.lock().clone()
    }

    /// Records where reports are published.
    pub fn set_place(&self, place: &str) {
        self.lock().place = Some(place.to_owned());
    }

    /// Records the result of publishing. Returns true if the result should be logged.
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

//! Publishes reports of this replica, where the flags say, whenever something has changed and at a regular interval.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use gatepost_replicas::{LeaseKey, Publisher, Replica, StatusObjects};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::replica_report;
use crate::{
    live::{Rejection, ReplicaHealth, RetiredEntry},
    source::{EtcdLocation, ReadError},
};
use gatepost_etcd_client::{EtcdAccess, EtcdClient};
use gatepost_kube_support::ReloadingClient;

/// Interval at which changes are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which the report is kept alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of withdrawing the report when the process ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports of this replica, to wherever its publisher puts them.
#[derive(Debug)]
pub struct Publishing {
    health: Arc<ReplicaHealth>,
    replica: Arc<Replica>,
    publisher: Publisher,
}

impl Publishing {
    /// Publishes nothing yet.
    pub fn new(health: Arc<ReplicaHealth>, replica: Arc<Replica>, publisher: Publisher) -> Self {
        if let Some(place) = publisher.place() {
            replica.set_place(&place);
        }
        Self { health, replica, publisher }
    }

    /// Publishes for as long as this is polled.
    pub async fn run(&mut self) {
        if matches!(self.publisher, Publisher::Nowhere) {
            return std::future::pending().await;
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut published: Option<(Mark, Instant)> = None;
        let (mut alive, mut failed) = (Instant::now(), None::<Instant>);
        loop {
            ticks.tick().await;
            if failed.is_some_and(|at| at.elapsed() < self.publisher.retry_delay()) {
                continue;
            }
            let mark = Mark::of(&self.health);
            let known =
                published.as_ref().is_some_and(|(last, at)| *last == mark && at.elapsed() < self.publisher.heartbeat());
            let outcome = match (known, alive.elapsed() < KEEP_ALIVE_INTERVAL) {
                (true, true) => continue,
                (true, false) => self.publisher.keep_alive().await,
                (false, _) => {
                    let (now, max_hooks) = ((Instant::now().into_std(), SystemTime::now()), self.publisher.max_hooks());
                    let report = replica_report(&self.health, &self.replica, now, max_hooks);
                    self.publisher.publish(&report).await
                }
            };
            match &outcome {
                Ok(()) => (failed, alive) = (None, Instant::now()),
                Err(_) => failed = Some(Instant::now()),
            }
            match (known, outcome.is_ok()) {
                (_, false) => published = None,
                (false, true) => published = Some((mark, Instant::now())),
                (true, true) => {}
            }
            self.report(outcome);
        }
    }

    /// Withdraws the report, so that readers need not wait until this replica counts as dead.
    pub async fn leave(&mut self) {
        match timeout(LEAVE_TIMEOUT, self.publisher.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(why, "this replica will seem alive for up to 30 s"),
            Err(_) => {
                tracing::warn!("withdrawing this replica's status took too long; it will be listed for up to 30 s")
            }
        }
    }

    fn report(&self, outcome: Result<(), String>) {
        let (place, why) = (self.publisher.place().unwrap_or_default(), outcome.clone().err());
        if self.replica.record(outcome, SystemTime::now()) {
            match why {
                Some(why) => tracing::warn!(place, why, "cannot publish the status of this replica; reviews go on"),
                None => tracing::info!(place, "publishing the status of this replica again"),
            }
        }
    }
}

/// State of a report, to see whether the next differs. Holds no generation: that would keep it from draining.
#[derive(Debug)]
struct Mark {
    generation: u64,
    rejected: Option<Arc<Rejection>>,
    cannot_read: Option<String>,
    retired: Arc<Vec<RetiredEntry>>,
    stale: bool,
    stopping: bool,
    /// Documents that are open.
    open: Vec<Arc<str>>,
}

impl Mark {
    fn of(health: &ReplicaHealth) -> Self {
        let now = Instant::now().into_std();
        Self {
            generation: health.current.load().number,
            rejected: health.status.rejected.get(),
            cannot_read: health.status.failed_read.get().map(|failed| failed.error.clone()),
            retired: health.status.retired(),
            stale: !health.current.freshness().is_fresh(now),
            stopping: health.is_stopping(),
            open: health.break_glass.open(now).iter().map(|open| Arc::clone(&open.document.name)).collect(),
        }
    }
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        let rest = |mark: &Self| (mark.generation, mark.stale, mark.stopping);
        rest(self) == rest(other)
            && self.cannot_read == other.cannot_read
            && same(self.rejected.as_ref(), other.rejected.as_ref())
            && Arc::ptr_eq(&self.retired, &other.retired)
            && self.open == other.open
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Place of replicas' reports, beside their admin addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusPlace {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In etcd: a key for each, `<prefix><name>`, gone when the replica is.
    Etcd {
        /// The cluster, and as whom it is asked.
        access: EtcdAccess,
        /// Prefix of the keys.
        prefix: String,
    },
    /// In a cluster: the status of each configuration object.
    Kubernetes {
        /// The apiserver, and as whom it is asked.
        access: gatepost_kube_support::KubeAccess,
        /// Are objects that hold hooks kept, when they are deleted, until the hooks have drained?
        finalizer: bool,
    },
}

impl StatusPlace {
    /// Default prefix of the keys.
    pub const ETCD_PREFIX: &str = "/gatepost/replicas/";

    /// In the etcd that holds the configuration, beside it.
    ///
    /// # Errors
    /// The prefix cannot be used: one of the two lies inside the other.
    pub fn beside(configuration: EtcdLocation, prefix: &str) -> Result<Self, String> {
        let configured = &configuration.prefix;
        if !prefix.ends_with('/') {
            return Err(format!("--etcd-status-prefix {prefix} has to end in a slash: names of replicas follow it"));
        }
        // Below the configuration, every report would be a document of it; around it, every document a report.
        if prefix.starts_with(&**configured) || configured.starts_with(prefix) {
            return Err(format!(
                "--etcd-status-prefix {prefix} and --etcd-prefix {configured} must not contain each other: reports \
                 of replicas are not configuration"
            ));
        }
        Ok(Self::Etcd { access: configuration.access, prefix: prefix.to_owned() })
    }

    /// Publisher of this replica's reports there. Sends nothing yet.
    ///
    /// # Errors
    /// Files or settings that cannot be used.
    pub async fn open(&self, replica: &Replica) -> Result<Publisher, ReadError> {
        Ok(match self {
            Self::Nowhere => Publisher::Nowhere,
            Self::Etcd { access, prefix } => {
                Publisher::Etcd(LeaseKey::new(&EtcdClient::open(access).await?, prefix, replica))
            }
            Self::Kubernetes { access, finalizer } => {
                let connection = ReloadingClient::new(access.clone()).await?;
                Publisher::Kubernetes(Box::new(StatusObjects::new(connection, replica.name(), *finalizer)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_configuration_lie_apart() {
        let beside = |prefix: &str| {
            let prefix_of_configuration = "/gatepost/config/".to_owned();
            StatusPlace::beside(
                EtcdLocation { access: EtcdAccess::default(), prefix: prefix_of_configuration, files: None },
                prefix,
            )
        };
        assert!(beside(StatusPlace::ETCD_PREFIX).is_ok() && beside("/gatepost/config-status/").is_ok());
        for wrong in ["/gatepost/config/", "/gatepost/config/replicas/", "/gatepost/", "/", "/gatepost/replicas"] {
            assert!(beside(wrong).is_err(), "{wrong}");
        }
    }
}

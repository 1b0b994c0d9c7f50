//! Publishes the reports of this replica to the configured place, at every change and at a regular interval.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use gatepost_replicas::{LeaseKey, Publisher, Replica, StatusObjects};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::{
    live::{Rejection, ReplicaHealth, RetiredEntry, replica_report},
    source::{EtcdLocation, ReadError},
};
use gatepost_base::clock;
use gatepost_etcd_client::{EtcdAccess, EtcdClient};
use gatepost_kube_support::ReloadingClient;

/// Interval at which changes are detected.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which the report is kept alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of withdrawing the report when the process ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Publisher of this replica's reports.
#[derive(Debug)]
pub(super) struct Publishing {
    health: Arc<ReplicaHealth>,
    replica: Arc<Replica>,
    publisher: Publisher,
}

impl Publishing {
    /// Creates the publisher. Publishes nothing before [`Publishing::run`].
    pub(super) fn new(health: Arc<ReplicaHealth>, replica: Arc<Replica>, publisher: Publisher) -> Self {
        if let Some(place) = publisher.place() {
            replica.set_place(&place);
        }
        Self { health, replica, publisher }
    }

    /// Publishes until dropped.
    pub(super) async fn run(&mut self) {
        if matches!(self.publisher, Publisher::Nowhere) {
            return std::future::pending().await;
        }
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut published: Option<(ReportState, Instant)> = None;
        let (mut alive, mut failed) = (Instant::now(), None::<Instant>);
        loop {
            ticks.tick().await;
            if failed.is_some_and(|at| at.elapsed() < self.publisher.retry_delay()) {
                continue;
            }
            let state = ReportState::of(&self.health);
            let known = published
                .as_ref()
                .is_some_and(|(last, at)| last.key() == state.key() && at.elapsed() < self.publisher.heartbeat());
            let outcome = match (known, alive.elapsed() < KEEP_ALIVE_INTERVAL) {
                (true, true) => continue,
                (true, false) => self.publisher.keep_alive().await,
                (false, _) => {
                    let (now, max_hooks) = ((clock::now(), SystemTime::now()), self.publisher.max_hooks());
                    let report = replica_report(&self.health, &self.replica, now, max_hooks);
                    self.publisher.publish(&report).await
                }
            };
            match &outcome {
                Ok(()) => {
                    (failed, alive) = (None, Instant::now());
                    if !known {
                        published = Some((state, alive));
                    }
                }
                Err(_) => (failed, published) = (Some(Instant::now()), None),
            }
            self.report(outcome);
        }
    }

    /// Withdraws the report, so that readers need not wait until this replica counts as dead.
    pub(super) async fn leave(&mut self) {
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

/// Parts of the state in force whose change requires a new report. Contains no generation, as that would keep it from
/// draining.
#[derive(Debug)]
struct ReportState {
    generation: u64,
    /// Number of the newest generation that all plugins know.
    known: u64,
    rejected: Option<Arc<Rejection>>,
    cannot_read: Option<String>,
    retired: Arc<Vec<RetiredEntry>>,
    stale: bool,
    stopping: bool,
    /// Names of the open break-glass documents.
    open_break_glass: Vec<Arc<str>>,
}

impl ReportState {
    fn of(health: &ReplicaHealth) -> Self {
        let now = clock::now();
        Self {
            generation: health.current.load().number,
            known: health.current.known_to_plugins(now).id.number,
            rejected: health.status.rejected.get(),
            cannot_read: health.status.failed_read.get().map(|failed| failed.error.clone()),
            retired: health.status.retired(),
            stale: !health.current.freshness().is_fresh(now),
            stopping: health.is_stopping(),
            open_break_glass: health.break_glass.open(now).iter().map(|open| Arc::clone(&open.document.name)).collect(),
        }
    }

    /// Returns what differs between states that require different reports.
    fn key(&self) -> impl PartialEq {
        let arcs = (self.rejected.as_ref().map(Arc::as_ptr), Arc::as_ptr(&self.retired));
        let flags = (self.known, self.stale, self.stopping);
        (self.generation, flags, &self.cannot_read, &self.open_break_glass, arcs)
    }
}

/// Place of the replicas' reports, besides their admin addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusPlace {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In etcd: one key per replica, `<prefix><name>`, removed when the replica ends.
    Etcd {
        /// The etcd cluster and the credentials.
        access: EtcdAccess,
        /// Prefix of the keys.
        prefix: String,
    },
    /// In a Kubernetes cluster: the status of each configuration object.
    Kubernetes {
        /// The apiserver and the credentials.
        access: gatepost_kube_support::KubeAccess,
        /// True to keep deleted objects with hooks until the hooks have drained.
        finalizer: bool,
    },
}

impl StatusPlace {
    /// Default prefix of the keys.
    pub const ETCD_PREFIX: &str = "/gatepost/replicas/";

    /// Returns the place in the etcd that stores the configuration, next to it.
    ///
    /// # Errors
    /// Returns a message if one of the two prefixes contains the other.
    pub fn beside(configuration: EtcdLocation, prefix: &str) -> Result<Self, String> {
        let configured = &configuration.prefix;
        if !prefix.ends_with('/') {
            return Err(format!("--etcd-status-prefix {prefix} has to end in a slash: names of replicas follow it"));
        }
        // Below the configuration every report would be a document of it; above it every document would be a report.
        if prefix.starts_with(&**configured) || configured.starts_with(prefix) {
            return Err(format!(
                "--etcd-status-prefix {prefix} and --etcd-prefix {configured} must not contain each other: reports \
                 of replicas are not configuration"
            ));
        }
        Ok(Self::Etcd { access: configuration.access, prefix: prefix.to_owned() })
    }

    /// Creates the publisher of this replica's reports. Sends nothing yet.
    ///
    /// # Errors
    /// Returns an error if files or settings cannot be used.
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

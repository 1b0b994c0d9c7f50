//! LabelledObjects: the loop that initializes objects which a stock apiserver stores unfinished.
//!
//! One replica leads. It watches the metadata of marked objects and makes the initializers of each act in their order.
//! It stores no state of its own: the state of an object is in the object, and every write is conditional on the
//! object's version. So the next leader continues with the objects of a replica that ended at any point.
//!
//! | what | file |
//! | --- | --- |
//! | leader election | `LeaderElection` of `gatepost-kube-support` |
//! | a list and its changes | `follow` |
//! | known objects, and whose turn is due | `agenda`, `turns` |
//! | one step of one object | `step`, `act`, `turn` |

mod act;
mod agenda;
mod follow;
mod step;
mod turn;
mod turns;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use self::{
    agenda::{Agenda, Due},
    follow::MarkedObjects,
    turn::{Engine, Turn, TurnEnd},
};
use crate::live::{Current, Namespaces};
use gatepost_base::{
    clock::now,
    memory::{MemoryBudget, Purpose},
};
use gatepost_kube_support::{FailureLog, KubeClient, LeaderElection, ReloadingClient};

/// Name of the lease by which replicas elect the leader. Two leaders for a moment do no harm, since each write is
/// conditional on the version of its object.
const LEASE: &str = "gatepost-initialize";
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Interval at which the holder renews the lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time after the last renewal for which the holder works. Other replicas wait longer.
const WORK_LIMIT: Duration = Duration::from_secs(10);
const _: () = assert!(WORK_LIMIT.as_secs() < LEASE_DURATION.as_secs());

/// Interval at which due times and the configuration are checked.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time after the start for which the replica is unready because it does not know its username.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between warnings about failed writes.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of queued events of resources. Each may have some hundred KiB.
const MAX_QUEUED_NEWS: usize = 16;
/// Timeout of giving up the lease at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Resources by group and name.
type Names = BTreeSet<(Box<str>, Box<str>)>;

/// Loop over the objects that a stock apiserver stores unfinished.
#[derive(Debug)]
pub struct LabelledObjects {
    connection: ReloadingClient,
    election: LeaderElection,
    engine: Arc<Engine>,
    /// Log of the attempts to renew the lease.
    log: FailureLog,
}

impl LabelledObjects {
    /// Creates the loop for a cluster. Replicas agree by a lease in `namespace`; this replica's name as a holder begins
    /// with `replica`. Connects to nothing before [`LabelledObjects::run`].
    pub fn new(
        connection: ReloadingClient,
        (namespace, replica): (&str, &str),
        current: Arc<Current>,
        (namespaces, memory): (Option<Arc<Namespaces>>, Arc<MemoryBudget>),
    ) -> Self {
        current.labelled().await_account((Instant::now() + ACCOUNT_TIMEOUT).into_std());
        let instance = RandomState::new().hash_one(Instant::now());
        Self {
            connection,
            election: LeaderElection::new(namespace, LEASE, format!("{replica}/{instance:016x}"), LEASE_DURATION),
            engine: Arc::new(Engine::new(current, (namespaces, memory))),
            log: FailureLog::default(),
        }
    }

    /// Initializes objects while this replica leads, until dropped.
    pub async fn run(&mut self) {
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The first tick is immediate, so that the username is known soon.
            tick.tick().await;
            if !self.configured().is_empty() && self.renew_lease().await {
                let Ok(client) = self.connection.client().await else { continue };
                tracing::info!("this replica initializes stored objects from now on");
                self.engine.current.labelled().set_leads(true);
                self.work(client).await;
                self.engine.current.labelled().set_leads(false);
                self.engine.current.labelled().set_unfinished(0);
            }
        }
    }

    /// Gives up the lease.
    pub async fn leave(&mut self) {
        if !self.engine.current.labelled().leads() {
            return;
        }
        let leaving = async {
            let client = self.connection.client().await?;
            self.election.leave(&client).await
        };
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, leaving).await;
    }

    /// Returns the resources whose objects are stored by label.
    fn configured(&self) -> Names {
        let generation = self.engine.current.load();
        let entries = generation.snapshot.initializers().iter().filter(|entry| entry.by_label);
        entries.map(|entry| (entry.api_group.clone(), entry.resource.clone())).collect()
    }

    /// Renews the lease and returns true if this replica leads. Also reads the replica's username, if it is unknown.
    async fn renew_lease(&mut self) -> bool {
        let renewal = async {
            let client = self.connection.client().await?;
            let labelled = self.engine.current.labelled();
            if labelled.account().is_none() {
                labelled.set_account(&client.whoami().await?);
            }
            self.election.hold(&client).await
        };
        match renewal.await {
            Ok(holds) => {
                // The new leader logs that it begins.
                self.log = FailureLog::default();
                holds
            }
            Err(failure) => {
                self.connection.failed(&failure);
                let lost = "cannot agree with other replicas who initializes stored objects; they wait";
                self.log.failed(lost, failure);
                false
            }
        }
    }

    /// Initializes objects until another replica has the lease, or might have it.
    async fn work(&mut self, client: KubeClient) {
        let (clients, latest) = watch::channel(client);
        let (to, mut news) = mpsc::channel(MAX_QUEUED_NEWS);
        let (mut following, mut followed) = (JoinSet::new(), Names::new());
        let mut agenda = Agenda::new(self.engine.memory.empty(Purpose::Queue));
        let mut turns = JoinSet::new();
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed = Instant::now();
        let mut failing = StoredWriteLog::default();
        loop {
            while let Some((due, turn)) = agenda.next(now()) {
                let (engine, client) = (Arc::clone(&self.engine), latest.borrow().clone());
                turns.spawn(work_on(engine, client, due, turn));
            }
            tokio::select! {
                Some(event) = news.recv() => agenda.take(event, &self.engine.current, now()),
                Some(ended) = turns.join_next(), if !turns.is_empty() => {
                    if let Ok((uid, ended)) = ended {
                        failing.report(&ended);
                        agenda.ended(&uid, &ended, now());
                    }
                }
                _ = tick.tick() => {
                    if renewed.elapsed() >= RENEWAL_INTERVAL {
                        let requested = Instant::now();
                        if self.renew_lease().await {
                            renewed = requested;
                            if let Ok(client) = self.connection.client().await {
                                clients.send_replace(client);
                            }
                        } else if !self.log.is_failing() {
                            // Another replica has the lease.
                            return;
                        }
                    }
                    if renewed.elapsed() >= WORK_LIMIT {
                        return;
                    }
                    // A removed resource is still followed, since its objects must not stay hidden.
                    for name in self.configured() {
                        if followed.insert(name.clone()) {
                            following.spawn(MarkedObjects::new(latest.clone(), name, to.clone()).run());
                        }
                    }
                    agenda.queue_due(&self.engine.current, now()).await;
                    self.engine.current.labelled().set_unfinished(agenda.len());
                }
            }
        }
    }
}

async fn work_on(engine: Arc<Engine>, client: KubeClient, due: Due, at: agenda::Assignment) -> (Arc<str>, TurnEnd) {
    let agenda::Assignment { resource, stored, since } = at;
    let uid = Arc::clone(&stored.uid);
    let turn = Turn { engine, client, resource, stored, since };
    let ended = match due {
        Due::Turn => turn.go_on().await,
        Due::Correction(correction) => turn.correct(correction).await,
    };
    (uid, ended)
}

/// Log of writes that the apiserver does not accept.
#[derive(Debug, Default)]
struct StoredWriteLog {
    logged: Option<Instant>,
    /// True if a write has succeeded since the last warning.
    recovered: bool,
}

impl StoredWriteLog {
    /// Logs at most one warning a minute, and one line after recovery: single objects may fail while others do not.
    fn report(&mut self, ended: &TurnEnd) {
        match ended {
            TurnEnd::Retry(Some(failure)) => {
                if self.logged.is_none_or(|logged| logged.elapsed() >= WARNING_INTERVAL) {
                    let fix = failure.fix();
                    tracing::warn!(%failure, fix, "cannot initialize stored objects; they wait, and are tried again");
                    (self.logged, self.recovered) = (Some(Instant::now()), false);
                }
            }
            TurnEnd::Retry(None) => {}
            TurnEnd::Settled | TurnEnd::Waiting => {
                if self.logged.is_some() && !self.recovered {
                    tracing::info!("stored objects are initialized again");
                    self.recovered = true;
                }
            }
        }
    }
}

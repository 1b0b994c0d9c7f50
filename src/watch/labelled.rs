//! LabelledObjects: the loop that works on objects which a stock apiserver stores unfinished.
//!
//! One replica leads. It watches the metadata of marked objects, and has initializers act on each in their order. Nothing of
//! it is kept: the state of each object is in the object, and every change is made for one version of it. So a replica that
//! ends anywhere leaves objects that the next one goes on with.
//!
//! | what | file |
//! | --- | --- |
//! | who leads | `LeaderElection` of `gatepost-kube-support` |
//! | a list and its changes | `follow`, `resource` |
//! | objects that are known, and whose turn is due | `agenda`, `turns` |
//! | one step of one object | `step`, `act`, `review`, `turn` |

mod act;
mod agenda;
mod follow;
mod resource;
mod review;
mod step;
mod turn;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval},
};

use self::{
    agenda::{Agenda, Due},
    follow::MarkedObjects,
    turn::{Ended, Engine, Turn},
};
use crate::live::{Current, Namespaces};
use gatepost_base::memory::{MemoryBudget, Purpose};
use gatepost_kube_support::{KubeClient, KubeError, LeaderElection, ReloadingClient};

/// Name of the lease by which replicas elect the one that works on marked objects. Two that work for a moment do no harm:
/// each of their changes is made for one version of its object.
const LEASE: &str = "gatepost-initialize";
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Interval at which the holder renews the lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time after the last renewal for which the holder works on. Other replicas wait longer.
const WORK_LIMIT: Duration = Duration::from_secs(10);
const _: () = assert!(WORK_LIMIT.as_secs() < LEASE_DURATION.as_secs());

/// Interval of looks at the time, and at the configuration.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time at the start in which callers are not sent here, until it is known as whom the apiserver knows us.
const NAMELESS: Duration = Duration::from_secs(10);
/// Interval between warnings of what cannot be written.
const QUIET: Duration = Duration::from_secs(60);
/// News that wait to be taken. Each may hold some hundred KiB.
const NEWS: usize = 16;
/// Longest wait for the apiserver at the end.
const LEAVES_WITHIN: Duration = Duration::from_millis(500);

/// Resources by group and name.
type Names = BTreeSet<(Box<str>, Box<str>)>;

/// Objects that a stock apiserver stores unfinished, about to be worked on.
#[derive(Debug)]
pub struct LabelledObjects {
    connection: ReloadingClient,
    election: LeaderElection,
    engine: Arc<Engine>,
    /// Failure of the last look at the lease, as logged.
    logged: Option<KubeError>,
}

impl LabelledObjects {
    /// Objects of that cluster. Replicas agree by a lease in `namespace`, which this one holds by a name of its own
    /// that begins with `replica`. Connects to nothing before [`LabelledObjects::run`].
    pub fn new(
        connection: ReloadingClient,
        (namespace, replica): (&str, &str),
        current: Arc<Current>,
        (namespaces, memory): (Option<Arc<Namespaces>>, Arc<MemoryBudget>),
    ) -> Self {
        current.labelled().await_account((Instant::now() + NAMELESS).into_std());
        let instance = RandomState::new().hash_one(Instant::now());
        Self {
            connection,
            election: LeaderElection::new(namespace, LEASE, format!("{replica}/{instance:016x}"), LEASE_DURATION),
            engine: Arc::new(Engine::new(current, (namespaces, memory))),
            logged: None,
        }
    }

    /// Works on them, whenever this replica leads, until dropped.
    pub async fn run(&mut self) {
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // At once, too: what is asked first is who we are.
            tick.tick().await;
            if !self.configured().is_empty() && self.holds().await {
                let Ok(client) = self.connection.client().await else { continue };
                tracing::info!("this replica initializes stored objects from now on");
                self.engine.current.labelled().set_leads(true);
                self.work(client).await;
                self.engine.current.labelled().set_leads(false);
                self.engine.current.labelled().set_unfinished(0);
            }
        }
    }

    /// Gives the lease back.
    pub async fn leave(&mut self) {
        if !self.engine.current.labelled().leads() {
            return;
        }
        let leaving = async {
            let client = self.connection.client().await?;
            self.election.leave(&client).await
        };
        let _ = tokio::time::timeout(LEAVES_WITHIN, leaving).await;
    }

    /// Resources whose objects are stored by label.
    fn configured(&self) -> Names {
        let generation = self.engine.current.load();
        let entries = generation.snapshot.initializers().iter().filter(|entry| entry.by_label);
        entries.map(|entry| (entry.api_group.clone(), entry.resource.clone())).collect()
    }

    /// Does this replica lead for the next while? Every replica learns on the way as whom it is known.
    async fn holds(&mut self) -> bool {
        let asked = async {
            let client = self.connection.client().await?;
            let labelled = self.engine.current.labelled();
            if labelled.account().is_none() {
                labelled.set_account(&client.whoami().await?);
            }
            self.election.hold(&client).await
        };
        match asked.await {
            Ok(holds) => {
                self.logged = None;
                holds
            }
            Err(failure) => {
                self.connection.failed(&failure);
                if self.logged.as_ref() != Some(&failure) {
                    let fix = failure.fix();
                    tracing::warn!(%failure, fix, "cannot agree with other replicas who initializes stored objects; they wait");
                    self.logged = Some(failure);
                }
                false
            }
        }
    }

    /// Works until the lease is another's, or might be.
    async fn work(&mut self, client: KubeClient) {
        let (clients, latest) = watch::channel(client);
        let (to, mut news) = mpsc::channel(NEWS);
        let (mut following, mut followed) = (JoinSet::new(), BTreeMap::<(Box<str>, Box<str>), AbortHandle>::new());
        let mut agenda = Agenda::new(self.engine.memory.empty(Purpose::Queue));
        let mut turns = JoinSet::new();
        let mut tick = interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed = Instant::now();
        let mut failing = Failing::default();
        loop {
            while let Some((due, turn)) = agenda.next(turn::now()) {
                let (engine, client) = (Arc::clone(&self.engine), latest.borrow().clone());
                turns.spawn(work_on(engine, client, due, turn));
            }
            tokio::select! {
                Some(event) = news.recv() => agenda.take(event, &self.engine.current, turn::now()),
                Some(ended) = turns.join_next(), if !turns.is_empty() => {
                    if let Ok((uid, ended)) = ended {
                        failing.report(&ended);
                        agenda.ended(&uid, &ended, turn::now());
                    }
                }
                _ = tick.tick() => {
                    if renewed.elapsed() >= RENEWAL_INTERVAL {
                        let asked = Instant::now();
                        if self.holds().await {
                            renewed = asked;
                            if let Ok(client) = self.connection.client().await {
                                clients.send_replace(client);
                            }
                        } else if self.logged.is_none() {
                            // Somebody else has it.
                            return;
                        }
                    }
                    if renewed.elapsed() >= WORK_LIMIT {
                        return;
                    }
                    // A resource that is configured no longer is followed on: its objects must not stay hidden.
                    for name in self.configured() {
                        followed.entry(name.clone()).or_insert_with(|| {
                            following.spawn(MarkedObjects::new(latest.clone(), name, to.clone()).run())
                        });
                    }
                    agenda.look(&self.engine.current, turn::now()).await;
                    self.engine.current.labelled().set_unfinished(agenda.len());
                }
            }
        }
    }
}

async fn work_on(engine: Arc<Engine>, client: KubeClient, due: Due, at: agenda::Assignment) -> (Arc<str>, Ended) {
    let agenda::Assignment { resource, stored, since } = at;
    let uid = Arc::clone(&stored.uid);
    let turn = Turn { engine, client, resource, stored, since };
    let ended = match due {
        Due::Turn => turn.go_on().await,
        Due::Correction(correction) => turn.correct(correction).await,
    };
    (uid, ended)
}

/// Writes that the apiserver does not take, as they are logged.
#[derive(Debug, Default)]
struct Failing {
    logged: Option<Instant>,
    /// It has been taken again since.
    over: bool,
}

impl Failing {
    /// A line at most a minute, and one when it is over: objects may fail each for itself, while others do not.
    fn report(&mut self, ended: &Ended) {
        match ended {
            Ended::Again(Some(failure)) => {
                if self.logged.is_none_or(|logged| logged.elapsed() >= QUIET) {
                    let fix = failure.fix();
                    tracing::warn!(%failure, fix, "cannot initialize stored objects; they wait, and are tried again");
                    (self.logged, self.over) = (Some(Instant::now()), false);
                }
            }
            Ended::Again(None) => {}
            Ended::Settled | Ended::Waits => {
                if self.logged.is_some() && !self.over {
                    tracing::info!("stored objects are initialized again");
                    self.over = true;
                }
            }
        }
    }
}

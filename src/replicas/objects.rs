//! Objects: the status of configuration objects, where a replica reports, and the finalizer that keeps an object
//! until its hooks have drained.

pub(crate) mod liveness;
mod object;
pub(crate) mod replica_status;

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

pub use self::object::FINALIZER;
use self::{
    liveness::Liveness,
    object::{Head, apply, hold, manager, release},
    replica_status::ReplicaStatus,
};
use super::{
    ReplicaReport,
    entry::{self, About, Shares},
    publisher::HEARTBEAT,
};
use crate::{
    kube::{KubeClient, KubeError, ReloadingClient},
    schema::status::Replica,
    source::kubernetes::configurations,
};

/// While something is under way, looked at again so soon.
const SOON: Duration = Duration::from_secs(1);
/// Timeout of one turn, all writes together.
const PATIENCE: Duration = Duration::from_secs(10);

/// The status of configuration objects: an entry of ours in each.
#[derive(Debug)]
pub struct StatusObjects {
    connection: ReloadingClient,
    replica: String,
    finalizer: bool,
    /// Objects by uid.
    known: HashMap<String, ObjectState>,
    heard: Liveness,
    /// Something is under way.
    busy: bool,
}

/// State of one object between turns.
#[derive(Debug)]
struct ObjectState {
    name: String,
    /// Its newest generation, and the revision of the store at which that was first seen: whoever has read the store as
    /// of then has read this generation.
    generation: (i64, u64),
    /// The generation in force here.
    adopted: Option<i64>,
    written: Option<(Replica, Instant)>,
}

impl StatusObjects {
    /// Nothing is published yet.
    pub fn new(connection: ReloadingClient, replica: &str, finalizer: bool) -> Self {
        let (known, heard) = (HashMap::new(), Liveness::default());
        Self { connection, replica: replica.to_owned(), finalizer, known, heard, busy: false }
    }

    pub(super) fn heartbeat(&self) -> Duration {
        if self.busy { SOON } else { HEARTBEAT }
    }

    /// Publishes the report in every object, then sets finalizers, removes them and forgets dead replicas where that
    /// has become possible.
    ///
    /// # Errors
    /// First failure, and advice. The rest was done.
    pub async fn publish(&mut self, report: &ReplicaReport) -> Result<(), String> {
        let late = |_| Err(format!("the apiserver took longer than {}", humantime::format_duration(PATIENCE)));
        timeout(PATIENCE, self.turn(report)).await.unwrap_or_else(late)
    }

    async fn turn(&mut self, report: &ReplicaReport) -> Result<(), String> {
        let client = self.connection.client().await.map_err(|error| error_chain(&error))?;
        let listed = client.list(&configurations()).await;
        let objects = listed.map_err(|error| self.failed(&error))?.items;
        self.heard.hear(&objects);
        let mut report = report.clone();
        report.contested = self.is_contested(&objects, &report.instance);
        let heads: Vec<_> = objects.iter().filter_map(Head::of).collect();
        self.known.retain(|uid, _| heads.iter().any(|head| head.uid == uid));
        self.busy = false;
        let shares = Shares::new(&report, heads.iter().map(|head| (head.name, head.deleted)));
        let mut failure = None;
        for (object, head) in objects.iter().filter_map(|object| Some((object, Head::of(object)?))) {
            if let Err(why) = self.tend(&client, object, &head, &shares, &report).await {
                failure.get_or_insert(why);
            }
        }
        if report.contested {
            let namesake =
                format!("another replica goes by the name {:?}, too: give each its own --replica", self.replica);
            failure.get_or_insert(namesake);
        }
        failure.map_or(Ok(()), Err)
    }

    async fn tend(
        &mut self,
        client: &KubeClient,
        object: &Value,
        head: &Head<'_>,
        shares: &Shares<'_>,
        report: &ReplicaReport,
    ) -> Result<(), String> {
        let finalized = match self.finalizer && !head.deleted && entry::hooks(object) > 0 && !head.is_held() {
            true => hold(client, head).await,
            false => Ok(()),
        };
        let own = self.entry(head, shares, report);
        let wrote = self.write(client, object, head, &own).await.map_err(|error| self.failed(&error))?;
        let said = ReplicaStatus::of(self.heard.live(), object, &own);
        if !head.deleted {
            // The first replica that sees it writes it.
            if let Some(condition) = said.accepted(object, head.generation, &report.published) {
                let status = json!({ "conditions": [condition] });
                let judged = apply(client, "gatepost", head.name, &status).await;
                judged.map_err(|error| self.failed(&error))?;
            }
        } else if head.is_held() {
            // Our own write has moved the object on: its revision is known at the next turn.
            self.busy = true;
            if !wrote && said.has_drained() {
                release(client, head).await.map_err(|error| unfinalized(&error))?;
                tracing::info!(object = head.name, "its hooks have drained on every replica: removed the finalizer");
            }
        }
        self.forget_the_dead(client, object, head).await.map_err(|error| self.failed(&error))?;
        finalized.map_err(|error| unfinalized(&error))
    }

    /// Entry for this object.
    fn entry(&mut self, head: &Head<'_>, shares: &Shares<'_>, report: &ReplicaReport) -> Replica {
        let revision = head.revision.parse().unwrap_or(u64::MAX);
        let fresh = || ObjectState {
            name: head.name.to_owned(),
            generation: (head.generation, revision),
            adopted: None,
            written: None,
        };
        let known = self.known.entry(head.uid.to_owned()).or_insert_with(fresh);
        if known.generation.0 != head.generation {
            known.generation = (head.generation, revision);
        }
        let read = report.observed.is_some_and(|observed| observed >= known.generation.1);
        if read && shares.is_in_force(head.name) {
            known.adopted = Some(head.generation);
        }
        self.busy |= !read;
        shares.entry(About { name: head.name, generation: known.adopted, left: head.deleted && read })
    }

    /// Writes it, where it says something new or is due; true where it did.
    async fn write(
        &mut self,
        client: &KubeClient,
        object: &Value,
        head: &Head<'_>,
        own: &Replica,
    ) -> Result<bool, KubeError> {
        let Some(known) = self.known.get_mut(head.uid) else { return Ok(false) };
        let there =
            entry::entries(object).flatten().any(|entry| entry.name == own.name && entry.instance == own.instance);
        let due = |at: &Instant| at.elapsed() + SOON >= HEARTBEAT;
        if there && known.written.as_ref().is_some_and(|(last, at)| says_the_same(last, own) && !due(at)) {
            return Ok(false);
        }
        let status = json!({ "replicas": [own] });
        apply(client, &manager(&self.replica), head.name, &status).await?;
        known.written = Some((own.clone(), Instant::now()));
        Ok(true)
    }

    async fn forget_the_dead(&self, client: &KubeClient, object: &Value, head: &Head<'_>) -> Result<(), KubeError> {
        for entry in entry::entries(object).flatten() {
            if self.heard.is_forgotten(&entry.name) {
                apply(client, &manager(&entry.name), head.name, &json!({})).await?;
            }
        }
        Ok(())
    }

    /// Takes our entries away.
    ///
    /// # Errors
    /// Message with the cause; we seem alive for a while then.
    pub async fn leave(&mut self) -> Result<(), String> {
        let client = self.connection.client().await.map_err(|error| error_chain(&error))?;
        for known in self.known.values().filter(|known| known.written.is_some()) {
            apply(&client, &manager(&self.replica), &known.name, &json!({}))
                .await
                .map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }

    /// Our own entries may be overwritten by a namesake, never by a dead replica.
    fn is_contested(&self, objects: &[Value], instance: &str) -> bool {
        let ours = objects.iter().filter(|object| {
            let known = Head::of(object).and_then(|head| self.known.get(head.uid));
            known.is_some_and(|known| known.written.is_some())
        });
        let mut entries = ours.flat_map(|object| entry::entries(object).flatten());
        entries.any(|entry| entry.name == self.replica && entry.instance.is_some_and(|other| other != instance))
    }

    fn failed(&mut self, error: &KubeError) -> String {
        self.connection.failed(error);
        error_chain(error)
    }
}

/// Does one say what the other says, but for when?
fn says_the_same(one: &Replica, other: &Replica) -> bool {
    let timeless = |entry: &Replica| Replica { renewed: None, age_seconds: None, observed: None, ..entry.clone() };
    timeless(one) == timeless(other)
}

fn unfinalized(error: &KubeError) -> String {
    format!(
        "the finalizer {FINALIZER}: {}; or serve with --no-drain-finalizer, and objects go as soon as they are deleted",
        error_chain(error)
    )
}

/// Failure, and advice. An unknown resource is no wrong address here.
pub(super) fn error_chain(error: &KubeError) -> String {
    match error {
        KubeError::Refused { code: 404, .. } => {
            format!("{error}; install our kinds: gatepost crd | kubectl apply -f -")
        }
        _ => format!("{error}; {}", error.fix()),
    }
}

//! Configuration objects whose status holds the reports, and the finalizer that keeps an object until its hooks have
//! drained.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gatepost_api::schema::status::Replica;
use gatepost_kube_support::{KubeClient, KubeError, LeaseObserver, ReloadingClient};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::{
    ReplicaReport,
    publisher::HEARTBEAT,
    status::{self, ObjectFacts, REPLICA_TIMEOUT, ReplicaStatus, ReportShares},
};

/// API path of the configuration objects.
pub(crate) const CONFIGURATIONS: &str = "/apis/gatepost.dev/v1alpha1/admissioncontrolconfigurations";

/// Keeps an object that is deleted until its hooks have drained everywhere.
pub const FINALIZER: &str = "gatepost.dev/drain";
/// Owner of the finalizer in `managedFields`: the same for all replicas, as one sets it and another takes it away.
const DRAINER: &str = "gatepost-drain";
/// A field manager's name is no longer than 128 bytes.
const MAX_MANAGER_LENGTH: usize = 100;
/// Age at which the entry of a dead replica is removed.
const ENTRY_REMOVAL_AGE: Duration = Duration::from_secs(600);
/// Interval of publishing while something is under way.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one turn, all writes together.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The status of configuration objects: an entry of ours in each.
#[derive(Debug)]
pub struct StatusObjects {
    connection: ReloadingClient,
    replica: String,
    finalizer: bool,
    /// Objects by uid.
    known: HashMap<String, ObjectState>,
    liveness: Liveness,
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
        let (known, liveness) = (HashMap::new(), Liveness::default());
        Self { connection, replica: replica.to_owned(), finalizer, known, liveness, busy: false }
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        if self.busy { BUSY_INTERVAL } else { HEARTBEAT }
    }

    /// Publishes the report in every object, then sets finalizers, removes them and forgets dead replicas where that
    /// has become possible.
    ///
    /// # Errors
    /// First failure, and advice. The rest was done.
    pub async fn publish(&mut self, report: &ReplicaReport) -> Result<(), String> {
        let late = |_| Err(format!("the apiserver took longer than {}", humantime::format_duration(TURN_TIMEOUT)));
        timeout(TURN_TIMEOUT, self.turn(report)).await.unwrap_or_else(late)
    }

    async fn turn(&mut self, report: &ReplicaReport) -> Result<(), String> {
        let client = self.connection.client().await.map_err(|error| error_chain(&error))?;
        let listed = client.list(CONFIGURATIONS).await;
        let objects = listed.map_err(|error| self.failed(&error))?.items;
        self.liveness.observe(&objects);
        let mut report = report.clone();
        report.contested = self.is_contested(&objects, &report.instance);
        let heads: Vec<_> = objects.iter().filter_map(ObjectHead::of).collect();
        self.known.retain(|uid, _| heads.iter().any(|head| head.uid == uid));
        self.busy = false;
        let shares = ReportShares::new(&report, heads.iter().map(|head| (head.name, head.deleted)));
        let mut failure = None;
        for (object, head) in objects.iter().filter_map(|object| Some((object, ObjectHead::of(object)?))) {
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
        head: &ObjectHead<'_>,
        shares: &ReportShares<'_>,
        report: &ReplicaReport,
    ) -> Result<(), String> {
        let finalized = match self.finalizer && !head.deleted && status::hooks(object) > 0 && !head.is_held() {
            true => hold(client, head).await,
            false => Ok(()),
        };
        let own = self.entry(head, shares, report);
        let wrote = self.write(client, object, head, &own).await.map_err(|error| self.failed(&error))?;
        let status = ReplicaStatus::of(self.liveness.live(), object, &own);
        if !head.deleted {
            // The first replica that sees it writes it.
            if let Some(condition) = status.accepted(object, head.generation, &report.published) {
                let conditions = json!({ "conditions": [condition] });
                let judged = apply(client, "gatepost", head.name, &conditions).await;
                judged.map_err(|error| self.failed(&error))?;
            }
        } else if head.is_held() {
            // Our own write has moved the object on: its revision is known at the next turn.
            self.busy = true;
            if !wrote && status.has_drained() {
                release(client, head).await.map_err(|error| unfinalized(&error))?;
                tracing::info!(object = head.name, "its hooks have drained on every replica: removed the finalizer");
            }
        }
        self.forget_the_dead(client, object, head).await.map_err(|error| self.failed(&error))?;
        finalized.map_err(|error| unfinalized(&error))
    }

    /// Entry for this object.
    fn entry(&mut self, head: &ObjectHead<'_>, shares: &ReportShares<'_>, report: &ReplicaReport) -> Replica {
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
        shares.entry(ObjectFacts { name: head.name, generation: known.adopted, left: head.deleted && read })
    }

    /// Writes it, where it says something new or is due; true where it did.
    async fn write(
        &mut self,
        client: &KubeClient,
        object: &Value,
        head: &ObjectHead<'_>,
        own: &Replica,
    ) -> Result<bool, KubeError> {
        let Some(known) = self.known.get_mut(head.uid) else { return Ok(false) };
        let there =
            status::entries(object).flatten().any(|entry| entry.name == own.name && entry.instance == own.instance);
        let due = |at: &Instant| at.elapsed() + BUSY_INTERVAL >= HEARTBEAT;
        if there && known.written.as_ref().is_some_and(|(last, at)| differs_only_in_time(last, own) && !due(at)) {
            return Ok(false);
        }
        let replicas = json!({ "replicas": [own] });
        apply(client, &manager(&self.replica), head.name, &replicas).await?;
        known.written = Some((own.clone(), Instant::now()));
        Ok(true)
    }

    async fn forget_the_dead(
        &self,
        client: &KubeClient,
        object: &Value,
        head: &ObjectHead<'_>,
    ) -> Result<(), KubeError> {
        for entry in status::entries(object).flatten() {
            if self.liveness.is_forgotten(&entry.name) {
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
            let known = ObjectHead::of(object).and_then(|head| self.known.get(head.uid));
            known.is_some_and(|known| known.written.is_some())
        });
        let mut entries = ours.flat_map(|object| status::entries(object).flatten());
        entries.any(|entry| entry.name == self.replica && entry.instance.is_some_and(|other| other != instance))
    }

    fn failed(&mut self, error: &KubeError) -> String {
        self.connection.failed(error);
        error_chain(error)
    }
}

/// Does one say what the other says, but for when?
fn differs_only_in_time(one: &Replica, other: &Replica) -> bool {
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
pub(crate) fn error_chain(error: &KubeError) -> String {
    match error {
        KubeError::Refused { code: 404, .. } => {
            format!("{error}; install our kinds: gatepost crd | kubectl apply -f -")
        }
        _ => format!("{error}; {}", error.fix()),
    }
}

/// Part of an object's metadata that is of use here.
#[derive(Clone, Debug)]
pub(crate) struct ObjectHead<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    pub(crate) revision: &'a str,
    pub(crate) deleted: bool,
    finalizers: Vec<&'a str>,
}

impl<'a> ObjectHead<'a> {
    pub(crate) fn of(object: &'a Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let finalizers = metadata.get("finalizers").and_then(Value::as_array);
        Some(Self {
            name: text("name")?,
            uid: text("uid")?,
            generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or_default(),
            revision: text("resourceVersion").unwrap_or_default(),
            deleted: text("deletionTimestamp").is_some(),
            finalizers: finalizers.into_iter().flatten().filter_map(Value::as_str).collect(),
        })
    }

    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.contains(&FINALIZER)
    }

    fn finalizer_path(&self) -> String {
        format!("{}/{}?fieldManager={DRAINER}", CONFIGURATIONS, self.name)
    }
}

/// Field manager of an entry. Names may be longer than an apiserver takes.
pub(crate) fn manager(replica: &str) -> String {
    match replica.len() <= MAX_MANAGER_LENGTH {
        true => format!("gatepost-{replica}"),
        false => format!("gatepost-{}", hex(&Sha256::digest(replica))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes that our share of the object's status, as this field manager.
pub(crate) async fn apply(client: &KubeClient, manager: &str, name: &str, status: &Value) -> Result<(), KubeError> {
    let path = format!("{}/{name}/status", CONFIGURATIONS);
    let object = json!({
        "apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
        "metadata": { "name": name }, "status": status,
    });
    passed_over(client.apply_as(manager, &path, &object).await, &[404, 409])
}

/// Sets the finalizer, if the object is still as it was read.
pub(crate) async fn hold(client: &KubeClient, head: &ObjectHead<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = head.finalizers.iter().copied().chain([FINALIZER]).collect();
    let patch = json!({ "metadata": { "resourceVersion": head.revision, "finalizers": finalizers } });
    passed_over(client.patch(&head.finalizer_path(), "application/merge-patch+json", &patch).await, &[404, 409])
}

/// Takes the finalizer away, if the object is still as it was read.
pub(crate) async fn release(client: &KubeClient, head: &ObjectHead<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = head.finalizers.iter().copied().filter(|one| *one != FINALIZER).collect();
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": head.revision },
        { "op": "replace", "path": "/metadata/finalizers", "value": finalizers },
    ]);
    // 422: a test has failed.
    passed_over(client.patch(&head.finalizer_path(), "application/json-patch+json", &patch).await, &[404, 409, 422])
}

/// Result without the codes that mean that the object is gone, or was changed meanwhile: the next turn sees the new
/// state.
fn passed_over(outcome: Result<(), KubeError>, codes: &[u16]) -> Result<(), KubeError> {
    match outcome {
        Err(KubeError::Unwritten { code, .. }) if codes.contains(&code) => Ok(()),
        other => other,
    }
}

/// Renewals of the replicas' entries, as this replica observes them.
#[derive(Debug)]
struct Liveness {
    opened: Instant,
    renewals: LeaseObserver,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { opened: Instant::now(), renewals: LeaseObserver::default() }
    }
}

impl Liveness {
    /// Records the entries in the objects.
    fn observe(&mut self, objects: &[Value]) {
        let mut newest = BTreeMap::<String, String>::new();
        for entry in objects.iter().flat_map(|object| status::entries(object).flatten()) {
            let renewed = newest.entry(entry.name).or_default();
            *renewed = entry.renewed.unwrap_or_default().max(std::mem::take(renewed));
        }
        self.renewals.observe(self.opened.elapsed(), newest);
    }

    /// Names of the live replicas.
    fn live(&self) -> impl Iterator<Item = &str> {
        self.renewals.names().filter(|name| self.since_renewal(name) <= REPLICA_TIMEOUT)
    }

    /// Has the replica been dead for so long that its entries are removed?
    fn is_forgotten(&self, name: &str) -> bool {
        self.since_renewal(name) > ENTRY_REMOVAL_AGE
    }

    fn since_renewal(&self, name: &str) -> Duration {
        self.renewals.since_renewal(self.opened.elapsed(), name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(entries: &[(&str, &str)]) -> Value {
        let entry = |(name, renewed): &(&str, &str)| {
            json!({
                "name": name, "instance": "1", "version": "0.1.0", "generation": 1, "renewed": renewed,
            })
        };
        json!({ "status": { "replicas": entries.iter().map(entry).collect::<Vec<_>>() } })
    }

    #[tokio::test(start_paused = true)]
    async fn replica_without_renewal_is_dead_whatever_its_clock_says() {
        let mut heard = Liveness::default();
        let live = |heard: &Liveness| heard.live().map(str::to_owned).collect::<Vec<_>>();
        heard.observe(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:00Z")])]);
        tokio::time::advance(REPLICA_TIMEOUT).await;
        assert_eq!(live(&heard), ["a", "b"]);
        heard.observe(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:05Z")])]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(live(&heard), ["b"], "a has said nothing new");

        tokio::time::advance(ENTRY_REMOVAL_AGE - REPLICA_TIMEOUT - Duration::from_secs(1)).await;
        assert!(!heard.is_forgotten("a"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(heard.is_forgotten("a") && !heard.is_forgotten("b") && !heard.is_forgotten("nobody"));
    }
}

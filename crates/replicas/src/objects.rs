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

/// Finalizer that keeps a deleted object until its hooks have drained on every replica.
pub const FINALIZER: &str = "gatepost.dev/drain";
/// Field manager of the finalizer. All replicas share it, because one adds the finalizer and another removes it.
const FINALIZER_MANAGER: &str = "gatepost-drain";
/// Maximum length of a replica's name in a field manager, in bytes. A field manager has at most 128 bytes.
const MAX_MANAGER_LENGTH: usize = 100;
/// Age at which the entry of a dead replica is removed.
const ENTRY_REMOVAL_AGE: Duration = Duration::from_secs(600);
/// Publishing interval while a read, or the removal of a finalizer, is pending.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one turn, including all writes.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Publisher in the status of configuration objects. Each object has an entry of this replica.
#[derive(Debug)]
pub struct StatusObjects {
    connection: ReloadingClient,
    replica: String,
    finalizer: bool,
    /// Known objects, by uid.
    known: HashMap<String, ObjectState>,
    liveness: Liveness,
    /// A read, or the removal of a finalizer, is pending.
    busy: bool,
}

/// State of one object between turns.
#[derive(Debug)]
struct ObjectState {
    name: String,
    /// Newest generation, and the store's revision at which it was first observed. A replica that has read that
    /// revision has read this generation.
    generation: (i64, u64),
    /// Generation in force here.
    adopted: Option<i64>,
    written: Option<(Replica, Instant)>,
}

impl StatusObjects {
    /// Creates a publisher that has not published yet.
    pub fn new(connection: ReloadingClient, replica: &str, finalizer: bool) -> Self {
        let (known, liveness) =
            (HashMap::new(), Liveness { opened: Instant::now(), renewals: LeaseObserver::default() });
        Self { connection, replica: replica.to_owned(), finalizer, known, liveness, busy: false }
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        if self.busy { BUSY_INTERVAL } else { HEARTBEAT }
    }

    /// Publishes the report in every object. Then adds or removes finalizers, and removes entries of dead replicas,
    /// where possible.
    ///
    /// # Errors
    /// Message with the first failure and its fix. The other objects are updated nevertheless.
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
        let metas: Vec<_> = objects.iter().filter_map(ObjectMeta::of).collect();
        self.known.retain(|uid, _| metas.iter().any(|meta| meta.uid == uid));
        self.busy = false;
        let shares = ReportShares::new(&report, metas.iter().map(|meta| (meta.name, meta.deleted)));
        let mut failure = None;
        for (object, meta) in objects.iter().filter_map(|object| Some((object, ObjectMeta::of(object)?))) {
            if let Err(why) = self.update_object(&client, object, &meta, &shares, &report).await {
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

    async fn update_object(
        &mut self,
        client: &KubeClient,
        object: &Value,
        meta: &ObjectMeta<'_>,
        shares: &ReportShares<'_>,
        report: &ReplicaReport,
    ) -> Result<(), String> {
        let finalized = match self.finalizer && !meta.deleted && status::hooks(object) > 0 && !meta.has_finalizer() {
            true => add_finalizer(client, meta).await,
            false => Ok(()),
        };
        let own = self.entry(meta, shares, report);
        let wrote = self.write(client, object, meta, &own).await.map_err(|error| self.failed(&error))?;
        let status = ReplicaStatus::of(self.liveness.live(), object, &own);
        if !meta.deleted {
            // The first replica to observe the condition writes it.
            if let Some(condition) = status.accepted(object, meta.generation, &report.published) {
                let conditions = json!({ "conditions": [condition] });
                let judged = apply(client, "gatepost", meta.name, &conditions).await;
                judged.map_err(|error| self.failed(&error))?;
            }
        } else if meta.has_finalizer() {
            // Our own write has changed the object. Its new revision is known at the next turn.
            self.busy = true;
            if !wrote && status.has_drained() {
                remove_finalizer(client, meta).await.map_err(|error| finalizer_error(&error))?;
                tracing::info!(object = meta.name, "its hooks have drained on every replica: removed the finalizer");
            }
        }
        self.remove_dead_entries(client, object, meta).await.map_err(|error| self.failed(&error))?;
        finalized.map_err(|error| finalizer_error(&error))
    }

    /// Updates the state of the object, and returns this replica's entry for it.
    fn entry(&mut self, meta: &ObjectMeta<'_>, shares: &ReportShares<'_>, report: &ReplicaReport) -> Replica {
        let revision = meta.revision.parse().unwrap_or(u64::MAX);
        let fresh = || ObjectState {
            name: meta.name.to_owned(),
            generation: (meta.generation, revision),
            adopted: None,
            written: None,
        };
        let known = self.known.entry(meta.uid.to_owned()).or_insert_with(fresh);
        if known.generation.0 != meta.generation {
            known.generation = (meta.generation, revision);
        }
        let read = report.observed.is_some_and(|observed| observed >= known.generation.1);
        if read && shares.is_in_force(meta.name) {
            known.adopted = Some(meta.generation);
        }
        self.busy |= !read;
        shares.entry(ObjectFacts { name: meta.name, generation: known.adopted, left: meta.deleted && read })
    }

    /// Writes the entry if it has changed or is due for renewal. Returns true if it was written.
    async fn write(
        &mut self,
        client: &KubeClient,
        object: &Value,
        meta: &ObjectMeta<'_>,
        own: &Replica,
    ) -> Result<bool, KubeError> {
        let Some(known) = self.known.get_mut(meta.uid) else { return Ok(false) };
        let there =
            status::entries(object).flatten().any(|entry| entry.name == own.name && entry.instance == own.instance);
        let due = |at: &Instant| at.elapsed() + BUSY_INTERVAL >= HEARTBEAT;
        if there && known.written.as_ref().is_some_and(|(last, at)| differs_only_in_time(last, own) && !due(at)) {
            return Ok(false);
        }
        let replicas = json!({ "replicas": [own] });
        apply(client, &manager(&self.replica), meta.name, &replicas).await?;
        known.written = Some((own.clone(), Instant::now()));
        Ok(true)
    }

    async fn remove_dead_entries(
        &self,
        client: &KubeClient,
        object: &Value,
        meta: &ObjectMeta<'_>,
    ) -> Result<(), KubeError> {
        for entry in status::entries(object).flatten() {
            if self.liveness.since_renewal(&entry.name) > ENTRY_REMOVAL_AGE {
                apply(client, &manager(&entry.name), meta.name, &json!({})).await?;
            }
        }
        Ok(())
    }

    /// Removes this replica's entries.
    ///
    /// # Errors
    /// Message with the cause. The replica then seems alive until its entries expire.
    pub async fn leave(&mut self) -> Result<(), String> {
        let client = self.connection.client().await.map_err(|error| error_chain(&error))?;
        for known in self.known.values().filter(|known| known.written.is_some()) {
            let left = apply(&client, &manager(&self.replica), &known.name, &json!({})).await;
            left.map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }

    /// Returns true if another replica of the same name has overwritten our entries. A dead replica overwrites none.
    fn is_contested(&self, objects: &[Value], instance: &str) -> bool {
        let ours = objects.iter().filter(|object| {
            let known = ObjectMeta::of(object).and_then(|meta| self.known.get(meta.uid));
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

/// Returns true if the entries differ at most in renewal time, age and observed revision.
fn differs_only_in_time(one: &Replica, other: &Replica) -> bool {
    let timeless = |entry: &Replica| Replica { renewed: None, age_seconds: None, observed: None, ..entry.clone() };
    timeless(one) == timeless(other)
}

fn finalizer_error(error: &KubeError) -> String {
    format!(
        "the finalizer {FINALIZER}: {}; or serve with --no-drain-finalizer, and objects go as soon as they are deleted",
        error_chain(error)
    )
}

/// Returns the failure and its fix. Here, a 404 means that our kinds are not installed.
pub(crate) fn error_chain(error: &KubeError) -> String {
    match error {
        KubeError::Refused { code: 404, .. } => {
            format!("{error}; install our kinds: gatepost crd | kubectl apply -f -")
        }
        _ => format!("{error}; {}", error.fix()),
    }
}

/// Part of an object's metadata.
#[derive(Clone, Debug)]
pub(crate) struct ObjectMeta<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    pub(crate) revision: &'a str,
    pub(crate) deleted: bool,
    finalizers: Vec<&'a str>,
}

impl<'a> ObjectMeta<'a> {
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

    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.contains(&FINALIZER)
    }

    fn finalizer_path(&self) -> String {
        format!("{}/{}?fieldManager={FINALIZER_MANAGER}", CONFIGURATIONS, self.name)
    }
}

/// Returns the field manager of a replica's entry. A digest replaces a long name, as apiservers limit the length.
pub(crate) fn manager(replica: &str) -> String {
    match replica.len() <= MAX_MANAGER_LENGTH {
        true => format!("gatepost-{replica}"),
        false => {
            let digest = Sha256::digest(replica);
            format!("gatepost-{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
    }
}

/// Applies that part of the object's status as this field manager.
pub(crate) async fn apply(client: &KubeClient, manager: &str, name: &str, status: &Value) -> Result<(), KubeError> {
    let path = format!("{}/{name}/status", CONFIGURATIONS);
    let object = json!({
        "apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
        "metadata": { "name": name }, "status": status,
    });
    ignore_codes(client.apply_as(manager, &path, &object).await, &[404, 409])
}

/// Adds the finalizer if the object is unchanged since it was read.
pub(crate) async fn add_finalizer(client: &KubeClient, meta: &ObjectMeta<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = meta.finalizers.iter().copied().chain([FINALIZER]).collect();
    let patch = json!({ "metadata": { "resourceVersion": meta.revision, "finalizers": finalizers } });
    ignore_codes(client.patch(&meta.finalizer_path(), "application/merge-patch+json", &patch).await, &[404, 409])
}

/// Removes the finalizer if the object is unchanged since it was read.
pub(crate) async fn remove_finalizer(client: &KubeClient, meta: &ObjectMeta<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = meta.finalizers.iter().copied().filter(|one| *one != FINALIZER).collect();
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": meta.revision },
        { "op": "replace", "path": "/metadata/finalizers", "value": finalizers },
    ]);
    // 422: a test of the patch has failed.
    ignore_codes(client.patch(&meta.finalizer_path(), "application/json-patch+json", &patch).await, &[404, 409, 422])
}

/// Ignores errors with these codes, which mean that the object is gone or has changed. The next turn reads the new
/// state.
fn ignore_codes(outcome: Result<(), KubeError>, codes: &[u16]) -> Result<(), KubeError> {
    match outcome {
        Err(KubeError::WriteRefused { code, .. }) if codes.contains(&code) => Ok(()),
        other => other,
    }
}

/// Renewals of the replicas' entries, as observed by this replica.
#[derive(Debug)]
struct Liveness {
    opened: Instant,
    renewals: LeaseObserver,
}

impl Liveness {
    /// Records the renewals of the entries in the objects.
    fn observe(&mut self, objects: &[Value]) {
        let mut newest = BTreeMap::<String, String>::new();
        for entry in objects.iter().flat_map(|object| status::entries(object).flatten()) {
            let renewed = newest.entry(entry.name).or_default();
            *renewed = entry.renewed.unwrap_or_default().max(std::mem::take(renewed));
        }
        self.renewals.observe(self.opened.elapsed(), newest);
    }

    /// Returns the names of the live replicas.
    fn live(&self) -> impl Iterator<Item = &str> {
        self.renewals.names().filter(|name| self.since_renewal(name) <= REPLICA_TIMEOUT)
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
        let mut liveness = Liveness { opened: Instant::now(), renewals: LeaseObserver::default() };
        let live = |liveness: &Liveness| liveness.live().map(str::to_owned).collect::<Vec<_>>();
        liveness.observe(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:00Z")])]);
        tokio::time::advance(REPLICA_TIMEOUT).await;
        assert_eq!(live(&liveness), ["a", "b"]);
        liveness.observe(&[object(&[("a", "2099-01-01T00:00:00Z"), ("b", "1999-01-01T00:00:05Z")])]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(live(&liveness), ["b"], "a has said nothing new");

        tokio::time::advance(ENTRY_REMOVAL_AGE - REPLICA_TIMEOUT - Duration::from_secs(1)).await;
        assert!(liveness.since_renewal("a") <= ENTRY_REMOVAL_AGE);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            liveness.since_renewal("a") > ENTRY_REMOVAL_AGE
                && liveness.since_renewal("b") <= ENTRY_REMOVAL_AGE
                && liveness.since_renewal("nobody") <= ENTRY_REMOVAL_AGE
        );
    }
}

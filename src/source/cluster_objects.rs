//! ClusterReader: reads whole objects that policies need from the apiserver.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::live::{
    ClusterObjects,
    cluster_objects::{
        ClusterRead, FoundObjects, MAX_READ_TIME, ObjectQuery, ObjectsError, ObjectsResult, ParamSelection,
    },
};
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_kube_support::{FailureLog, KubeAccess, KubeClient, KubeError, ReloadingClient, object_path};

/// Maximum number of concurrent reads; others wait within the deadlines of their requests.
const MAX_CONCURRENT_READS: usize = 16;
/// Maximum size in bytes of the params that a binding selects by labels.
const MAX_LIST_BYTES: usize = 8 << 20;
/// Time for which the resource of a kind is remembered.
const RESOURCE_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum number of remembered resources.
const MAX_RESOURCES: usize = 1024;

/// Error for the requester. The full error names the apiserver's address and our account, so it is only logged.
const UNREAD: &str = "the apiserver gave no answer, and the log of Gatepost says why";

fn unread() -> ObjectsError {
    ObjectsError::Unread(UNREAD.to_owned())
}

/// Requests that wait for the result of one read.
type Waiting = Vec<oneshot::Sender<ObjectsResult>>;

/// Resource of a kind of objects.
#[derive(Clone, Debug)]
struct KindResource {
    plural: String,
    is_namespaced: bool,
}

/// Group version and kind.
type Kind = (Box<str>, Box<str>);

/// Result of one read, and the resource of the kind if that was looked up.
struct ReadEnd {
    query: ObjectQuery,
    began: Moment,
    result: Result<FoundObjects, ReadFailure>,
    resource: Option<(Kind, KindResource)>,
}

/// Reason why objects were not read.
#[derive(Debug)]
enum ReadFailure {
    /// The apiserver did not answer.
    Kube(KubeError),
    /// It did, and there are no such objects.
    None(ObjectsError),
}

impl From<KubeError> for ReadFailure {
    fn from(error: KubeError) -> Self {
        match error {
            // Reading it again would not help.
            KubeError::TooLarge { .. } => Self::None(ObjectsError::Unusable("the objects are too large".to_owned())),
            error => Self::Kube(error),
        }
    }
}

/// Loop that reads objects of a cluster for policies. Each object is read by one request at a time.
#[derive(Debug)]
pub struct ClusterReader {
    connection: ReloadingClient,
    objects: Arc<ClusterObjects>,
    reads: mpsc::Receiver<ClusterRead>,
    resources: HashMap<Kind, (KindResource, Instant)>,
    log: FailureLog,
}

impl ClusterReader {
    /// Creates the loop for a cluster. Connects to nothing before [`ClusterReader::run`].
    ///
    /// # Errors
    /// Returns an error if the address or the credentials cannot be read.
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        let (objects, reads) = ClusterObjects::new();
        let connection = ReloadingClient::new(access).await?;
        Ok(Self { connection, objects, reads, resources: HashMap::new(), log: FailureLog::default() })
    }

    /// Returns the objects that requests use.
    pub fn objects(&self) -> Arc<ClusterObjects> {
        Arc::clone(&self.objects)
    }

    /// Reads objects until dropped.
    pub async fn run(mut self) {
        let (mut reading, mut waiting) = (JoinSet::new(), HashMap::<ObjectQuery, Waiting>::new());
        let mut running = HashMap::new();
        loop {
            tokio::select! {
                Some(ended) = reading.join_next_with_id(), if !reading.is_empty() => match ended {
                    Ok((id, end)) => {
                        running.remove(&id);
                        self.finish(end, &mut waiting);
                    }
                    // A bug of ours: a read that panicked must not hold up later ones of the same objects.
                    Err(panic) => {
                        let waiting = running.remove(&panic.id()).and_then(|query| waiting.remove(&query));
                        let requesters = waiting.unwrap_or_default();
                        requesters.into_iter().for_each(|answer| _ = answer.send(Err(unread())));
                    }
                },
                read = self.reads.recv(), if reading.len() < MAX_CONCURRENT_READS => {
                    // `self.objects` has a sender, so the channel is never closed.
                    let Some(ClusterRead { query, answer }) = read else { return };
                    if let Some(others) = waiting.get_mut(&query) {
                        others.extend(answer);
                        continue;
                    }
                    match self.connection.recent_client().await {
                        Ok(client) => {
                            let known = self.known_resource(&query);
                            let task = reading.spawn(read_objects(client, query.clone(), known));
                            running.insert(task.id(), query.clone());
                            waiting.insert(query, answer.into_iter().collect());
                        }
                        Err(error) => {
                            answer.into_iter().for_each(|answer| _ = answer.send(Err(unread())));
                            self.report(Err(error));
                        }
                    }
                }
            }
        }
    }

    fn known_resource(&self, query: &ObjectQuery) -> Option<KindResource> {
        let ObjectQuery::Params { api_version, kind, .. } = query else { return None };
        let (resource, since) = self.resources.get(&(api_version.clone(), kind.clone()))?;
        (since.elapsed() < RESOURCE_LIFETIME).then(|| resource.clone())
    }

    /// Caches the result of a read, and answers the requests that wait for it.
    fn finish(&mut self, end: ReadEnd, waiting: &mut HashMap<ObjectQuery, Waiting>) {
        let ReadEnd { query, began, result, resource } = end;
        if let Some((kind, resource)) = resource {
            if self.resources.len() >= MAX_RESOURCES {
                self.resources.clear();
            }
            self.resources.insert(kind, (resource, Instant::now()));
        }
        let answer = match result {
            Ok(objects) => {
                self.objects.keep(query.clone(), Arc::clone(&objects), began);
                self.report(Ok(()));
                Ok(objects)
            }
            Err(ReadFailure::None(why)) => Err(why),
            Err(ReadFailure::Kube(error)) => {
                self.report(Err(error));
                Err(unread())
            }
        };
        for requester in waiting.remove(&query).unwrap_or_default() {
            let _ = requester.send(answer.clone());
        }
    }

    /// Logs changes of the outcome.
    fn report(&mut self, outcome: Result<(), KubeError>) {
        match outcome {
            Ok(()) => self.log.recovered("objects that policies read can be read again"),
            Err(failure) => {
                self.connection.failed(&failure);
                let lost = "cannot read an object that a policy needs; after five minutes the failure policy decides";
                self.log.failed(lost, failure);
            }
        }
    }
}

/// Reads the objects of one query, for at most [`MAX_READ_TIME`].
async fn read_objects(client: KubeClient, query: ObjectQuery, known: Option<KindResource>) -> ReadEnd {
    let began = Moment::now(suspended_time);
    let (result, resource) = match timeout(MAX_READ_TIME, find_objects(&client, &query, known)).await {
        Ok(end) => end,
        Err(_) => {
            let (server, patience) = (client.server().to_owned(), MAX_READ_TIME);
            (Err(ReadFailure::Kube(KubeError::TimedOut { server, patience })), None)
        }
    };
    ReadEnd { query, began, result, resource }
}

async fn find_objects(
    client: &KubeClient,
    query: &ObjectQuery,
    known: Option<KindResource>,
) -> (Result<FoundObjects, ReadFailure>, Option<(Kind, KindResource)>) {
    match query {
        ObjectQuery::Namespace(name) => match client.find("/api/v1/namespaces", name).await {
            Ok(found) => {
                (Ok(found.map(|object| json(&namespace_for_expressions(&object))).into_iter().collect()), None)
            }
            Err(error) => (Err(error.into()), None),
        },
        ObjectQuery::Params { api_version, kind, namespace, is_namespace_given, which } => {
            let found = match known {
                Some(known) => Ok(known),
                None => resource_of(client, api_version, kind).await,
            };
            match found {
                Ok(found) => {
                    let result = match params_path(&version_path(api_version), &found, namespace, *is_namespace_given) {
                        Ok(path) => read_params(client, &path, (api_version, kind), which).await,
                        Err(why) => Err(ReadFailure::None(why)),
                    };
                    (result, Some(((api_version.clone(), kind.clone()), found)))
                }
                Err(failure) => (Err(failure), None),
            }
        }
    }
}

fn json(value: &Value) -> Bytes {
    value.to_string().into()
}

/// Returns the path of the resources of a group version.
fn version_path(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// Looks up the resource of a kind.
async fn resource_of(client: &KubeClient, api_version: &str, kind: &str) -> Result<KindResource, ReadFailure> {
    let list = match client.get(&version_path(api_version)).await {
        Err(KubeError::Refused { code: 404, .. }) => Value::Null,
        list => list?,
    };
    let resources = list["resources"].as_array().into_iter().flatten();
    let mut own = resources.filter(|resource| resource["kind"] == kind);
    let found = own.find_map(|resource| {
        let plural = resource["name"].as_str().filter(|name| !name.contains('/'))?.to_owned();
        Some(KindResource { plural, is_namespaced: resource["namespaced"] == true })
    });
    found.ok_or_else(|| ReadFailure::None(ObjectsError::unknown_kind(api_version, kind)))
}

/// Returns the path of the params in this namespace.
fn params_path(
    version: &str,
    resource: &KindResource,
    namespace: &str,
    is_namespace_given: bool,
) -> Result<String, ObjectsError> {
    ObjectsError::check_namespace(resource.is_namespaced, namespace, is_namespace_given)?;
    Ok(match resource.is_namespaced {
        true => object_path(&format!("{version}/namespaces"), namespace) + "/" + &resource.plural,
        false => format!("{version}/{}", resource.plural),
    })
}

async fn read_params(
    client: &KubeClient,
    path: &str,
    (api_version, kind): (&str, &str),
    which: &ParamSelection,
) -> Result<FoundObjects, ReadFailure> {
    let objects = match which {
        ParamSelection::Name(name) => client.find(path, name).await?.into_iter().collect(),
        ParamSelection::Selector(selector) => client.list_labelled(path, selector, MAX_LIST_BYTES).await?.items,
    };
    // The items of a list do not repeat their kind.
    let with_kind = |mut object: Value| {
        let Some(members) = object.as_object_mut() else {
            let why = "the apiserver's answer for a param is not an object";
            return Err(ReadFailure::None(ObjectsError::Unusable(why.to_owned())));
        };
        members.insert("apiVersion".to_owned(), api_version.into());
        members.insert("kind".to_owned(), kind.into());
        Ok(json(&object))
    };
    objects.into_iter().map(with_kind).collect()
}

/// Returns a namespace with the fields that expressions can read. Source: `CreateNamespaceObject` in
/// `k8s.io/apiserver/pkg/admission/plugin/cel/condition.go`.
fn namespace_for_expressions(object: &Value) -> Value {
    const METADATA: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "uid",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "resourceVersion",
        "finalizers",
    ];
    let metadata = METADATA.iter().filter_map(|key| Some(((*key).to_owned(), object["metadata"].get(key)?.clone())));
    let metadata: serde_json::Map<String, Value> = metadata.collect();
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata,
        "spec": object.get("spec").unwrap_or(&Value::Null),
        "status": object.get("status").unwrap_or(&Value::Null),
    })
}

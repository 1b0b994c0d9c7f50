//! ClusterObjects: whole objects of the cluster that policies read: their params, and namespaces.
//!
//! An object is read from the apiserver when a request first needs it, and then kept. A kept object that is older than
//! [`FRESH_FOR`] is read again in the background when it is used. One that is older than [`STALE_AFTER`] is read again
//! before it is used. If that fails, the kept state is used until [`KEPT_FOR`]; after that the failure policy of the
//! policy decides.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout_at,
};

use gatepost_base::clock::{Moment, suspended_time};
use gatepost_policy::{ParamKind, ParamRef, ParamSelector};

/// Age below which an object is used as it is.
pub const FRESH_FOR: Duration = Duration::from_secs(1);
/// Age from which an object is not used before it has been read again; that of a stale configuration.
pub const STALE_AFTER: Duration = super::STALE_AFTER;
/// Age until which an object is used while it cannot be read.
pub const KEPT_FOR: Duration = Duration::from_secs(300);

/// Maximum duration of one read; requests wait for less.
pub const MAX_READ_TIME: Duration = Duration::from_secs(5);

/// Maximum number of reads that can wait in the queue.
const MAX_QUEUED_READS: usize = 1024;
/// Maximum size in bytes of all kept objects.
const MAX_KEPT_BYTES: u64 = 32 << 20;
/// Expected number of objects. The cache divides its bytes evenly among shards of 32 objects or more, and a shard keeps
/// nothing that is larger than its part: so there must be only one.
const EXPECTED_OBJECTS: usize = 32;

/// Objects that a policy reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectQuery {
    /// The namespace of this name, with the fields that expressions can read.
    Namespace(Box<str>),
    /// Params of a policy.
    Params {
        /// Group and version of their kind.
        api_version: Box<str>,
        /// Their kind.
        kind: Box<str>,
        /// Their namespace, if they are in one: that of the binding or, without one, that of the request, if any.
        namespace: Box<str>,
        /// True if the binding names the namespace.
        is_namespace_given: bool,
        /// Selection among them.
        which: ParamSelection,
    },
}

impl ObjectQuery {
    /// Returns the query for the params of a binding, for requests in this namespace ("" outside of any).
    pub fn params(kind: &ParamKind, param: &ParamRef, namespace: &str) -> Self {
        Self::Params {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            namespace: param.namespace.clone().unwrap_or_else(|| namespace.into()),
            is_namespace_given: param.namespace.is_some(),
            which: match &param.which {
                ParamSelector::Name(name) => ParamSelection::Name(name.clone()),
                ParamSelector::Labels(selector) => ParamSelection::Selector(selector.to_string().into()),
            },
        }
    }
}

/// Selection of params.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ParamSelection {
    /// The object of this name.
    Name(Box<str>),
    /// Objects with matching labels; the selector is in the syntax of kubectl.
    Selector(Box<str>),
}

/// Objects as JSON. Empty if there is none.
pub type FoundObjects = Arc<[Bytes]>;

/// Reason why there are no objects, as clients read it: without addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectsError {
    /// The kind of the params is not served: no binding of the policy can be evaluated.
    UnknownKind(String),
    /// These params do not fit the binding.
    Unusable(String),
    /// The cluster was not read. Only then is a kept state used.
    Unread(String),
}

impl ObjectsError {
    /// Error of params whose kind is not served, in upstream's words.
    pub fn unknown_kind(api_version: &str, kind: &str) -> Self {
        Self::UnknownKind(format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"))
    }

    /// Checks that params of a kind that is namespaced, or not, can be in this namespace: "" for a request outside of
    /// namespaces, unless the binding names one (`is_given`).
    ///
    /// # Errors
    /// They cannot. The message is upstream's: `CollectParams` in
    /// `k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go`.
    pub fn check_namespace(is_namespaced: bool, namespace: &str, is_given: bool) -> Result<(), Self> {
        let why = match (is_namespaced, namespace) {
            (true, "") => "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
            (false, _) if is_given => "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
            _ => return Ok(()),
        };
        Err(Self::Unusable(why.to_owned()))
    }
}

impl fmt::Display for ObjectsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::UnknownKind(why) | Self::Unusable(why) | Self::Unread(why)) = self;
        f.write_str(why)
    }
}

/// Result of a read.
pub type ObjectsResult = Result<FoundObjects, ObjectsError>;

/// One read of objects, for the task that sends it to the apiserver.
#[derive(Debug)]
pub struct ClusterRead {
    /// Objects to read.
    pub query: ObjectQuery,
    /// Sender of the result; `None` if no request waits for it.
    pub answer: Option<oneshot::Sender<ObjectsResult>>,
}

#[derive(Clone, Debug)]
struct KeptObjects {
    objects: FoundObjects,
    read: Moment,
}

/// Weighs an entry by its size in bytes.
#[derive(Clone, Debug)]
struct Size;

impl Weighter<ObjectQuery, KeptObjects> for Size {
    fn weight(&self, _: &ObjectQuery, kept: &KeptObjects) -> u64 {
        const ENTRY: usize = 256;
        (ENTRY + kept.objects.iter().map(Bytes::len).sum::<usize>()) as u64
    }
}

/// Objects of one cluster. The task that owns the receiver reads them.
pub struct ClusterObjects {
    kept: Cache<ObjectQuery, KeptObjects, Size>,
    reads: mpsc::Sender<ClusterRead>,
}

impl fmt::Debug for ClusterObjects {
    /// Omits the objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterObjects").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl ClusterObjects {
    /// Creates an empty cache, and the receiver of the reads.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<ClusterRead>) {
        let (reads, receiver) = mpsc::channel(MAX_QUEUED_READS);
        let kept = Cache::with_weighter(EXPECTED_OBJECTS, MAX_KEPT_BYTES, Size);
        (Arc::new(Self { kept, reads }), receiver)
    }

    /// Returns objects that need not be waited for.
    pub fn at_hand(&self, query: &ObjectQuery) -> Option<FoundObjects> {
        let kept = self.kept.get(query)?;
        let age = Moment::now(suspended_time).since(kept.read);
        // An object that did not exist may have been created since, right before the request that needs it.
        if age >= STALE_AFTER || kept.objects.is_empty() {
            return None;
        }
        if age >= FRESH_FOR {
            // If the queue is full, the next use requests the read again.
            let _ = self.reads.try_send(ClusterRead { query: query.clone(), answer: None });
        }
        Some(kept.objects)
    }

    /// Returns objects that are not stale, or a kept state if they cannot be read before `until`.
    ///
    /// # Errors
    /// Returns a message if they cannot be read, and there is no kept state, or it is too old.
    pub async fn read(&self, query: &ObjectQuery, until: Instant) -> ObjectsResult {
        if let Some(objects) = self.at_hand(query) {
            return Ok(objects);
        }
        let (answer, answered) = oneshot::channel();
        let read = ClusterRead { query: query.clone(), answer: Some(answer) };
        let unread = |why: &str| Err(ObjectsError::Unread(why.to_owned()));
        let result = match self.reads.try_send(read) {
            Err(_) => unread("too many objects of the cluster are read at once"),
            Ok(()) => match timeout_at(until.into(), answered).await {
                Ok(result) => result.unwrap_or_else(|_| unread("the cluster reader has stopped")),
                Err(_) => unread("the apiserver did not answer in time"),
            },
        };
        match (result, self.kept.get(query)) {
            (Err(ObjectsError::Unread(_)), Some(kept)) if Moment::now(suspended_time).since(kept.read) < KEPT_FOR => {
                Ok(kept.objects)
            }
            (result, _) => result,
        }
    }

    /// Keeps objects as they were at `read`.
    pub fn keep(&self, query: ObjectQuery, objects: FoundObjects, read: Moment) {
        self.kept.insert(query, KeptObjects { objects, read });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str) -> ObjectQuery {
        ObjectQuery::Namespace(name.into())
    }

    fn objects(text: &'static str) -> FoundObjects {
        [Bytes::from_static(text.as_bytes())].into()
    }

    fn ago(age: Duration) -> Moment {
        let now = Moment::now(suspended_time);
        Moment { instant: now.instant.checked_sub(age).unwrap(), ..now }
    }

    #[tokio::test]
    async fn a_fresh_object_is_used_and_an_older_one_is_also_read_again() {
        let (cluster, mut reads) = ClusterObjects::new();
        cluster.keep(query("a"), objects("1"), ago(Duration::ZERO));
        assert_eq!(cluster.at_hand(&query("a")), Some(objects("1")));
        assert!(reads.try_recv().is_err(), "it is fresh");
        cluster.keep(query("a"), objects("1"), ago(FRESH_FOR));
        assert_eq!(cluster.at_hand(&query("a")), Some(objects("1")));
        let read = reads.try_recv().unwrap();
        assert!(read.query == query("a") && read.answer.is_none());
    }

    /// Reads an object that was kept so long ago, while the apiserver answers, or never does.
    async fn read_after(age: Duration, answer: Option<ObjectsResult>) -> ObjectsResult {
        let (cluster, mut reads) = ClusterObjects::new();
        cluster.keep(query("a"), objects("old"), ago(age));
        let reader = async {
            let waiting = reads.recv().await.unwrap().answer.unwrap();
            match answer {
                Some(answer) => drop(waiting.send(answer)),
                // The request waits in vain.
                None => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        };
        let until = tokio::time::Instant::now().into_std() + Duration::from_secs(1);
        let query = query("a");
        tokio::join!(cluster.read(&query, until), reader).0
    }

    #[tokio::test(start_paused = true)]
    async fn stale_object_is_used_only_while_unreadable_and_bounded() {
        let down = || Some(Err(ObjectsError::Unread("down".into())));
        assert_eq!(read_after(STALE_AFTER, Some(Ok(objects("new")))).await, Ok(objects("new")));
        assert_eq!(read_after(STALE_AFTER, down()).await, Ok(objects("old")));
        assert_eq!(read_after(STALE_AFTER, None).await, Ok(objects("old")));
        assert_eq!(read_after(KEPT_FOR, down()).await, Err(ObjectsError::Unread("down".into())));
        let late = ObjectsError::Unread("the apiserver did not answer in time".into());
        assert_eq!(read_after(KEPT_FOR, None).await, Err(late));
    }

    #[tokio::test(start_paused = true)]
    async fn cached_object_is_dropped_once_the_cluster_has_none() {
        let none = ObjectsError::UnknownKind("no such kind".into());
        assert_eq!(read_after(STALE_AFTER, Some(Err(none.clone()))).await, Err(none));
    }

    #[test]
    fn a_list_of_many_bytes_is_kept() {
        let (cluster, _reads) = ClusterObjects::new();
        let large: FoundObjects = vec![Bytes::from(vec![b' '; MAX_KEPT_BYTES as usize / 2])].into();
        cluster.keep(query("a"), Arc::clone(&large), ago(Duration::ZERO));
        assert_eq!(cluster.at_hand(&query("a")), Some(large));
    }

    #[test]
    fn an_object_that_did_not_exist_is_read_again() {
        let (cluster, _reads) = ClusterObjects::new();
        cluster.keep(query("a"), Arc::default(), ago(Duration::ZERO));
        assert_eq!(cluster.at_hand(&query("a")), None);
    }

    #[tokio::test]
    async fn no_more_reads_wait_than_there_is_room_for() {
        let (cluster, reads) = ClusterObjects::new();
        for _ in 0..MAX_QUEUED_READS {
            cluster.reads.try_send(ClusterRead { query: query("a"), answer: None }).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(60);
        assert_eq!(
            cluster.read(&query("b"), until).await,
            Err(ObjectsError::Unread("too many objects of the cluster are read at once".to_owned()))
        );
        drop(reads);
    }
}

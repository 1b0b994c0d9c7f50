//! Follow: marked objects of one resource as an apiserver serves it, from a list and its changes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::telemetry::UnreadableObjects;
use gatepost_api::initialization::PENDING_LABEL;
use gatepost_initializers::{Initializers, Marks, marks::MarkedObject as MarksObject, unfinished::StoredObject};
use gatepost_kube_support::{FollowEvent, FollowHandler, FollowTarget, KubeClient, KubeError, created, follow};

/// Maximum number of objects of a list that are accepted. The others follow once these are finished.
const MAX_LISTED_OBJECTS: usize = 50_000;

/// Event of one resource.
#[derive(Debug)]
pub(super) enum News {
    /// Some of its marked objects.
    Page {
        /// The resource.
        resource: Arc<ServedResource>,
        /// Objects, each with the time of its creation.
        objects: Vec<(StoredObject, Option<i64>)>,
        /// Time by the apiserver's clock.
        now: Option<i64>,
    },
    /// End of a list, whose objects were all in pages.
    Listed {
        /// The resource.
        resource: Arc<ServedResource>,
        /// uids of all listed objects.
        uids: HashSet<Arc<str>>,
    },
    /// A marked object is new or has changed.
    Changed(Arc<ServedResource>, Box<StoredObject>),
    /// An object is finished or deleted.
    Gone(Arc<str>),
}

/// Part of an object that shows whose turn it is.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MarkedObject {
    metadata: MarkedMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MarkedMetadata {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    creation_timestamp: Option<Box<str>>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<MarkLabel>,
    annotations: Option<MarkAnnotation>,
}

/// Label that marks an object, among others.
#[derive(Clone, Debug, Deserialize)]
struct MarkLabel {
    /// [`PENDING_LABEL`]
    #[serde(rename = "init.gatepost.dev/pending")]
    mark: Option<Box<str>>,
}

/// Annotation that marks an object, among others.
#[derive(Clone, Debug, Deserialize)]
struct MarkAnnotation {
    /// [`STATE_ANNOTATION`](gatepost_api::initialization::STATE_ANNOTATION)
    #[serde(rename = "init.gatepost.dev/state")]
    mark: Option<Box<str>>,
}

impl MarkedObject {
    /// Returns the marks of the object.
    pub(super) fn marks(&self) -> Marks {
        let MarkedMetadata { labels, annotations, .. } = &self.metadata;
        Marks {
            label: labels.as_ref().and_then(|labels| labels.mark.clone()),
            state: annotations.as_ref().and_then(|annotations| annotations.mark.clone()),
        }
    }

    /// Returns the resource version if the object has that uid and is not being deleted.
    pub(super) fn version(&self, uid: &str) -> Option<&str> {
        let MarkedMetadata { uid: own, resource_version, deletion_timestamp, .. } = &self.metadata;
        (**own == *uid && deletion_timestamp.is_none()).then_some(resource_version)
    }

    /// Returns the object and the time of its creation if initializers must act on it, otherwise its uid. No
    /// initializer acts on an object that is being deleted.
    fn seen(self, resource: &ServedResource) -> Result<(StoredObject, Option<i64>), Arc<str>> {
        let standing = self.marks().object();
        let MarkedMetadata { namespace, name, uid, resource_version, creation_timestamp, deletion_timestamp, .. } =
            self.metadata;
        let uid: Arc<str> = uid.into();
        let list = match standing {
            MarksObject::Visible => return Err(uid),
            MarksObject::Unfinished(state) => state.list,
            MarksObject::Unreadable => Initializers::default(),
        };
        if deletion_timestamp.is_some() || uid.is_empty() {
            return Err(uid);
        }
        let (group, resource) = (resource.group.clone(), resource.resource.clone());
        let object = StoredObject { group, resource, namespace, name, uid, resource_version, list };
        Ok((object, creation_timestamp.as_deref().and_then(created)))
    }
}

/// Follower of the marked objects of one resource.
#[derive(Debug)]
pub(super) struct MarkedObjects {
    clients: watch::Receiver<KubeClient>,
    group: Box<str>,
    name: Box<str>,
    /// The resource as it is served now.
    resource: Option<Arc<ServedResource>>,
    news: mpsc::Sender<News>,
    /// uids of a list that has not ended.
    uids: HashSet<Arc<str>>,
}

impl MarkedObjects {
    pub(super) fn new(
        clients: watch::Receiver<KubeClient>,
        (group, name): (Box<str>, Box<str>),
        news: mpsc::Sender<News>,
    ) -> Self {
        Self { clients, group, name, resource: None, news, uids: HashSet::new() }
    }

    /// Follows the objects until dropped.
    pub(super) async fn run(mut self) {
        follow(&mut self).await;
    }
}

impl FollowHandler for MarkedObjects {
    type Object = MarkedObject;
    const METADATA_ONLY: bool = true;
    /// Interval of lists, which also find objects that have become old.
    const RELIST_INTERVAL: Duration = Duration::from_secs(300);
    const FAILURE_MESSAGE: &'static str = "cannot watch objects that are stored unfinished; they wait";
    const RECOVERY_MESSAGE: &'static str = "watching objects that are stored unfinished again";

    fn count_unreadable(&self) {
        UnreadableObjects::StoredUnfinished.count();
    }

    async fn target(&mut self) -> Result<Option<FollowTarget>, KubeError> {
        let client = self.clients.borrow().clone();
        // The definition may be created later.
        let served = ServedResource::find(&client, &self.group, &self.name).await?.map(Arc::new);
        let target = served.as_ref().map(|served| {
            let (path, selector) = (served.path(), PENDING_LABEL.to_owned());
            FollowTarget { client, path, selector }
        });
        self.resource = served;
        Ok(target)
    }

    async fn handle(&mut self, event: FollowEvent<MarkedObject>) -> Result<(), KubeError> {
        let Some(resource) = self.resource.clone() else { return Ok(()) };
        let news = match event {
            FollowEvent::Listing => {
                self.uids.clear();
                return Ok(());
            }
            FollowEvent::Current(_) => return Ok(()),
            FollowEvent::Listed { objects, now } => {
                let seen = objects.into_iter().filter_map(|object| object.seen(&resource).ok());
                let objects: Vec<_> = seen.take(MAX_LISTED_OBJECTS.saturating_sub(self.uids.len())).collect();
                self.uids.extend(objects.iter().map(|(object, _)| Arc::clone(&object.uid)));
                News::Page { resource, objects, now }
            }
            FollowEvent::ListEnd(_) => News::Listed { resource, uids: std::mem::take(&mut self.uids) },
            FollowEvent::Changed(object) => match object.seen(&resource) {
                Ok((object, _)) => News::Changed(resource, Box::new(object)),
                Err(uid) => News::Gone(uid),
            },
            FollowEvent::Gone(object) => News::Gone(object.metadata.uid.into()),
            FollowEvent::Unreadable(identity) => News::Gone(identity.uid.into()),
        };
        let _ = self.news.send(news).await;
        Ok(())
    }
}

/// Resource in a version that its apiserver serves, the preferred one if possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedResource {
    /// API group.
    pub(super) group: Box<str>,
    /// Version.
    pub(super) version: Box<str>,
    /// Plural name of the resource.
    pub(super) resource: Box<str>,
    /// Kind of its objects.
    pub(super) kind: Box<str>,
    namespaced: bool,
}

impl ServedResource {
    /// Looks a resource up; `None` if it is not served.
    ///
    /// # Errors
    /// Returns the error of the requests to the apiserver.
    pub(super) async fn find(client: &KubeClient, group: &str, resource: &str) -> Result<Option<Self>, KubeError> {
        for version in versions(client, group).await? {
            let document = client.get(&base(group, &version)).await?;
            let resources = document["resources"].as_array().into_iter().flatten();
            let mut named = resources.filter(|served| served["name"] == *resource);
            let Some(served) = named.next() else { continue };
            let (group, version, resource) = (group.into(), version.into(), resource.into());
            let kind = served["kind"].as_str().unwrap_or_default().into();
            let namespaced = served["namespaced"].as_bool().unwrap_or_default();
            return Ok(Some(Self { group, version, resource, kind, namespaced }));
        }
        Ok(None)
    }

    /// Creates a namespaced resource.
    #[cfg(test)]
    pub(super) fn of(group: &str, version: &str, resource: &str, kind: &str) -> Self {
        let (group, version, resource, kind) = (group.into(), version.into(), resource.into(), kind.into());
        Self { group, version, resource, kind, namespaced: true }
    }

    /// Returns the path of all objects.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", base(&self.group, &self.version), self.resource)
    }

    /// Returns the path of the objects of one namespace.
    pub(super) fn within(&self, namespace: &str) -> String {
        match self.namespaced {
            true => format!("{}/namespaces/{namespace}/{}", base(&self.group, &self.version), self.resource),
            false => self.path(),
        }
    }
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Returns the versions of a group, the preferred one first.
async fn versions(client: &KubeClient, group: &str) -> Result<Vec<String>, KubeError> {
    if group.is_empty() {
        return Ok(vec!["v1".to_owned()]);
    }
    let document = match client.get(&format!("/apis/{group}")).await {
        Err(KubeError::Refused { code: 404, .. }) => return Ok(Vec::new()),
        document => document?,
    };
    let preferred = document.pointer("/preferredVersion/version").and_then(Value::as_str);
    let all = document["versions"].as_array().into_iter().flatten().filter_map(|one| one["version"].as_str());
    let others = all.filter(|version| Some(*version) != preferred);
    Ok(preferred.into_iter().chain(others).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatepost_api::initialization::STATE_ANNOTATION;

    fn object(metadata: &Value) -> Result<MarkedObject, serde_json::Error> {
        serde_json::from_str(&json!({"metadata": metadata}).to_string())
    }

    #[test]
    fn marks_are_read_among_others_and_nonsense_is_an_error() {
        let metadata = json!({"uid": "u", "resourceVersion": "7", "labels": {"a": "b", PENDING_LABEL: "1"},
            "annotations": {STATE_ANNOTATION: "s", "x": "y"}, "managedFields": [{"fieldsV1": {}}]});
        let marked = object(&metadata).unwrap();
        assert_eq!(marked.marks(), Marks { label: Some("1".into()), state: Some("s".into()) });
        assert_eq!((marked.version("u"), marked.version("v")), (Some("7"), None));
        let empty = object(&json!({"uid": "u", "labels": null, "deletionTimestamp": null})).unwrap();
        assert_eq!((empty.marks(), empty.version("u")), (Marks::default(), Some("")));
        assert_eq!(object(&json!({"uid": "u", "deletionTimestamp": "now"})).unwrap().version("u"), None);
        assert!(object(&json!({"uid": "u", "labels": {PENDING_LABEL: 1}})).is_err());
        assert!(object(&json!({"uid": {}})).is_err());
    }

    #[test]
    fn depth_elsewhere_does_not_matter() {
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(10_000), "}".repeat(10_000));
        let text = format!(
            r#"{{"metadata":{{"uid":"u","managedFields":[{{"fieldsV1":{deep}}}],"labels":{{"{PENDING_LABEL}":"1"}}}},"spec":{deep}}}"#
        );
        let marked: MarkedObject = serde_json::from_str(&text).unwrap();
        assert_eq!(marked.marks().label.as_deref(), Some("1"));
    }
}

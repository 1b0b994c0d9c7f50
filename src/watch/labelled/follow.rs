//! Follow: marked objects of one resource, from a list and its changes.

use gatepost_api::initialization::{PENDING_LABEL, STATE_ANNOTATION};
use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use tokio::sync::{mpsc, watch};

use super::resource::ServedResource;
use crate::telemetry::UnreadableObjects;
use gatepost_initializers::{Initializers, Marks, marks::MarkedObject as MarksObject, unfinished::StoredObject};
use gatepost_kube_support::{FollowEvent, FollowHandler, FollowTarget, KubeClient, KubeError, created, follow};

/// Most objects of a list that are accepted. The others follow once these are finished.
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
    labels: Option<Mark<0>>,
    annotations: Option<Mark<1>>,
}

/// Keys of the label and the annotation that mark an object.
const KEYS: [&str; 2] = [PENDING_LABEL, STATE_ANNOTATION];

/// Value of one mark among labels or annotations; the others are dropped.
#[derive(Clone, Debug, Default)]
struct Mark<const KEY: usize>(Option<Box<str>>);

impl<'de, const KEY: usize> Deserialize<'de> for Mark<KEY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<const KEY: usize>;

        impl<'de, const KEY: usize> Visitor<'de> for Pairs<KEY> {
            type Value = Mark<KEY>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark<KEY>, A::Error> {
                let mut mark = None;
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    if key == KEYS[KEY] {
                        mark = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Mark(mark))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

impl MarkedObject {
    /// Returns the marks of the object.
    pub(super) fn marks(&self) -> Marks {
        let MarkedMetadata { labels, annotations, .. } = &self.metadata;
        Marks {
            label: labels.as_ref().and_then(|mark| mark.0.clone()),
            state: annotations.as_ref().and_then(|mark| mark.0.clone()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(metadata: &serde_json::Value) -> Result<MarkedObject, serde_json::Error> {
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

//! Follow: marked objects of one resource, one list, then its changes; a new list when those cannot be had.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::resource::ServedResource;
use crate::{
    clock::Backoff,
    initialize::{
        Initializers,
        label::{Marks, PENDING, SELECTOR, STATE, Standing},
        unfinished::StoredObject,
    },
    kube::{KubeClient, KubeError, WatchedChange, created},
};

/// Requested duration of one watch.
const WATCH: Duration = Duration::from_secs(30);
/// Everything is listed anew so often, whatever the watch says: then old objects are found, too.
const RELIST: Duration = Duration::from_secs(300);
/// Pauses after failures: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Objects of a list that are taken up. The others are, once these are finished.
const MOST: usize = 50_000;

/// News of one resource.
#[derive(Debug)]
pub(super) enum News {
    /// Some of its marked objects.
    Page {
        /// The resource.
        resource: Arc<ServedResource>,
        /// They, each with the time of its creation.
        objects: Vec<(StoredObject, Option<i64>)>,
        /// Time by the apiserver's clock.
        now: Option<i64>,
    },
    /// These are all of them, and each was in a page.
    Listed {
        /// The resource.
        resource: Arc<ServedResource>,
        /// Their uids.
        uids: HashSet<Arc<str>>,
    },
    /// One of them is new, or has changed.
    Changed(Arc<ServedResource>, Box<StoredObject>),
    /// One is finished, or gone.
    Gone(Arc<str>),
}

/// Follows a resource until dropped.
pub(super) async fn follow(
    clients: watch::Receiver<KubeClient>,
    (group, resource): (Box<str>, Box<str>),
    news: mpsc::Sender<News>,
) {
    let (mut backoff, mut logged) = (Backoff::new(PAUSES.0, PAUSES.1), None);
    loop {
        let began = Instant::now();
        let client = clients.borrow().clone();
        let ended = match ServedResource::find(&client, &group, &resource).await {
            Ok(Some(served)) => list_and_watch(&client, &Arc::new(served), &news, &mut logged).await,
            // A definition that comes later.
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        if ended.is_ok() || began.elapsed() > PAUSES.1 {
            backoff.reset();
        }
        if let Err(failure) = ended
            && logged.as_ref() != Some(&failure)
        {
            let fix = failure.fix();
            tracing::warn!(%failure, fix, resource = &*resource, "cannot watch objects that are stored unfinished; they wait");
            logged = Some(failure);
        }
        sleep(if began.elapsed() > PAUSES.1 { PAUSES.0 } else { backoff.pause() }).await;
    }
}

async fn list_and_watch(
    client: &KubeClient,
    resource: &Arc<ServedResource>,
    news: &mpsc::Sender<News>,
    logged: &mut Option<KubeError>,
) -> Result<(), KubeError> {
    let path = resource.path();
    let listed = Instant::now();
    let Some(mut revision) = list(client, resource, news).await? else { return Ok(()) };
    if logged.take().is_some() {
        tracing::info!(resource = &*resource.resource, "watching objects that are stored unfinished again");
    }
    while listed.elapsed() < RELIST {
        let opened = Instant::now();
        let mut changes = match client.watch_metadata(&path, SELECTOR, &revision, WATCH).await {
            Err(KubeError::Refused { code: 410, .. }) => return Ok(()),
            changes => changes?,
        };
        loop {
            // An apiserver that is gone without a word must not be waited for.
            let Ok(change) = timeout(WATCH + PAUSES.1, changes.next()).await else { break };
            let (object, event) = match change? {
                Some(WatchedChange::Changed(object)) => {
                    let event = match seen(resource, &object) {
                        Some((object, _)) => Some(News::Changed(Arc::clone(resource), Box::new(object))),
                        None => uid(&object).map(News::Gone),
                    };
                    (object, event)
                }
                Some(WatchedChange::Gone(object)) => {
                    let event = uid(&object).map(News::Gone);
                    (object, event)
                }
                Some(WatchedChange::Bookmark(at)) => {
                    revision = at;
                    continue;
                }
                Some(WatchedChange::Expired) => return Ok(()),
                None => break,
            };
            if let Some(at) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
                at.clone_into(&mut revision);
            }
            if let Some(event) = event {
                let _ = news.send(event).await;
            }
        }
        // An apiserver that hangs up at once must not be called without pause.
        sleep(PAUSES.0.saturating_sub(opened.elapsed())).await;
    }
    Ok(())
}

/// Lists the marked objects, a page at a time, so that no more than one is held. The revision that they are of; `None` where
/// it has expired meanwhile, and the list is to be begun anew.
async fn list(
    client: &KubeClient,
    resource: &Arc<ServedResource>,
    news: &mpsc::Sender<News>,
) -> Result<Option<String>, KubeError> {
    let path = resource.path();
    let (mut uids, mut revision, mut token) = (HashSet::new(), None, None::<String>);
    loop {
        let page = match client.metadata_page(&path, SELECTOR, token.as_deref()).await {
            Err(KubeError::Refused { code: 410, .. }) => return Ok(None),
            page => page?,
        };
        if *revision.get_or_insert_with(|| page.revision.clone()) != page.revision {
            return Ok(None);
        }
        let objects = page.items.iter().filter_map(|item| seen(resource, item));
        let objects: Vec<_> = objects.take(MOST.saturating_sub(uids.len())).collect();
        uids.extend(objects.iter().map(|(object, _)| Arc::clone(&object.uid)));
        let _ = news.send(News::Page { resource: Arc::clone(resource), objects, now: page.now }).await;
        token = page.next.filter(|_| uids.len() < MOST);
        if token.is_none() {
            let _ = news.send(News::Listed { resource: Arc::clone(resource), uids }).await;
            return Ok(revision);
        }
    }
}

fn uid(object: &Value) -> Option<Arc<str>> {
    object.pointer("/metadata/uid").and_then(Value::as_str).map(Into::into)
}

/// Marks of an object.
pub(super) fn marks(object: &Value) -> Marks {
    let text = |map: &str, key: &str| object["metadata"][map][key].as_str().map(Into::into);
    Marks { label: text("labels", PENDING), state: text("annotations", STATE) }
}

/// The object, and the time of its creation, where initializers are to act on it. One that is being deleted is nobody's to
/// change.
fn seen(resource: &ServedResource, object: &Value) -> Option<(StoredObject, Option<i64>)> {
    let metadata = &object["metadata"];
    let list = match marks(object).standing() {
        Standing::Visible => return None,
        Standing::Unfinished(state) => state.list,
        Standing::Lost => Initializers::default(),
    };
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    if !metadata["deletionTimestamp"].is_null() || text("uid").is_empty() {
        return None;
    }
    let object = StoredObject {
        group: resource.group.clone(),
        resource: resource.resource.clone(),
        namespace: text("namespace").into(),
        name: text("name").into(),
        uid: text("uid").into(),
        resource_version: text("resourceVersion").into(),
        list,
    };
    Some((object, created(text("creationTimestamp"))))
}

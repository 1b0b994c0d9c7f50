//! NamespaceWatcher: labels of the cluster's namespaces, from a list and its changes
//! ([`follow`](gatepost_kube_support::follow())), or from a lookup of one namespace.
//!
//! While the watch fails, the known labels stay in use. Once they are too old
//! ([`TOO_OLD_AFTER`](crate::live::namespaces::TOO_OLD_AFTER)), each request looks its namespace up.
//!
//! The watcher also reads the resources that the cluster serves, regularly and on request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    live::{Discovery, Namespaces, namespaces::NamespaceLookup},
    telemetry::{Throttle, UnreadableObjects},
};
use gatepost_api::Labels;
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_kube_support::{
    Discoverer, FailureLog, FollowEvent, FollowHandler, FollowTarget, KubeClient, KubeError, follow,
};

const PATH: &str = "/api/v1/namespaces";

/// Error of a lookup for the requester. The full error names the apiserver's address and our account, so it is only
/// logged.
const LOOKUP_FAILED: &str = "the apiserver did not tell, and Gatepost's log says why";
/// Rate limiter for logs about failed lookups.
static LOOKUP_LOG: Throttle = Throttle::new();

/// Maximum size of the stored labels of one namespace, in bytes.
const MAX_KEPT_LABEL_BYTES: usize = 16 << 10;

/// Watcher of one cluster's namespaces.
#[derive(Debug)]
pub struct NamespaceWatcher {
    client: KubeClient,
    namespaces: Arc<Namespaces>,
    discovery: Arc<Discovery>,
    lookups: mpsc::Receiver<NamespaceLookup>,
}

/// Part of a Namespace that is needed.
#[derive(Debug, Deserialize)]
struct NamespaceObject {
    metadata: NamespaceMetadata,
}

#[derive(Debug, Deserialize)]
struct NamespaceMetadata {
    name: Box<str>,
    labels: Option<Labels>,
}

impl NamespaceWatcher {
    /// Creates the watcher without namespaces. Sends no request before [`NamespaceWatcher::run`].
    pub fn new(client: KubeClient) -> Self {
        let (namespaces, lookups) = Namespaces::new(Instant::now());
        Self { client, namespaces, discovery: Arc::default(), lookups }
    }

    /// Returns the known namespaces, for readers.
    pub fn namespaces(&self) -> Arc<Namespaces> {
        Arc::clone(&self.namespaces)
    }

    /// Returns the resources that the cluster serves, for readers.
    pub fn discovery(&self) -> Arc<Discovery> {
        Arc::clone(&self.discovery)
    }

    /// Watches the namespaces until dropped, and answers lookups of unknown ones.
    pub async fn run(self) {
        let Self { client, namespaces, discovery, lookups } = self;
        let mut labels = LabelFollower { client: client.clone(), namespaces, listed: Vec::new() };
        tokio::join!(follow(&mut labels), answer(&client, lookups), follow_discovery(discovery, client.clone()));
    }
}

/// Follower that keeps the labels current.
struct LabelFollower {
    client: KubeClient,
    namespaces: Arc<Namespaces>,
    /// Namespaces of a list that has not ended.
    listed: Vec<(Box<str>, Labels)>,
}

impl FollowHandler for LabelFollower {
    type Object = NamespaceObject;
    const METADATA_ONLY: bool = true;
    const RELIST_INTERVAL: Duration = Duration::from_secs(600);
    const FAILURE_MESSAGE: &'static str = "cannot watch namespaces; their labels are getting old";
    const RECOVERY_MESSAGE: &'static str = "watching namespaces again";

    fn count_unreadable(&self) {
        UnreadableObjects::Namespaces.count();
    }

    async fn target(&mut self) -> Result<Option<FollowTarget>, KubeError> {
        let (client, path, selector) = (self.client.clone(), PATH.to_owned(), String::new());
        Ok(Some(FollowTarget { client, path, selector }))
    }

    async fn handle(&mut self, event: FollowEvent<NamespaceObject>) -> Result<(), KubeError> {
        match event {
            FollowEvent::Listing => self.listed.clear(),
            FollowEvent::Listed { objects, .. } => {
                self.listed.extend(objects.into_iter().map(NamespaceObject::named).filter(is_kept));
            }
            FollowEvent::ListEnd(began) => {
                self.namespaces.replace(std::mem::take(&mut self.listed));
                self.namespaces.stamp_at(began);
            }
            FollowEvent::Changed(object) => {
                let (name, labels) = object.named();
                match is_kept(&(name.clone(), labels.clone())) {
                    true => self.namespaces.set(&name, labels),
                    false => self.namespaces.remove(&name),
                }
            }
            FollowEvent::Gone(object) => self.namespaces.remove(&object.metadata.name),
            // From now on requests look it up.
            FollowEvent::Unreadable(identity) => self.namespaces.remove(&identity.name),
            FollowEvent::Current(at) => self.namespaces.stamp_at(at),
        }
        Ok(())
    }
}

/// Returns true if a namespace's labels are small enough to be stored. Kubernetes bounds labels only by the size of a
/// request, so users who may create namespaces could fill the memory. Other labels are looked up for each request.
fn is_kept((_, labels): &(Box<str>, Labels)) -> bool {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= MAX_KEPT_LABEL_BYTES
}

impl NamespaceObject {
    fn named(self) -> (Box<str>, Labels) {
        (self.metadata.name, self.metadata.labels.unwrap_or_default())
    }
}

/// Looks up the labels of a namespace; `None` if it does not exist.
///
/// # Errors
/// Returns the [`KubeError`] of the request.
pub(super) async fn labels_of(client: &KubeClient, namespace: &str) -> Result<Option<Labels>, KubeError> {
    let found = client.find_metadata_as::<NamespaceObject>(PATH, namespace).await?;
    Ok(found.map(|object| object.named().1))
}

/// Answers lookups, each by a request of its own, so that none waits for another.
async fn answer(client: &KubeClient, mut lookups: mpsc::Receiver<NamespaceLookup>) {
    while let Some(NamespaceLookup { namespace, mut answer }) = lookups.recv().await {
        let client = client.clone();
        tokio::spawn(async move {
            let found = tokio::select! {
                found = labels_of(&client, &namespace) => found,
                // The caller has timed out: a slow apiserver gets no useless requests.
                () = answer.closed() => return,
            };
            if let Err(failure) = &found
                && LOOKUP_LOG.pass().is_some()
            {
                let fix = failure.fix();
                tracing::warn!(%failure, fix, "cannot look up a namespace; the failure policies of hooks that select by its labels decide");
            }
            let _ = answer.send(found.map_err(|_| LOOKUP_FAILED.to_owned()));
        });
    }
}

/// Interval between two reads. A read without changes costs two responses without a body.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest interval between two reads, however often one is requested.
const MIN_DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one read: an older apiserver needs many requests.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps the discovery of a cluster current until dropped.
async fn follow_discovery(discovery: Arc<Discovery>, client: KubeClient) {
    let (mut discoverer, mut log) = (Discoverer::default(), FailureLog::default());
    loop {
        let at = Moment::now(suspended_time);
        match timeout(DISCOVERY_TIMEOUT, discoverer.read(&client)).await {
            Ok(Ok(changed)) => {
                match changed {
                    Some(served) => discovery.set(served, at),
                    None => discovery.stamp(at),
                }
                log.recovered("the versions that the cluster serves can be read again");
            }
            Ok(Err(failure)) => {
                let lost = "cannot read which versions the cluster serves; while nothing recent is known, rules for other \
                            versions of a resource count as matching";
                log.failed(lost, failure);
            }
            Err(_) => {}
        }
        discovery.reading_ended();
        sleep(MIN_DISCOVERY_INTERVAL).await;
        let _ = timeout(DISCOVERY_INTERVAL, discovery.refresh_requested()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_beyond_the_bound_of_one_namespace_are_not_kept() {
        let namespace = |bytes: usize| ("n".into(), [("k", "v".repeat(bytes - 1))].into_iter().collect());
        assert!(is_kept(&namespace(MAX_KEPT_LABEL_BYTES)));
        assert!(!is_kept(&namespace(MAX_KEPT_LABEL_BYTES + 1)));
    }
}

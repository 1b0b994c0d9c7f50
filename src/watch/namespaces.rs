//! NamespaceWatcher: the labels of the cluster's namespaces, by a list and its changes
//! ([`follow`](gatepost_kube_support::follow())), or, of one namespace, by asking for it alone.
//!
//! While they cannot be followed, what is known stays and grows old. Once it is too old
//! ([`TOO_OLD_AFTER`](crate::live::namespaces::TOO_OLD_AFTER)), requests ask for their namespace alone.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::sync::mpsc;

use super::discovery;
use crate::{
    live::{Discovery, Namespaces, namespaces::NamespaceQuestion},
    telemetry::UnreadableObjects,
};
use gatepost_api::Labels;
use gatepost_kube_support::{FollowEvent, FollowHandler, FollowTarget, KubeClient, KubeError, follow};

const PATH: &str = "/api/v1/namespaces";

/// Failure of a lookup as the requester may read it. The whole one names the apiserver's address and our own account, and
/// is logged, at most once in so long.
const NOT_FOUND_OUT: &str = "the apiserver did not tell, and Gatepost's log says why";
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Bytes of one namespace's labels that are kept.
const MAX_KEPT_LABEL_BYTES: usize = 16 << 10;

/// One cluster's namespaces, about to be followed.
#[derive(Debug)]
pub struct NamespaceWatcher {
    client: KubeClient,
    namespaces: Arc<Namespaces>,
    discovery: Arc<Discovery>,
    questions: mpsc::Receiver<NamespaceQuestion>,
}

/// A Namespace, as far as it is needed.
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
    /// Nothing is known yet, and nothing asked before [`NamespaceWatcher::run`].
    pub fn new(client: KubeClient) -> Self {
        let (namespaces, questions) = Namespaces::new(Instant::now());
        Self { client, namespaces, discovery: Arc::default(), questions }
    }

    /// Namespaces known, for readers.
    pub fn namespaces(&self) -> Arc<Namespaces> {
        Arc::clone(&self.namespaces)
    }

    /// Resources that the cluster serves, for readers.
    pub fn discovery(&self) -> Arc<Discovery> {
        Arc::clone(&self.discovery)
    }

    /// Follows them until dropped. Answers questions about unknown ones beside it.
    pub async fn run(self) {
        let Self { client, namespaces, discovery, questions } = self;
        let mut labels = LabelFollower { client: client.clone(), namespaces, listed: Vec::new() };
        tokio::join!(follow(&mut labels), answer(&client, questions), discovery::follow(discovery, client.clone()));
    }
}

/// Keeps the labels current.
struct LabelFollower {
    client: KubeClient,
    namespaces: Arc<Namespaces>,
    /// Namespaces of a list that has not ended.
    listed: Vec<(Box<str>, Labels)>,
}

impl FollowHandler for LabelFollower {
    type Object = NamespaceObject;
    const METADATA_ONLY: bool = true;
    const RELIST: Duration = Duration::from_secs(600);
    const LOST: &'static str = "cannot watch namespaces; their labels are getting old";
    const FOUND: &'static str = "watching namespaces again";

    fn count_unreadable(&self) {
        UnreadableObjects::Namespaces.count();
    }

    async fn target(&mut self) -> Result<Option<FollowTarget>, KubeError> {
        let (client, path, selector) = (self.client.clone(), PATH.to_owned(), String::new());
        Ok(Some(FollowTarget { client, path, selector }))
    }

    async fn take(&mut self, event: FollowEvent<NamespaceObject>) -> Result<(), KubeError> {
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
            // From now on it is asked about.
            FollowEvent::Unreadable(identity) => self.namespaces.remove(&identity.name),
            FollowEvent::Current(at) => self.namespaces.stamp_at(at),
        }
        Ok(())
    }
}

/// Whether a namespace's labels are few enough to be kept. Kubernetes bounds labels only by the size of a request, so
/// users who may create namespaces could fill the memory. Labels that are not kept are looked up for each request.
fn is_kept((_, labels): &(Box<str>, Labels)) -> bool {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= MAX_KEPT_LABEL_BYTES
}

impl NamespaceObject {
    fn named(self) -> (Box<str>, Labels) {
        (self.metadata.name, self.metadata.labels.unwrap_or_default())
    }
}

/// Labels of the namespace, as the apiserver gives them now; `None` where there is no such namespace.
///
/// # Errors
/// [`KubeError`] of a request.
pub(super) async fn labels_of(client: &KubeClient, namespace: &str) -> Result<Option<Labels>, KubeError> {
    let found = client.find_metadata_as::<NamespaceObject>(PATH, namespace).await?;
    Ok(found.map(|object| object.named().1))
}

/// Each question is one request of its own: none waits behind another.
async fn answer(client: &KubeClient, mut questions: mpsc::Receiver<NamespaceQuestion>) {
    let logged = Arc::new(Mutex::new(None));
    while let Some(NamespaceQuestion { namespace, mut answer }) = questions.recv().await {
        let (client, logged) = (client.clone(), Arc::clone(&logged));
        tokio::spawn(async move {
            let found = tokio::select! {
                found = labels_of(&client, &namespace) => found,
                // The caller has run out of time, and an apiserver that is slow is not asked for nothing.
                () = answer.closed() => return,
            };
            if let Err(failure) = &found {
                log(failure, &mut logged.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let _ = answer.send(found.map_err(|_| NOT_FOUND_OUT.to_owned()));
        });
    }
}

fn log(failure: &KubeError, logged: &mut Option<Instant>) {
    if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
        *logged = Some(Instant::now());
        let fix = failure.fix();
        tracing::warn!(%failure, fix, "cannot look up a namespace; the failure policies of hooks that select by its labels decide");
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

//! NamespaceWatcher: the cluster's namespaces, one list, then its changes; a new list when those cannot be had.
//!
//! | what happens | what we do |
//! | --- | --- |
//! | the apiserver ends the watch, as it does after [`WATCH`] | watch on from the last revision |
//! | the revision is forgotten (410), the machine has slept, or [`RELIST`] has passed | list anew, and replace everything |
//! | the apiserver cannot be reached, says no, or says nonsense | log it once, wait a little longer each time, list anew |
//!
//! Meanwhile what is known stays and grows old; requests that need it are refused once it is too old
//! ([`crate::live::namespaces::TOO_OLD_AFTER`]).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};

use super::discovery::follow;
use crate::{
    clock::{Backoff, Moment, slept},
    kube::{KubeClient, KubeError, Watch, WatchedChange},
    live::{Discovery, Namespaces, namespaces::NamespaceQuestion},
    model::Labels,
};

const PATH: &str = "/api/v1/namespaces";
/// Requested duration of one watch: when an apiserver is gone without a word, there is time to find that out, to wait
/// in vain for one more answer, and to ask again before the known labels are too old.
const WATCH: Duration = Duration::from_secs(30);
/// Everything is listed anew so often, whatever the watch says.
const RELIST: Duration = Duration::from_secs(600);
/// Pauses after failures: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Failure of a lookup as the requester may read it. The whole one names the apiserver's address and our own account, and
/// is logged, at most once in so long.
const NOT_FOUND_OUT: &str = "the apiserver did not tell, and Gatepost's log says why";
const LOG_EVERY: Duration = Duration::from_secs(1);

/// One cluster's namespaces, about to be followed.
#[derive(Debug)]
pub struct NamespaceWatcher {
    client: KubeClient,
    namespaces: Arc<Namespaces>,
    discovery: Arc<Discovery>,
    questions: mpsc::Receiver<NamespaceQuestion>,
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
        tokio::join!(
            keep(&self.client, &self.namespaces),
            answer(&self.client, self.questions),
            follow(Arc::clone(&self.discovery), self.client.clone())
        );
    }
}

/// Takes up one whole list; its revision.
async fn list(client: &KubeClient, namespaces: &Namespaces) -> Result<String, KubeError> {
    let began = Moment::now(slept);
    let list = client.list(PATH).await?;
    namespaces.replace(list.items.iter().filter_map(labelled));
    namespaces.stamp_at(began);
    Ok(list.revision)
}

async fn keep(client: &KubeClient, namespaces: &Namespaces) {
    let (mut backoff, mut logged) = (Backoff::new(PAUSES.0, PAUSES.1), None);
    loop {
        let began = Instant::now();
        let ended = match list(client, namespaces).await {
            Ok(revision) => watch(client, namespaces, revision, &mut logged).await,
            Err(failure) => Err(failure),
        };
        if ended.is_ok() || began.elapsed() > PAUSES.1 {
            backoff.reset();
        }
        if let Err(failure) = ended
            && logged.as_ref() != Some(&failure)
        {
            tracing::warn!(%failure, fix = failure.fix(), "cannot watch namespaces; their labels are getting old");
            logged = Some(failure);
        }
        sleep(backoff.pause()).await;
    }
}

/// Takes up changes from `revision` on, until everything has to be listed anew; an error where that is not ordinary.
async fn watch(
    client: &KubeClient,
    namespaces: &Namespaces,
    mut revision: String,
    logged: &mut Option<KubeError>,
) -> Result<(), KubeError> {
    let listed = Instant::now();
    while listed.elapsed() < RELIST {
        let mut changes: Watch = match client.watch(PATH, &revision, WATCH).await {
            Ok(changes) => changes,
            Err(KubeError::Refused { code: 410, .. }) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        if logged.take().is_some() {
            tracing::info!("watching namespaces again");
        }
        let opened = Moment::now(slept);
        namespaces.stamp_at(opened);
        loop {
            // An apiserver that is gone without a word must not be waited for: what it was asked for, and a little.
            let Ok(change) = tokio::time::timeout(WATCH + PAUSES.1, changes.next()).await else { break };
            // An event after the machine has slept may have been sent before it did.
            if slept() > opened.slept + PAUSES.0 {
                return Ok(());
            }
            let object = match change {
                Ok(Some(WatchedChange::Changed(object))) => {
                    if let Some((name, labels)) = labelled(&object) {
                        namespaces.set(&name, labels);
                    }
                    object
                }
                Ok(Some(WatchedChange::Gone(object))) => {
                    if let Some((name, _)) = labelled(&object) {
                        namespaces.remove(&name);
                    }
                    object
                }
                Ok(Some(WatchedChange::Bookmark(at))) => {
                    revision = at;
                    namespaces.stamp(Instant::now());
                    continue;
                }
                Ok(Some(WatchedChange::Expired)) => return Ok(()),
                Ok(None) => break,
                Err(failure) => return Err(failure),
            };
            if let Some(at) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
                at.clone_into(&mut revision);
            }
            namespaces.stamp(Instant::now());
        }
        // An apiserver that hangs up at once must not be called without pause.
        sleep(PAUSES.0.saturating_sub(opened.instant.elapsed())).await;
    }
    Ok(())
}

/// Each question is one request of its own: none waits behind another.
async fn answer(client: &KubeClient, mut questions: mpsc::Receiver<NamespaceQuestion>) {
    let logged = Arc::new(Mutex::new(None));
    while let Some(NamespaceQuestion { namespace, mut answer }) = questions.recv().await {
        let (client, logged) = (client.clone(), Arc::clone(&logged));
        tokio::spawn(async move {
            let found = tokio::select! {
                found = client.find(PATH, &namespace) => found,
                // The caller has run out of time, and an apiserver that is slow is not asked for nothing.
                () = answer.closed() => return,
            };
            if let Err(failure) = &found {
                log(failure, &mut logged.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let found = found.map(|object| Some(labelled(&object?)?.1)).map_err(|_| NOT_FOUND_OUT.to_owned());
            let _ = answer.send(found);
        });
    }
}

fn log(failure: &KubeError, logged: &mut Option<Instant>) {
    if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
        *logged = Some(Instant::now());
        tracing::warn!(%failure, fix = failure.fix(), "cannot look up a namespace; requests that need its labels are refused");
    }
}

/// The name and the labels of a Namespace; `None` where it has no name, which no apiserver sends.
fn labelled(namespace: &Value) -> Option<(Box<str>, Labels)> {
    let metadata = namespace.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let labels = metadata.get("labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    Some((name.into(), pairs.collect()))
}

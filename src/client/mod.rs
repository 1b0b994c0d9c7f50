//! Client of Gatepost for a process that acts as an initializer: claims a name at every sidecar, sends heartbeats,
//! attaches again when a stream ends, and knows a repeat. The process itself is one function: a new object in, a change
//! or a refusal out.
//!
//! ```no_run
//! # use gatepost::client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
//! # async fn example(channel: tonic::transport::Channel) {
//! InitializerClient::new("team.example.com", std::env::var("TOKEN").unwrap_or_default())
//!     .run([channel], |object: NewObject| async move {
//!         let team = object.namespace_labels().get("team").ok_or("the namespace has no team")?;
//!         let label = serde_json::json!([{"op": "add", "path": "/metadata/labels/team", "value": team}]);
//!         Ok::<_, ObjectRefusal>(ObjectChange::patch(&label))
//!     }, std::future::pending())
//!     .await;
//! # }
//! ```

mod new_object;
mod recent_changes;
mod stream;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time::sleep};
use tonic::transport::Channel;

pub use self::new_object::{NewObject, ObjectChange, ObjectRefusal};
use self::{
    recent_changes::RecentChanges,
    stream::{Stream, ends},
};
use crate::wire::pb::gatepost::v1::Claim;

/// Pause before the first new attempt to attach; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Process that acts for one initializer.
#[derive(Debug)]
pub struct InitializerClient {
    claim: Claim,
    /// Of all sidecars, as an apiserver may send a review that it repeats to another one.
    recent: Mutex<RecentChanges>,
}

impl InitializerClient {
    /// Client for the initializer of this name; the token is empty where a client certificate says who it is.
    pub fn new(name: impl Into<String>, token: impl Into<String>) -> Self {
        let claim = Claim { name: name.into(), token: token.into(), window: 0 };
        Self { claim, recent: Mutex::default() }
    }

    /// Number of objects that it acts on at once for each sidecar: 16, where this is not called; at most 256.
    #[must_use]
    pub fn window(mut self, objects: u32) -> Self {
        self.claim.window = objects;
        self
    }

    /// Acts at each of these sidecars until `stop`; then takes no more objects, and ends when those it has are answered.
    ///
    /// `act` is called once for each object that this process has not changed a short time ago, for several at once. It
    /// is dropped when nobody waits for the object any more.
    pub async fn run<Act, Acting>(
        self,
        sidecars: impl IntoIterator<Item = Channel>,
        act: Act,
        stop: impl Future<Output = ()>,
    ) where
        Act: Fn(NewObject) -> Acting + Send + Sync + 'static,
        Acting: Future<Output = Result<ObjectChange, ObjectRefusal>> + Send + 'static,
    {
        let (client, act, (stopping, ending)) = (Arc::new(self), Arc::new(act), watch::channel(false));
        // They end with this future.
        let mut loops = JoinSet::new();
        for sidecar in sidecars {
            loops.spawn(Arc::clone(&client).attach(sidecar, Arc::clone(&act), ending.clone()));
        }
        drop(ending);
        tokio::select! {
            () = stop => {}
            () = stopping.closed() => {}
        }
        stopping.send_replace(true);
        while loops.join_next().await.is_some() {}
    }

    /// Attaches to one sidecar, again and again.
    async fn attach<Act, Acting>(self: Arc<Self>, sidecar: Channel, act: Arc<Act>, mut ending: watch::Receiver<bool>)
    where
        Act: Fn(NewObject) -> Acting + Send + Sync + 'static,
        Acting: Future<Output = Result<ObjectChange, ObjectRefusal>> + Send + 'static,
    {
        let mut pause = FIRST_PAUSE;
        while !*ending.borrow() {
            let mut stream = Stream::new(&self, Arc::clone(&act));
            let ended = stream.last(sidecar.clone(), &mut ending).await;
            if stream.was_attached() {
                pause = FIRST_PAUSE;
            }
            match ended {
                Ok(()) => tracing::info!(initializer = self.claim.name, "the stream has ended"),
                Err(status) => tracing::warn!(initializer = self.claim.name, %status, "the stream has ended"),
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = ends(&mut ending) => {}
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Change that was made to the same object for the same request a short time ago.
    fn known(&self, object: &NewObject) -> Option<ObjectChange> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).find(object.identity()).cloned()
    }

    fn keep(&self, identity: [u8; 32], change: &ObjectChange) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).keep(identity, change);
    }
}

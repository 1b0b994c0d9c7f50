//! Client of Gatepost for a process that acts as an initializer: it claims a name at every sidecar, sends heartbeats,
//! attaches again when a stream ends, and recognizes repeats. The process itself is one function that takes a new
//! object and returns a change or a refusal.
//!
//! ```no_run
//! # use gatepost_client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
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

#![forbid(unsafe_code)]

mod object;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gatepost_wire::pb::gatepost::v1::{
    Claim, Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, Leave, SidecarMessage,
    initializer_message::Message as ToSidecar, initializers_client::InitializersClient,
    sidecar_message::Message as FromSidecar,
};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Interval, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use self::object::RecentChanges;
pub use self::object::{NewObject, ObjectChange, ObjectRefusal};

/// Delay before the first retry to attach. It doubles with each further retry.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay before a retry.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Maximum size of a message, which contains an object and its request. tonic's default limit is 4 MiB.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum interval between heartbeats, also used before the sidecar has reported its lease.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of concurrent tasks of one stream: the sidecar's own limit.
const MAX_TASKS: usize = 256;
/// Maximum number of messages that wait to be sent.
const MAX_QUEUED_MESSAGES: usize = 16;

/// A process that acts for one initializer.
#[derive(Debug)]
pub struct InitializerClient {
    claim: Claim,
    /// Recent changes at all sidecars, because an apiserver may repeat a review at another sidecar.
    recent: Mutex<RecentChanges>,
}

impl InitializerClient {
    /// Creates a client for the initializer of this name. The token is empty if a client certificate is used.
    pub fn new(name: impl Into<String>, token: impl Into<String>) -> Self {
        let claim = Claim { name: name.into(), token: token.into(), window: 0 };
        Self { claim, recent: Mutex::default() }
    }

    /// Sets how many objects of each sidecar the process acts on concurrently: 16 by default, at most 256.
    #[must_use]
    pub fn window(mut self, objects: u32) -> Self {
        self.claim.window = objects;
        self
    }

    /// Acts at these sidecars until `stop` completes. Then accepts no more objects, answers the others, and ends.
    ///
    /// `act` is called once for each object that this process has not changed recently, for several objects
    /// concurrently. Its future is dropped if the task is cancelled or times out.
    pub async fn run<Act, Acting>(
        self,
        sidecars: impl IntoIterator<Item = Channel>,
        act: Act,
        stop: impl Future<Output = ()>,
    ) where
        Act: Fn(NewObject) -> Acting + Send + Sync + 'static,
        Acting: Future<Output = Result<ObjectChange, ObjectRefusal>> + Send + 'static,
    {
        let (client, act, (stop_all, stopping)) = (Arc::new(self), Arc::new(act), watch::channel(false));
        // Dropping this future aborts them.
        let mut loops = JoinSet::new();
        for sidecar in sidecars {
            loops.spawn(Arc::clone(&client).attach(sidecar, Arc::clone(&act), stopping.clone()));
        }
        drop(stopping);
        tokio::select! {
            () = stop => {}
            () = stop_all.closed() => {}
        }
        stop_all.send_replace(true);
        while loops.join_next().await.is_some() {}
    }

    /// Attaches to one sidecar, and attaches again when the stream ends.
    async fn attach<Act, Acting>(self: Arc<Self>, sidecar: Channel, act: Arc<Act>, mut stopping: watch::Receiver<bool>)
    where
        Act: Fn(NewObject) -> Acting + Send + Sync + 'static,
        Acting: Future<Output = Result<ObjectChange, ObjectRefusal>> + Send + 'static,
    {
        let mut delay = MIN_RETRY_DELAY;
        while !*stopping.borrow() {
            let mut stream = Stream::new(&self, Arc::clone(&act));
            let ended = stream.run(sidecar.clone(), &mut stopping).await;
            if stream.attached {
                delay = MIN_RETRY_DELAY;
            }
            match ended {
                Ok(()) => tracing::info!(initializer = self.claim.name, "the stream has ended"),
                Err(status) => tracing::warn!(initializer = self.claim.name, %status, "the stream has ended"),
            }
            tokio::select! {
                () = sleep(delay) => {}
                () = stopped(&mut stopping) => {}
            }
            delay = MAX_RETRY_DELAY.min(delay * 2);
        }
    }

    /// Returns the recent change of the same object for the same request, if any.
    fn known(&self, object: &NewObject) -> Option<ObjectChange> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).get(object.identity()).cloned()
    }

    fn remember(&self, identity: [u8; 32], change: &ObjectChange) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).insert(identity, change);
    }
}

/// One stream to one sidecar.
struct Stream<'a, Act> {
    client: &'a InitializerClient,
    act: Arc<Act>,
    acting: JoinSet<Option<ActResult>>,
    tasks: HashMap<Id, RunningTask>,
    /// True once the sidecar has accepted the claim.
    attached: bool,
}

/// Result of the process.
type ActResult = Result<ObjectChange, ObjectRefusal>;

/// A task that is being acted on.
struct RunningTask {
    task: u64,
    attempt: u32,
    identity: [u8; 32],
    abort: AbortHandle,
}

impl<'a, Act, Answering> Stream<'a, Act>
where
    Act: Fn(NewObject) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = ActResult> + Send + 'static,
{
    fn new(client: &'a InitializerClient, act: Arc<Act>) -> Self {
        Self { client, act, acting: JoinSet::new(), tasks: HashMap::new(), attached: false }
    }

    /// Claims the name and acts until the stream ends. Sends `Leave` when the process is stopping.
    async fn run(&mut self, sidecar: Channel, stopping: &mut watch::Receiver<bool>) -> Result<(), tonic::Status> {
        let (to, outbound) = mpsc::channel(MAX_QUEUED_MESSAGES);
        send(&to, ToSidecar::Claim(self.client.claim.clone())).await?;
        let mut grpc = InitializersClient::new(sidecar)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let mut inbound = tokio::select! {
            attached = grpc.attach(ReceiverStream::new(outbound)) => attached?.into_inner(),
            () = stopped(stopping) => return Ok(()),
        };
        let (mut heartbeat, mut leave_sent) = (interval_of(MAX_HEARTBEAT_INTERVAL), false);
        loop {
            let answer = tokio::select! {
                _ = heartbeat.tick() => {
                    send(&to, ToSidecar::Heartbeat(Heartbeat {})).await?;
                    continue;
                }
                () = stopped(stopping), if !leave_sent => {
                    leave_sent = true;
                    send(&to, ToSidecar::Leave(Leave {})).await?;
                    continue;
                }
                Some(acted) = self.acting.join_next_with_id() => self.acted(acted),
                message = inbound.message() => match message?.map(|SidecarMessage { message }| message) {
                    None => return Ok(()),
                    Some(Some(FromSidecar::Attached(attached))) => {
                        tracing::info!(initializer = self.client.claim.name, "attached");
                        self.attached = true;
                        // Two heartbeats may be lost.
                        let lease = Duration::from_millis(attached.lease_milliseconds.into());
                        heartbeat = interval_of((lease / 3).clamp(Duration::from_millis(100), MAX_HEARTBEAT_INTERVAL));
                        None
                    }
                    Some(Some(FromSidecar::Task(task))) => self.begin(task),
                    Some(Some(FromSidecar::Cancel(cancel))) => {
                        let tasks = self.tasks.values().filter(|acting| acting.task == cancel.task);
                        tasks.for_each(|acting| acting.abort.abort());
                        None
                    }
                    Some(Some(FromSidecar::Draining(_)) | None) => None,
                },
            };
            if let Some(answer) = answer {
                send(&to, ToSidecar::Answer(answer)).await?;
            }
        }
    }

    /// Starts a task. Returns its answer immediately if this process has changed the object recently.
    fn begin(&mut self, task: InitializerTask) -> Option<InitializerAnswer> {
        let (number, attempt) = (task.task, task.attempt);
        let object = NewObject::of(task);
        if let Some(change) = self.client.known(&object) {
            return Some(InitializerAnswer { task: number, attempt, outcome: Some(change.outcome()) });
        }
        if self.acting.len() >= MAX_TASKS {
            return None;
        }
        let (identity, time_left) = (object.identity(), object.time_left());
        let act = Arc::clone(&self.act);
        // `act` is called in the task, so that its panic ends only the task.
        let acting = async move { act(object).await };
        // After the timeout the failure policy has decided, and an answer would be ignored.
        let abort = self.acting.spawn(async move { timeout(time_left, acting).await.ok() });
        self.tasks.insert(abort.id(), RunningTask { task: number, attempt, identity, abort });
        None
    }

    /// Returns the answer of a task that has ended; `None` if it was cancelled or has timed out.
    fn acted(&mut self, acted: Result<(Id, Option<ActResult>), JoinError>) -> Option<InitializerAnswer> {
        let (id, answer) = match acted {
            Ok(acted) => acted,
            Err(error) if error.is_panic() => {
                (error.id(), Some(Err(ObjectRefusal::new(500, "InternalError", "the initializer has failed"))))
            }
            Err(error) => (error.id(), None),
        };
        let RunningTask { task, attempt, identity, .. } = self.tasks.remove(&id)?;
        let outcome = match answer? {
            Ok(change) => {
                self.client.remember(identity, &change);
                change.outcome()
            }
            Err(refusal) => refusal.outcome(),
        };
        Some(InitializerAnswer { task, attempt, outcome: Some(outcome) })
    }
}

async fn send(to: &mpsc::Sender<InitializerMessage>, message: ToSidecar) -> Result<(), tonic::Status> {
    let sent = to.send(InitializerMessage { message: Some(message) }).await;
    sent.map_err(|_| tonic::Status::cancelled("the stream has ended"))
}

/// Waits until the process is stopping.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|ends| *ends).await;
}

fn interval_of(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

//! Stream of an initializer, from the claim of its name to the end.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
use crate::wire::pb::gatepost::v1::{
    Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, Leave, SidecarMessage,
    initializer_message::Message as ToSidecar, initializers_client::InitializersClient,
    sidecar_message::Message as FromSidecar,
};

/// An object and what stands around it; tonic's own limit is 4 MiB.
const LARGEST: usize = 16 << 20;
/// Pause between heartbeats before the sidecar has said how long its lease is.
const BEAT: Duration = Duration::from_secs(3);
/// Objects at once, whatever a sidecar sends: its own limit.
const MOST_TASKS: usize = 256;
/// Messages that wait to be sent.
const QUEUE: usize = 16;

/// One stream to one sidecar.
pub(super) struct Stream<'a, Act> {
    client: &'a InitializerClient,
    act: Arc<Act>,
    acting: JoinSet<Option<Acted>>,
    tasks: HashMap<Id, Acting>,
    attached: bool,
}

/// Answer of the process.
type Acted = Result<ObjectChange, ObjectRefusal>;

/// A task that is being acted on.
struct Acting {
    task: u64,
    attempt: u32,
    identity: [u8; 32],
    abort: AbortHandle,
}

impl<'a, Act, Answering> Stream<'a, Act>
where
    Act: Fn(NewObject) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Acted> + Send + 'static,
{
    pub(super) fn new(client: &'a InitializerClient, act: Arc<Act>) -> Self {
        Self { client, act, acting: JoinSet::new(), tasks: HashMap::new(), attached: false }
    }

    /// Whether the sidecar has accepted the claim.
    pub(super) fn was_attached(&self) -> bool {
        self.attached
    }

    /// Claims the name and acts until the stream ends. Sends `leave` when the process is to end.
    pub(super) async fn last(
        &mut self,
        sidecar: Channel,
        ending: &mut watch::Receiver<bool>,
    ) -> Result<(), tonic::Status> {
        let (to, said) = mpsc::channel(QUEUE);
        say(&to, ToSidecar::Claim(self.client.claim.clone())).await?;
        let mut grpc =
            InitializersClient::new(sidecar).max_decoding_message_size(LARGEST).max_encoding_message_size(LARGEST);
        let mut inbound = tokio::select! {
            attached = grpc.attach(ReceiverStream::new(said)) => attached?.into_inner(),
            () = ends(ending) => return Ok(()),
        };
        let (mut beat, mut leaves) = (interval(BEAT), false);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                _ = beat.tick() => {
                    say(&to, ToSidecar::Heartbeat(Heartbeat {})).await?;
                    continue;
                }
                () = ends(ending), if !leaves => {
                    leaves = true;
                    say(&to, ToSidecar::Leave(Leave {})).await?;
                    continue;
                }
                Some(acted) = self.acting.join_next_with_id() => self.acted(acted),
                message = inbound.message() => match message?.map(|SidecarMessage { message }| message) {
                    None => return Ok(()),
                    Some(Some(FromSidecar::Attached(attached))) => {
                        tracing::info!(initializer = self.client.claim.name, "attached");
                        self.attached = true;
                        // Two may be lost.
                        let lease = Duration::from_millis(attached.lease_milliseconds.into());
                        beat = interval((lease / 3).clamp(Duration::from_millis(100), BEAT));
                        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                say(&to, ToSidecar::Answer(answer)).await?;
            }
        }
    }

    /// Begins a task; its answer at once, where this process has it from an earlier time.
    fn begin(&mut self, task: InitializerTask) -> Option<InitializerAnswer> {
        let (number, attempt) = (task.task, task.attempt);
        let object = NewObject::of(task);
        if let Some(change) = self.client.known(&object) {
            return Some(InitializerAnswer { task: number, attempt, outcome: Some(change.outcome()) });
        }
        if self.acting.len() >= MOST_TASKS {
            return None;
        }
        let (identity, time_left) = (object.identity(), object.time_left());
        let act = Arc::clone(&self.act);
        // It is called in the task, so that a panic ends that alone.
        let acting = async move { act(object).await };
        // Afterwards the failure policy has decided, and an answer would not count.
        let abort = self.acting.spawn(async move { timeout(time_left, acting).await.ok() });
        self.tasks.insert(abort.id(), Acting { task: number, attempt, identity, abort });
        None
    }

    /// Answer of a task that has ended; nothing where it was cancelled or is late.
    fn acted(&mut self, acted: Result<(Id, Option<Acted>), JoinError>) -> Option<InitializerAnswer> {
        let (id, answer) = match acted {
            Ok(acted) => acted,
            Err(error) if error.is_panic() => {
                (error.id(), Some(Err(ObjectRefusal::new(500, "InternalError", "the initializer has failed"))))
            }
            Err(error) => (error.id(), None),
        };
        let Acting { task, attempt, identity, .. } = self.tasks.remove(&id)?;
        let outcome = match answer? {
            Ok(change) => {
                self.client.keep(identity, &change);
                change.outcome()
            }
            Err(refusal) => refusal.outcome(),
        };
        Some(InitializerAnswer { task, attempt, outcome: Some(outcome) })
    }
}

async fn say(to: &mpsc::Sender<InitializerMessage>, message: ToSidecar) -> Result<(), tonic::Status> {
    let sent = to.send(InitializerMessage { message: Some(message) }).await;
    sent.map_err(|_| tonic::Status::cancelled("the stream has ended"))
}

/// Waits until the process is to end.
pub(super) async fn ends(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ends| *ends).await;
}

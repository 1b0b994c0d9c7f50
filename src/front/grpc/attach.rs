//! Attach: one instance of an initializer on one stream, from its claim to its end.
//!
//! ```text
//!   claim ──> check ──> attached ──┬── task ──> answer ──┐
//!                                  ├── heartbeat ────────┤  until it leaves, times out,
//!                                  └── cancel            ┘  or the process drains
//! ```
//!
//! Everything is bounded: the number of streams, the length of a message, the concurrent tasks of an instance, and the
//! messages that wait to be read by it. Its messages are read only as fast as they are processed. An instance that
//! sends nothing for too long is detached, and one that does not read loses its connection. If there is no memory for a
//! task or its answer, only the task fails and the stream goes on, because the next instance would fail in the same
//! way. The claim is checked again whenever the configuration changes.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::time::{interval, timeout};
use tonic::Code;

use super::{CallMessage, CallMessages, End, GONE, READ_TIMEOUT, StreamSender, UNREADABLE};
use crate::{
    front::{
        accept::client::{Identity, InstanceGuard},
        answer,
        head::grpc_encoding,
        limits::{self, QuotaGuard},
        outgoing::Outgoing,
        refusal::Refusal,
        state::{ConnectionContext, Front},
    },
    live::Generation,
};
use gatepost_base::offload;
use gatepost_initializers::{
    TurnFailure,
    desk::TaskId,
    hub::{Attachment, Contribution, ToInstance},
};
use gatepost_wire::{
    answer::status as status_info,
    initializers::{self, TaskHead, answered, read},
    pb::gatepost::v1::{self as wire, InitializerAnswer, initializer_answer::Outcome, initializer_message::Message},
};

/// Memory that one stream reserves besides its messages.
const STREAM_MEMORY: usize = 64 << 10;
/// Maximum number of concurrent tasks if the claim sets no window.
const DEFAULT_WINDOW: u32 = 16;
const MAX_WINDOW: u32 = 256;
/// Interval at which a stream checks its claim, and whether a drain waits only for this stream.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Memory of a task besides the review.
const TASK_OVERHEAD: usize = 256;

const NOT_YOURS: End = (Code::PermissionDenied, "the configuration no longer allows you to claim this name");
const TOO_LONG: End = (Code::InvalidArgument, "a message is longer than 4 MiB");
const LATE_CLAIM: End = (Code::InvalidArgument, "only the first message may be a claim");

/// Failure of a task whose answer cannot be read.
const UNREADABLE_ANSWER: &str = "its answer cannot be read";
/// Length of the prefix of a message that identifies its task.
const TASK_ID_PREFIX_BYTES: usize = 64;

/// Serves one stream until it ends.
pub(crate) async fn serve_stream(
    context: &ConnectionContext,
    headers: &HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let begun = tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        begun = begin(context, headers, body) => begun,
    };
    match begun {
        Err(refusal) => context.front.send_refusal(&mut respond, &refusal),
        Ok(mut stream) => {
            // An error means that the instance is gone.
            let Ok(to) = answer::begin_grpc(&mut respond) else { return };
            let mut to = StreamSender { to, context };
            let end = stream.serve(&mut to).await;
            to.end(end);
        }
    }
}

/// Claim to a name, with its proofs.
struct Claim {
    name: Arc<str>,
    certificate: Option<Arc<str>>,
    token: Option<[u8; 32]>,
}

impl Claim {
    /// Returns true if the claimant is allowed to claim the name. Every resource with an initializer of this name must
    /// admit the claimant, because a task does not name its resource.
    fn is_admitted(&self, generation: &Generation) -> bool {
        let all = generation.snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
        let mut attached = all.filter(|one| *one.name == *self.name).filter_map(|one| one.attach.as_ref()).peekable();
        let admitted = |by: &gatepost_api::Claimants| by.admit(self.certificate.as_deref(), self.token);
        attached.peek().is_some() && attached.all(admitted)
    }
}

/// Stream of an instance whose claim was accepted.
struct Stream<'a> {
    messages: CallMessages<'a>,
    attached: Attachment,
    claim: Claim,
    /// Generation against which the claim was last checked.
    generation: u64,
    /// True if that generation admits the claim.
    claim_valid: bool,
    window: u32,
    _instance: InstanceGuard<'a>,
    _quota_guard: QuotaGuard<'a>,
}

/// Reads the claim and checks it.
async fn begin<'a>(
    ConnectionContext { front, session, .. }: &'a ConnectionContext,
    headers: &HeaderMap,
    body: RecvStream,
) -> Result<Stream<'a>, Refusal> {
    grpc_encoding(headers)?;
    let current = &front.deps.current;
    // If no name can be claimed, nothing is read.
    if current.load().snapshot.claimable().next().is_none() {
        return Err(Refusal::NotYours);
    }
    let _quota_guard = front.attach_quota.take(session, STREAM_MEMORY)?;
    let mut messages = CallMessages::of_instance(body, front.budget());
    let within = limits::HANDSHAKE_TIMEOUT;
    let message = match timeout(within, messages.next()).await.map_err(|_| Refusal::CallDeadline { within })? {
        Ok(Some(CallMessage::Whole(message, _))) => message,
        Ok(Some(CallMessage::Skipped { beginning, .. })) => {
            return Err(Refusal::Overloaded { bytes: beginning.len() });
        }
        Ok(None) | Err(Refusal::NoMessage { .. }) => return Err(Refusal::NotAClaim),
        Err(refusal) => return Err(refusal),
    };
    let Some(Message::Claim(wire::Claim { name, token, window })) = read(message) else {
        return Err(Refusal::NotAClaim);
    };
    let certificate = match &session.client.identity {
        Identity::Certificate(name) => Some(Arc::clone(name)),
        _ => None,
    };
    let token = (!token.is_empty()).then(|| Sha256::digest(token).into());
    let claim = Claim { name: name.into(), certificate, token };
    let generation = current.load();
    // An unknown name gets the same answer as a name of another instance.
    if !claim.is_admitted(&generation) {
        return Err(Refusal::NotYours);
    }
    let window = if window == 0 { DEFAULT_WINDOW } else { window.min(MAX_WINDOW) };
    let attached = current.hub().attach(&claim.name, window as usize, Instant::now());
    let attached = attached.ok_or(Refusal::TooManyInstances)?;
    messages.allow_answers();
    let _instance = session.attach();
    let generation = generation.number;
    Ok(Stream { messages, attached, claim, generation, claim_valid: true, window, _instance, _quota_guard })
}

impl Stream<'_> {
    /// Transfers messages in both directions until the stream ends.
    async fn serve(&mut self, to: &mut StreamSender<'_>) -> Result<End, End> {
        let ConnectionContext { front, drain, .. } = to.context;
        let lease = front.deps.current.hub().lease;
        to.send_reserved(initializers::attached(lease, self.window))?;
        let (mut drain_begun, mut grace_over) = (pin!(drain.begun()), pin!(drain.grace_over()));
        let (mut drain_announced, mut grace_is_over, mut leave_requested) = (false, false, false);
        let mut check = interval(CHECK_INTERVAL);
        loop {
            if !self.is_claim_valid(front) {
                return Ok(NOT_YOURS);
            }
            if !self.attached.is_busy() {
                if leave_requested {
                    return Ok((Code::Ok, ""));
                }
                // Reviews under way may still create a task for the instance.
                if grace_is_over && front.inflight.requests() == 0 {
                    return Ok((Code::Unavailable, "shutting down"));
                }
            }
            tokio::select! {
                biased;
                () = to.reset() => return Ok(GONE),
                () = &mut drain_begun, if !drain_announced => {
                    drain_announced = true;
                    to.send_reserved(initializers::draining())?;
                }
                () = &mut grace_over, if !grace_is_over => grace_is_over = true,
                outbound = self.attached.recv() => match outbound {
                    // The configuration may have changed meanwhile.
                    Some(_) if !self.is_claim_valid(front) => return Ok(NOT_YOURS),
                    Some(outbound) => to.send_outbound(outbound, &self.attached)?,
                    None => return Ok((Code::DeadlineExceeded, "no message received within the lease: attach again")),
                },
                message = self.messages.next() => match message {
                    Ok(Some(message)) => self.handle(message, &mut leave_requested).await?,
                    // The instance has closed its side: its tasks are assigned to other instances.
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { .. }) => return Ok(TOO_LONG),
                    Err(_) => return Ok(UNREADABLE),
                },
                _ = check.tick() => {}
            }
        }
    }

    /// Returns true if the instance is still allowed to keep its name. A name that was removed from the configuration
    /// is kept until the objects that wait for it are finished.
    fn is_claim_valid(&mut self, front: &Front) -> bool {
        let current = &front.deps.current;
        let generation = current.load();
        if generation.number != self.generation {
            self.generation = generation.number;
            self.claim_valid = self.claim.is_admitted(&generation);
        }
        self.claim_valid || current.hub().desk(|desk| desk.is_draining(&self.claim.name, gatepost_base::clock::now()))
    }

    /// Handles one message. An unexpected answer is ignored.
    ///
    /// # Errors
    /// Returns the status that ends the stream if the message is not allowed now, or is not a message that an instance
    /// may send.
    async fn handle(&self, message: CallMessage, leave_requested: &mut bool) -> Result<(), End> {
        self.attached.renew();
        let (message, room) = match message {
            CallMessage::Whole(message, room) => (message, room),
            CallMessage::Skipped { beginning, why } => {
                let no_room = why == TurnFailure::NoRoom;
                return if self.give_up(&beginning, why) || no_room { Ok(()) } else { Err(TOO_LONG) };
            }
        };
        let prefix = message.slice(..message.len().min(TASK_ID_PREFIX_BYTES));
        let read = offload::run(message.len(), move || read(message)).await;
        match read {
            None | Some(Message::Answer(InitializerAnswer { outcome: None, .. })) => {
                self.give_up(&prefix, TurnFailure::Unable(UNREADABLE_ANSWER.to_owned()));
                return Err(UNREADABLE);
            }
            Some(Message::Claim(_)) => return Err(LATE_CLAIM),
            Some(Message::Heartbeat(_)) => {}
            Some(Message::Leave(_)) => {
                *leave_requested = true;
                self.attached.drain();
            }
            Some(Message::Answer(InitializerAnswer { task, attempt, outcome: Some(Outcome::Done(done)) })) => {
                let patch = (!done.patch.is_empty()).then_some(done.patch);
                let adds = done.add.into_iter().map(Into::into).collect();
                self.attached.answer(TaskId(task), attempt, Ok(Contribution { patch, adds }), room);
            }
            Some(Message::Answer(InitializerAnswer { task, attempt, outcome: Some(Outcome::Fail(status)) })) => {
                self.attached.answer(TaskId(task), attempt, Err(Box::new(status_info(status))), room);
            }
        }
        Ok(())
    }

    /// Fails the task of a message that was not read, without retry: the next instance would send the same message.
    /// Returns false if the first bytes do not identify a task.
    fn give_up(&self, prefix: &Bytes, why: TurnFailure) -> bool {
        let task = answered(prefix);
        if let Some((task, attempt)) = task {
            self.attached.give_up(TaskId(task), attempt, why);
        }
        task.is_some()
    }
}

impl StreamSender<'_> {
    /// Sends a message of the hub to the instance.
    fn send_outbound(&mut self, outbound: ToInstance, attached: &Attachment) -> Result<(), End> {
        match outbound {
            ToInstance::Task { task, attempt, deadline, message } => {
                let left = deadline.saturating_duration_since(Instant::now());
                let (review, namespace_labels) = (message.review.len(), &*message.namespace_labels);
                let labels: usize = namespace_labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
                // The review is reserved already.
                let Some(room) = self.reserve(labels + TASK_OVERHEAD) else {
                    attached.give_up(task, attempt, TurnFailure::NoRoom);
                    return Ok(());
                };
                let head = TaskHead { task: task.0, attempt, left, review, namespace_labels }.framed();
                self.send(Outgoing::held(head, room, self.expiring(left)))?;
                self.send(Outgoing::of_task(message, self.expiring(left)))
            }
            ToInstance::Cancel(task) => match self.reserve(TASK_OVERHEAD) {
                Some(room) => {
                    let cancel = initializers::cancel(task.0);
                    self.send(Outgoing::held(cancel, room, self.expiring(READ_TIMEOUT)))
                }
                // The answer of a cancelled task is ignored anyway.
                None => Ok(()),
            },
        }
    }

    /// Queues one message whose memory the stream has reserved.
    fn send_reserved(&mut self, message: Bytes) -> Result<(), End> {
        self.send(Outgoing::from(message).until(self.expiring(READ_TIMEOUT)))
    }
}

#[cfg(test)]
mod tests;

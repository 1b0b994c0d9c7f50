//! Attach: one instance of an initializer on one stream, from its claim to its end.
//!
//! ```text
//!   claim ──> may it have the name? ──> attached ──┬── task ──> answer ──┐
//!                                                  ├── heartbeat ────────┤  until it leaves, lapses,
//!                                                  └── cancel            ┘  or the process drains
//! ```
//!
//! Everything is bounded: the number of streams, the length of a message, the tasks that an instance has at once, the
//! messages that wait to be read by it. Its messages are read only as fast as they are processed. An instance that is
//! not heard of lapses, and one that does not read is cut off with its connection. Where there is no memory for a task or
//! its answer, that task ends, and not the stream: the task would only come to the next instance, and end its stream as
//! well. The claim to a name is checked again whenever the configuration changes.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response, header};
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};
use tonic::Code;

use super::{
    incoming::{Arrived, Incoming},
    quota::{Cost, Taken},
};
use crate::{
    front::{
        Front,
        accept::{identity::Identity, life::Life},
        answer::{GRPC_MESSAGE, GRPC_STATUS},
        connection::{
            grace,
            session::{InstanceGuard, Session},
            unsent::Expiring,
        },
        limits,
        outgoing::Outgoing,
        refusal::Refusal,
    },
    initialize::{
        TurnFailure,
        desk::TaskId,
        hub::{Attachment, Contribution, ToInstance},
    },
    live::Generation,
    memory::{Purpose, Reservation},
    offload,
    wire::initializers::{FromInstance, TaskHead, ToWire, answered, read},
};

/// Memory that one stream reserves besides its messages.
const COST: Cost = Cost { sent: 0, held: 64 << 10 };
/// Tasks that an instance has at once where it does not say.
const WINDOW: u32 = 16;
/// The most that it may say.
const WIDEST: u32 = 256;
/// Time in which the instance must read a message, beside its task's own time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a stream checks whether it is still its instance's, and whether it is the last thing a drain waits
/// for.
const EVERY: Duration = Duration::from_millis(100);
/// Bytes around the review in a task.
const AROUND: usize = 256;

/// Status with which a stream ends.
type End = (Code, &'static str);

const GONE: End = (Code::Cancelled, "");
const NOT_YOURS: End = (Code::PermissionDenied, "the name is not configured as one that you may claim any more");
const NOT_READABLE: End = (Code::InvalidArgument, "a message cannot be read");
const TOO_LONG: End = (Code::InvalidArgument, "a message is longer than 4 MiB");
const LATE_CLAIM: End = (Code::InvalidArgument, "a claim is the first message, and only that");

/// End of a task whose answer cannot be read.
const UNREAD: &str = "its answer cannot be read";
/// First bytes of a message that say which task it is of.
const BEGINNING: usize = 64;

/// Serves one stream until it ends.
pub(crate) async fn answer(
    front: &Front,
    session: &Session,
    headers: HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
    life: watch::Receiver<Life>,
) {
    let begun = tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        begun = begun(front, session, &headers, body) => begun,
    };
    match begun {
        Err(refusal) => front.refuse(&mut respond, &refusal),
        Ok(mut stream) => {
            let mut response = Response::new(());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            // An error here, and below, says that the instance is gone.
            let Ok(to) = respond.send_response(response, false) else { return };
            let mut to = InstanceSender { to, front, session };
            let (Ok((code, message)) | Err((code, message))) = stream.serve(&mut to, life).await;
            let trailers =
                [(GRPC_STATUS, HeaderValue::from(code as i32)), (GRPC_MESSAGE, HeaderValue::from_static(message))];
            let _ = to.to.send_trailers(HeaderMap::from_iter(trailers));
        }
    }
}

/// A name, and by what it is claimed.
struct Claim {
    name: Arc<str>,
    certificate: Option<Arc<str>>,
    token: Option<[u8; 32]>,
}

impl Claim {
    /// May they have the name? Where several resources have an initializer of that name, by what each of them says: a task
    /// does not name its resource.
    fn is_good(&self, generation: &Generation) -> bool {
        let all = generation.snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
        let mut attached = all.filter(|one| *one.name == *self.name).filter_map(|one| one.attach.as_ref()).peekable();
        let admitted = |by: &crate::model::Claimants| by.admit(self.certificate.as_deref(), self.token);
        attached.peek().is_some() && attached.all(admitted)
    }
}

/// An instance whose claim is good.
struct Stream<'a> {
    incoming: Incoming<'a>,
    attached: Attachment,
    claim: Claim,
    /// The generation by which that was decided last, and how.
    generation: u64,
    is_good: bool,
    window: u32,
    _instance: InstanceGuard<'a>,
    _taken: Taken<'a>,
}

/// The claim, checked.
async fn begun<'a>(
    front: &'a Front,
    session: &'a Session,
    headers: &HeaderMap,
    body: RecvStream,
) -> Result<Stream<'a>, Refusal> {
    if headers.get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
        return Err(Refusal::Compressed);
    }
    let current = &front.gate().current;
    // Where there is nothing to claim nothing is read.
    if current.load().snapshot.claimed().next().is_none() {
        return Err(Refusal::NotYours);
    }
    let budget = front.inflight().budget();
    let _taken = front.attaching().take(session, budget, COST)?;
    let mut incoming = Incoming::new(body, budget);
    let first = timeout(limits::HANDSHAKE, incoming.next()).await;
    let message = match first.map_err(|_| Refusal::ColdDeadline { within: limits::HANDSHAKE })?? {
        Some(Arrived::Message(message, _)) => message,
        Some(Arrived::PassedOver { beginning, .. }) => return Err(Refusal::Overloaded { bytes: beginning.len() }),
        None => return Err(Refusal::NotAClaim),
    };
    let Some(FromInstance::Claim { name, token, window }) = read(message) else { return Err(Refusal::NotAClaim) };
    let certificate = match session.client().identity() {
        Identity::Certificate(name) => Some(Arc::clone(name)),
        _ => None,
    };
    let token = (!token.is_empty()).then(|| Sha256::digest(token).into());
    let claim = Claim { name: name.into(), certificate, token };
    let generation = current.load();
    // The same answer for a name that does not exist as for one of another's.
    if !claim.is_good(&generation) {
        return Err(Refusal::NotYours);
    }
    let window = if window == 0 { WINDOW } else { window.min(WIDEST) };
    let attached = current.hub().attach(&claim.name, window as usize, Instant::now());
    let attached = attached.ok_or(Refusal::TooManyInstances)?;
    incoming.take_answers();
    let _instance = session.attach();
    let generation = generation.number;
    Ok(Stream { incoming, attached, claim, generation, is_good: true, window, _instance, _taken })
}

impl Stream<'_> {
    /// Carries messages both ways.
    async fn serve(&mut self, to: &mut InstanceSender<'_>, mut life: watch::Receiver<Life>) -> Result<End, End> {
        let front = to.front;
        let lease = front.gate().current.hub().lease();
        to.send_reserved(ToWire::Attached { lease, window: self.window })?;
        let mut grace = pin!(grace::over(life.clone(), grace::length(front.limits())));
        let mut draining = pin!(async move {
            // Without a sender nobody serves any more.
            drop(life.wait_for(|life| *life != Life::Serving).await);
        });
        let (mut drains, mut over, mut leaves) = (false, false, false);
        let mut look = interval(EVERY);
        loop {
            if !self.is_still_good(front) {
                return Ok(NOT_YOURS);
            }
            if !self.attached.is_busy() {
                if leaves {
                    return Ok((Code::Ok, ""));
                }
                // Reviews under way may still have a task for it.
                if over && front.inflight().requests() == 0 {
                    return Ok((Code::Unavailable, "shutting down"));
                }
            }
            tokio::select! {
                biased;
                _ = poll_fn(|cx| to.to.poll_reset(cx)) => return Ok(GONE),
                () = &mut draining, if !drains => {
                    drains = true;
                    to.send_reserved(ToWire::Draining)?;
                }
                () = &mut grace, if !over => over = true,
                outbound = self.attached.recv() => match outbound {
                    // By what is in force now.
                    Some(_) if !self.is_still_good(front) => return Ok(NOT_YOURS),
                    Some(outbound) => to.pass(outbound, &self.attached)?,
                    None => return Ok((Code::DeadlineExceeded, "not heard of for too long: attach again")),
                },
                message = self.incoming.next() => match message {
                    Ok(Some(arrived)) => self.take(arrived, &mut leaves).await?,
                    // It says no more: what it has is given to others.
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { .. }) => return Ok(TOO_LONG),
                    Err(_) => return Ok(NOT_READABLE),
                },
                _ = look.tick() => {}
            }
        }
    }

    /// May it still have its name, by the configuration in force? A name that nobody may claim any more is its until the
    /// objects that wait for it are done.
    fn is_still_good(&mut self, front: &Front) -> bool {
        let current = &front.gate().current;
        let generation = current.load();
        if generation.number != self.generation {
            self.generation = generation.number;
            self.is_good = self.claim.is_good(&generation);
        }
        self.is_good || current.hub().is_draining(&self.claim.name)
    }

    /// Takes what has arrived. An answer that does not count changes nothing.
    ///
    /// # Errors
    /// The stream ends: it may not come now, or is no message of an instance.
    async fn take(&self, arrived: Arrived, leaves: &mut bool) -> Result<(), End> {
        self.attached.renew();
        let (message, room) = match arrived {
            Arrived::Message(message, room) => (message, room),
            Arrived::PassedOver { beginning, why } => {
                let no_room = why == TurnFailure::NoRoom;
                return if self.give_up(&beginning, why) || no_room { Ok(()) } else { Err(TOO_LONG) };
            }
        };
        let beginning = message.slice(..message.len().min(BEGINNING));
        let read = offload::run(message.len(), move || read(message)).await;
        match read {
            None => {
                self.give_up(&beginning, TurnFailure::Unable(UNREAD.to_owned()));
                return Err(NOT_READABLE);
            }
            Some(FromInstance::Claim { .. }) => return Err(LATE_CLAIM),
            Some(FromInstance::Heartbeat) => {}
            Some(FromInstance::Leave) => {
                *leaves = true;
                self.attached.drain();
            }
            Some(FromInstance::Done { task, attempt, patch, adds }) => {
                let patch = (!patch.is_empty()).then_some(patch);
                let adds = adds.into_iter().map(Into::into).collect();
                self.attached.answer(TaskId(task), attempt, Ok(Contribution { patch, adds }), room);
            }
            Some(FromInstance::Failed { task, attempt, status }) => {
                self.attached.answer(TaskId(task), attempt, Err(status), room);
            }
        }
        Ok(())
    }

    /// Ends the task of a message that is not taken, and nothing else: the next instance would say the same. False where
    /// the first bytes do not say which task that is.
    fn give_up(&self, beginning: &Bytes, why: TurnFailure) -> bool {
        let answered = answered(beginning);
        if let Some((task, attempt)) = answered {
            self.attached.give_up(TaskId(task), attempt, why);
        }
        answered.is_some()
    }
}

/// Sender of messages to the instance.
struct InstanceSender<'a> {
    to: SendStream<Outgoing>,
    front: &'a Front,
    session: &'a Session,
}

impl InstanceSender<'_> {
    /// Sends one message of the hub.
    fn pass(&mut self, outbound: ToInstance, attached: &Attachment) -> Result<(), End> {
        match outbound {
            ToInstance::Task { task, attempt, deadline, message } => {
                let left = deadline.saturating_duration_since(Instant::now());
                let (review, namespace_labels) = (message.review.len(), &*message.namespace_labels);
                let labels: usize = namespace_labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
                // The review has its room already.
                let Some(room) = self.reserve(labels + AROUND) else {
                    attached.give_up(task, attempt, TurnFailure::NoRoom);
                    return Ok(());
                };
                let head = TaskHead { task: task.0, attempt, left, review, namespace_labels }.framed();
                self.send(Outgoing::held(head, room, self.expiring(left)))?;
                self.send(Outgoing::of_task(message, self.expiring(left)))
            }
            ToInstance::Cancel(task) => match self.reserve(AROUND) {
                Some(room) => {
                    let cancel = ToWire::Cancel { task: task.0 }.framed();
                    self.send(Outgoing::held(cancel, room, self.expiring(PATIENCE)))
                }
                // Its answer is ignored in any case.
                None => Ok(()),
            },
        }
    }

    /// Queues one message whose room is part of what the stream reserves.
    fn send_reserved(&mut self, message: ToWire) -> Result<(), End> {
        self.send(Outgoing::from(message.framed()).until(self.expiring(PATIENCE)))
    }

    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.front.inflight().budget().reserve(Purpose::Queue, bytes)
    }

    /// Time in which the instance is to read it.
    fn expiring(&self, within: Duration) -> Expiring {
        let now = Instant::now();
        self.session.unsent().add(now, now + within)
    }

    fn send(&mut self, message: Outgoing) -> Result<(), End> {
        self.to.send_data(message, false).map_err(|_| GONE)
    }
}

#[cfg(test)]
#[path = "attach/tests.rs"]
mod tests;

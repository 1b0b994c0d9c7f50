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
//! not heard of lapses, and one that does not read is cut off with its connection. The claim to a name is checked again
//! whenever the configuration changes.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response, header};
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{interval, timeout},
};
use tonic::Code;

use super::{
    frames::Frames,
    quota::{Cost, Taken},
};
use crate::{
    front::{
        Front,
        accept::{identity::Identity, life::Life},
        answer::{GRPC_MESSAGE, GRPC_STATUS},
        connection::{grace, session::Session},
        limits,
        outgoing::Outgoing,
        refusal::Refusal,
    },
    initialize::desk::TaskId,
    live::{
        Generation,
        hub::{Answered, Attached, Made, ToInstance},
    },
    memory::{Purpose, Reservation},
    wire::initializers::{FromInstance, ToWire, read},
};

/// The longest message of an instance: a patch that replaces the largest object, and what stands around it.
const LONGEST: usize = 4 << 20;
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
const NO_ROOM: End = (Code::ResourceExhausted, "no room for a message at the moment: attach again");

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
            let mut to = Telling { to, front, session };
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
    /// does not tell of which it is.
    fn is_good(&self, generation: &Generation) -> bool {
        let all = generation.snapshot.initializers().iter().flat_map(|entry| &entry.initializers);
        let mut attached = all.filter(|one| *one.name == *self.name).filter_map(|one| one.attach.as_ref()).peekable();
        let admitted = |by: &crate::model::Claimants| by.admit(self.certificate.as_deref(), self.token);
        attached.peek().is_some() && attached.all(admitted)
    }
}

/// An instance whose claim is good.
struct Stream<'a> {
    incoming: Frames<'a>,
    attached: Attached,
    claim: Claim,
    /// The generation by which it is.
    generation: u64,
    window: u32,
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
    let _taken = front.attaching().take(session, front.inflight().budget(), COST)?;
    let mut incoming = Frames::new(front, body, LONGEST);
    let first = timeout(limits::HANDSHAKE, next(&mut incoming)).await;
    let first = first.map_err(|_| Refusal::ColdDeadline { within: limits::HANDSHAKE })??;
    let Some((FromInstance::Claim { name, token, window }, _)) = first else { return Err(Refusal::NotAClaim) };
    let certificate = match session.client().identity() {
        Identity::Certificate(name) => Some(Arc::clone(name)),
        _ => None,
    };
    let token = (!token.is_empty()).then(|| Sha256::digest(token).into());
    let claim = Claim { name: name.into(), certificate, token };
    let current = &front.gate().current;
    let generation = current.load();
    // One that does not exist is told the same as one that is another's.
    if !claim.is_good(&generation) {
        return Err(Refusal::NotYours);
    }
    let window = if window == 0 { WINDOW } else { window.min(WIDEST) };
    let attached = current.hub().attach(&claim.name, window as usize, Instant::now());
    let attached = attached.ok_or(Refusal::TooManyInstances)?;
    Ok(Stream { incoming, attached, claim, generation: generation.number, window, _taken })
}

impl Stream<'_> {
    /// Carries messages both ways.
    async fn serve(&mut self, to: &mut Telling<'_>, mut life: watch::Receiver<Life>) -> Result<End, End> {
        let front = to.front;
        let lease = front.gate().current.hub().lease();
        to.tell(&ToWire::Attached { lease, window: self.window }, AROUND, PATIENCE)?;
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
                    to.tell(&ToWire::Draining, AROUND, PATIENCE)?;
                }
                () = &mut grace, if !over => over = true,
                told = self.attached.told() => match told {
                    // By what is in force now.
                    Some(_) if !self.is_still_good(front) => return Ok(NOT_YOURS),
                    Some(told) => to.pass(told)?,
                    None => return Ok((Code::DeadlineExceeded, "not heard of for too long: attach again")),
                },
                message = next(&mut self.incoming) => match message {
                    Ok(Some((message, room))) => {
                        if !self.take(message, room, &mut leaves) {
                            return Ok((Code::InvalidArgument, "a claim is the first message, and only that"));
                        }
                    }
                    // It says no more: what it has is given to others.
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { .. } | Refusal::Overloaded { .. }) => {
                        return Ok((Code::ResourceExhausted, "a message is larger than there is room for"));
                    }
                    Err(_) => return Ok((Code::InvalidArgument, "a message cannot be read")),
                },
                _ = look.tick() => {}
            }
        }
    }

    /// May it still have its name, by the configuration in force?
    fn is_still_good(&mut self, front: &Front) -> bool {
        let generation = front.gate().current.load();
        if generation.number != self.generation {
            self.generation = generation.number;
            return self.claim.is_good(&generation);
        }
        true
    }

    /// Takes one message; false where it may not come now. An answer that does not count changes nothing.
    fn take(&self, message: FromInstance, room: Reservation, leaves: &mut bool) -> bool {
        self.attached.heard();
        match message {
            FromInstance::Claim { .. } => return false,
            FromInstance::Heartbeat => {}
            FromInstance::Leave => {
                *leaves = true;
                self.attached.leave();
            }
            FromInstance::Done { task, attempt, patch, adds } => {
                let patch = (!patch.is_empty()).then_some(patch);
                let adds = adds.into_iter().map(Into::into).collect();
                self.attached.answer(TaskId(task), attempt, Answered::Done(Made { patch, adds }), room);
            }
            FromInstance::Failed { task, attempt, status } => {
                self.attached.answer(TaskId(task), attempt, Answered::Failed(status), room);
            }
        }
        true
    }
}

/// The next message of an instance, and its room in the memory budget; `None` at the end of the stream. May be dropped and
/// called again: nothing is lost.
async fn next(frames: &mut Frames<'_>) -> Result<Option<(FromInstance, Reservation)>, Refusal> {
    let Some((message, room)) = frames.next().await? else { return Ok(None) };
    Ok(Some((read(message).ok_or(Refusal::NotAClaim)?, room)))
}

/// Messages on their way to the instance.
struct Telling<'a> {
    to: SendStream<Outgoing>,
    front: &'a Front,
    session: &'a Session,
}

impl Telling<'_> {
    /// Passes on what the instance is told.
    fn pass(&mut self, told: ToInstance) -> Result<(), End> {
        match told {
            ToInstance::Task { task, attempt, deadline, message } => {
                let left = deadline.saturating_duration_since(Instant::now());
                let (review, namespace_labels) = (&message.review, &*message.namespace_labels);
                let labels: usize = namespace_labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
                let told = ToWire::Task { task: task.0, attempt, left, review, namespace_labels };
                self.tell(&told, review.len() + labels + AROUND, left)
            }
            ToInstance::Cancel(task) => self.tell(&ToWire::Cancel { task: task.0 }, AROUND, PATIENCE),
        }
    }

    /// Queues one message of about that many bytes, to be read in that time.
    fn tell(&mut self, message: &ToWire<'_>, bytes: usize, within: Duration) -> Result<(), End> {
        let room = self.front.inflight().budget().reserve(Purpose::Queue, bytes).ok_or(NO_ROOM)?;
        let now = Instant::now();
        let expiring = self.session.unsent().add(now, now + within);
        self.to.send_data(Outgoing::held(message.framed(), room, expiring), false).map_err(|_| GONE)
    }
}

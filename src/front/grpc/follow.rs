//! Follow: the unfinished objects of one apiserver on one stream, and what is to be corrected of them.
//!
//! ```text
//!   every unfinished object ──> synced ──┬── a change ──> event ──────────────┐
//!                                        ├── a head that is late ──> correction │  until the apiserver
//!                                        └── a hold that knows too little ──> look ┘  ends, or the process
//! ```
//!
//! Nothing is acknowledged: a correction shows in the next report of its object, and one that was lost is decided again.

use crate::model::initialization::MAX_PENDING;
use std::{
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::{sync::watch, time::interval};
use tonic::Code;

use super::{frames::Frames, quota::Cost};
use crate::{
    front::{
        Front,
        accept::life::Life,
        answer::{GRPC_MESSAGE, GRPC_STATUS},
        connection::session::Session,
        outgoing::Outgoing,
        refusal::Refusal,
    },
    initialize::{
        Correction, CorrectiveAction, Initializers,
        stored_objects::{Following, SoughtObject, ToFollower},
        stored_result,
        unfinished::{StoredEvent, StoredObject},
    },
    memory::{Purpose, Reservation},
    review::read_policy::head_rule,
    telemetry::DroppedReport,
    wire::{initialization as wire, outbound::framed, pb::gatepost::v1 as pb},
};

/// The longest message: a list of the most names, and a Status.
const LONGEST: usize = 256 << 10;
/// The longest that is passed over. A peer that sends more is not waited for.
const LONGEST_PASSED: usize = 16 << 20;
/// Interval of log lines about what was passed over.
const LOGGED: Duration = Duration::from_secs(1);
/// Memory of one stream besides its messages and objects.
const COST: Cost = Cost { sent: 0, held: 64 << 10 };
/// Time for the apiserver to read a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the controller's looks.
const EVERY: Duration = Duration::from_secs(1);
/// Corrections of the controller in that time.
const CORRECTIONS: usize = 500;
/// Longest name, and id, of an object.
pub(super) const LONGEST_NAME: usize = 253;

/// Status at the end of a stream.
type End = (Code, &'static str);

const GONE: End = (Code::Cancelled, "");
const NO_ROOM: End =
    (Code::ResourceExhausted, "no room for so many unfinished objects at the moment: begin again later");
const UNREADABLE: End = (Code::InvalidArgument, "a message cannot be read");

/// Serves one stream until it ends.
pub(crate) async fn answer(
    front: &Front,
    session: &Session,
    headers: HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
    life: watch::Receiver<Life>,
) {
    if headers.get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
        return front.refuse(&mut respond, &Refusal::Compressed);
    }
    let _taken = match front.attaching().take(session, front.inflight().budget(), COST) {
        Ok(taken) => taken,
        Err(refusal) => return front.refuse(&mut respond, &refusal),
    };
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    // An error here, and below, says that the apiserver is gone.
    let Ok(to) = respond.send_response(response, false) else { return };
    let following = front.gate().current.stored().follow(&session.client().identity().to_key());
    let room = front.inflight().budget().empty(Purpose::Queue);
    let mut stream = Stream { to, front, session, following, room, passed_over: (0, None) };
    let (Ok((code, message)) | Err((code, message))) = stream.serve(Frames::new(front, body, LONGEST), life).await;
    let trailers = [(GRPC_STATUS, HeaderValue::from(code as i32)), (GRPC_MESSAGE, HeaderValue::from_static(message))];
    let _ = stream.to.send_trailers(HeaderMap::from_iter(trailers));
}

/// An apiserver that follows.
struct Stream<'a> {
    to: SendStream<Outgoing>,
    front: &'a Front,
    session: &'a Session,
    following: Following,
    /// Room of its objects.
    room: Reservation,
    /// Reports that were passed over since the last log line, and when that was.
    passed_over: (u64, Option<Instant>),
}

impl Stream<'_> {
    /// Carries messages both ways.
    async fn serve(&mut self, mut from: Frames<'_>, mut life: watch::Receiver<Life>) -> Result<End, End> {
        let mut draining = pin!(async move {
            // Without a sender nobody serves any more.
            drop(life.wait_for(|life| *life != Life::Serving).await);
        });
        let mut look = interval(EVERY);
        loop {
            tokio::select! {
                biased;
                _ = poll_fn(|cx| self.to.poll_reset(cx)) => return Ok(GONE),
                () = &mut draining => {
                    self.send(pb::follower_message::Message::Draining(pb::Draining {}))?;
                    return Ok((Code::Unavailable, "shutting down"));
                }
                _ = look.tick() => self.control().await?,
                queued = self.following.recv() => match queued {
                    Some(ToFollower::Correct(correction)) => self.correct(correction)?,
                    Some(ToFollower::Look(sought)) => self.send(look_at(&sought))?,
                    None => return Ok(GONE),
                },
                message = from.next() => match message {
                    Ok(Some((message, _room))) => self.take(message)?,
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { declared, .. }) if declared <= LONGEST_PASSED => {
                        self.pass_over(DroppedReport::Message);
                    }
                    Err(Refusal::TooLarge { .. }) => return Ok(self.end(DroppedReport::Message, NO_ROOM)),
                    Err(Refusal::Overloaded { .. }) => return Ok(self.end(DroppedReport::NoRoom, NO_ROOM)),
                    Err(_) => return Ok(self.end(DroppedReport::Unreadable, UNREADABLE)),
                },
            }
        }
    }

    /// Takes one report.
    fn take(&mut self, message: Bytes) -> Result<(), End> {
        let (uid, read) = match wire::event(message) {
            Some(wire::StoredObjectReport::Event(pb::StoredObjectEvent { event: Some(read) })) => {
                (uid_of(&read), event(read))
            }
            Some(wire::StoredObjectReport::TooManyNames(uid)) => (uid, Err(DroppedReport::Names)),
            Some(wire::StoredObjectReport::TooManyCauses(uid)) => (uid, Err(DroppedReport::Causes)),
            Some(wire::StoredObjectReport::Event(pb::StoredObjectEvent { event: None })) | None => {
                (None, Err(DroppedReport::Unreadable))
            }
        };
        match read {
            Ok(event) => {
                if !self.following.apply(event) {
                    self.front.gate().metrics.dropped_report(DroppedReport::Unknown);
                }
            }
            Err(DroppedReport::Unreadable) => return Err(self.end(DroppedReport::Unreadable, UNREADABLE)),
            Err(too_long) => {
                // It is no longer what it was before.
                uid.iter().for_each(|uid| self.following.forget(uid));
                self.pass_over(too_long);
            }
        }
        let size = self.following.size();
        if size > self.room.bytes() && !self.room.try_grow(size - self.room.bytes()) {
            return Err(self.end(DroppedReport::NoRoom, NO_ROOM));
        }
        self.room.shrink_to(size);
        Ok(())
    }

    /// The end of the stream by a report that cannot be taken.
    fn end(&self, reason: DroppedReport, end: End) -> End {
        self.front.gate().metrics.dropped_report(reason);
        end
    }

    /// Passes over one report that is too long: that object is not followed, and all others are.
    fn pass_over(&mut self, reason: DroppedReport) {
        self.front.gate().metrics.dropped_report(reason);
        let (count, logged) = &mut self.passed_over;
        *count += 1;
        let now = Instant::now();
        if logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOGGED) {
            tracing::warn!(
                count,
                "passed over reports of unfinished objects that are too long; these are not corrected"
            );
            (*count, *logged) = (0, Some(now));
        }
    }

    /// Corrects heads that nobody holds.
    async fn control(&mut self) -> Result<(), End> {
        let current = &self.front.gate().current;
        let now = Instant::now();
        let generation = current.load();
        let age = current.age(now).filter(|_| current.is_fresh(now));
        let read = age.and_then(|age| now.checked_sub(age));
        for correction in self.following.control(read, |object| head_rule(&generation, object), CORRECTIONS).await {
            self.correct(correction)?;
        }
        Ok(())
    }

    fn correct(&mut self, Correction { object, remedy }: Correction) -> Result<(), End> {
        use pb::correction::Remedy as Wire;
        let remedy = match remedy {
            CorrectiveAction::RemoveHead(head) => Wire::RemoveHead(head.into()),
            CorrectiveAction::Fail(status) => Wire::Fail(wire::status(&status)),
            CorrectiveAction::Delete => Wire::Delete(pb::Deleted {}),
        };
        self.send(pb::follower_message::Message::Correction(pb::Correction {
            group: object.group.to_string(),
            resource: object.resource.to_string(),
            namespace: object.namespace.to_string(),
            name: object.name.to_string(),
            uid: object.uid.to_string(),
            resource_version: object.resource_version.to_string(),
            remedy: Some(remedy),
        }))
    }

    /// Queues one message.
    fn send(&mut self, message: pb::follower_message::Message) -> Result<(), End> {
        let message = framed(&pb::FollowerMessage { message: Some(message) });
        let room = self.front.inflight().budget().reserve(Purpose::Queue, message.len()).ok_or(NO_ROOM)?;
        let now = Instant::now();
        let expiring = self.session.unsent().add(now, now + PATIENCE);
        self.to.send_data(Outgoing::held(message, room, expiring), false).map_err(|_| GONE)
    }
}

fn look_at(sought: &SoughtObject) -> pb::follower_message::Message {
    let SoughtObject { group, resource, namespace, name, uid } = sought;
    pb::follower_message::Message::Look(pb::Look {
        group: group.to_string(),
        resource: resource.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        uid: uid.to_string(),
    })
}

/// The uid of the object of which this says how it is.
fn uid_of(event: &pb::stored_object_event::Event) -> Option<String> {
    use pb::stored_object_event::Event;
    match event {
        Event::Unfinished(pb::StoredObject { uid, .. }) | Event::Initialized(pb::Initialized { uid, .. }) => {
            Some(uid.clone())
        }
        Event::Gone(_) | Event::Synced(_) => None,
    }
}

/// A report that was read.
fn event(event: pb::stored_object_event::Event) -> Result<StoredEvent, DroppedReport> {
    use pb::stored_object_event::Event;
    Ok(match event {
        Event::Unfinished(object) => StoredEvent::Unfinished(stored(object)?),
        Event::Initialized(pb::Initialized { uid, resource_version }) => {
            StoredEvent::Initialized { uid: name(uid)?.into(), resource_version: short(resource_version)? }
        }
        Event::Gone(pb::Gone { uid }) => StoredEvent::Gone { uid: name(uid)?.into() },
        Event::Synced(_) => StoredEvent::Synced,
    })
}

/// A text that may be empty.
fn short(text: String) -> Result<Box<str>, DroppedReport> {
    if text.len() > LONGEST_NAME { Err(DroppedReport::Text) } else { Ok(text.into()) }
}

/// A text that may not.
fn name(text: String) -> Result<Box<str>, DroppedReport> {
    if text.is_empty() { Err(DroppedReport::Unreadable) } else { short(text) }
}

fn stored(object: pb::StoredObject) -> Result<StoredObject, DroppedReport> {
    let mut pending = object.pending;
    // Of a list that is longer than any may be, the head is what counts.
    pending.truncate(MAX_PENDING);
    let pending = pending.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
    let result = object.result.map(|status| Box::new(stored_result(wire::status_info(status))));
    // An object without a list is initialized, and is reported as that.
    let list = Initializers { pending, result }.normalized().ok_or(DroppedReport::Unreadable)?;
    Ok(StoredObject {
        group: short(object.group)?,
        resource: name(object.resource)?,
        namespace: short(object.namespace)?,
        name: name(object.name)?,
        uid: name(object.uid)?.into(),
        resource_version: name(object.resource_version)?,
        list,
    })
}

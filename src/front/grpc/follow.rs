//! Follow: the unfinished objects of one apiserver on one stream, and what is to be corrected of them.
//!
//! ```text
//!   every unfinished object ──> synced ──┬── a change ──> event ──────────────┐
//!                                        ├── a head that is late ──> correction │  until the apiserver
//!                                        └── a hold that knows too little ──> look ┘  ends, or the process
//! ```
//!
//! Nothing is acknowledged: a correction shows in the next report of its object, and one that was lost is decided again.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::{sync::watch, time::interval};
use tonic::Code;

use super::{frames::Frames, quota::Cost};
use crate::{
    admit::read_policy::head_rule,
    front::{
        Front,
        accept::life::Life,
        answer::{GRPC_MESSAGE, GRPC_STATUS},
        connection::session::Session,
        outgoing::Outgoing,
        refusal::Refusal,
    },
    initialize::{
        Initializers, MOST_PENDING,
        unfinished::{Correction, Remedy, StoredEvent, StoredObject},
    },
    live::stored_objects::{Following, SoughtObject, ToFollower},
    memory::{Purpose, Reservation},
    wire::{initialization as wire, outbound::framed, pb::gatepost::v1 as pb},
};

/// The longest message: a list of the most names, and a Status.
const LONGEST: usize = 256 << 10;
/// Memory of one stream besides its messages and objects.
const COST: Cost = Cost { sent: 0, held: 64 << 10 };
/// Time for the apiserver to read a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the controller's looks.
const EVERY: Duration = Duration::from_secs(1);
/// Corrections of the controller in that time.
const CORRECTIONS: usize = 500;
/// Longest name, and id, of an object.
const LONGEST_NAME: usize = 253;

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
    let mut stream = Stream { to, front, session, following, room };
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
                    self.tell(pb::follower_message::Message::Draining(pb::Draining {}))?;
                    return Ok((Code::Unavailable, "shutting down"));
                }
                _ = look.tick() => self.control().await?,
                told = self.following.told() => match told {
                    Some(ToFollower::Correct(correction)) => self.correct(correction)?,
                    Some(ToFollower::Look(sought)) => self.tell(look_at(sought))?,
                    None => return Ok(GONE),
                },
                message = from.next() => match message {
                    Ok(Some((message, _room))) => self.take(message)?,
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { .. } | Refusal::Overloaded { .. }) => return Ok(NO_ROOM),
                    Err(_) => return Ok(UNREADABLE),
                },
            }
        }
    }

    /// Takes one report.
    fn take(&mut self, message: Bytes) -> Result<(), End> {
        let event = wire::event(message).and_then(|event| event.event).and_then(event).ok_or(UNREADABLE)?;
        self.following.take(event);
        let size = self.following.size();
        if size > self.room.bytes() && !self.room.try_grow(size - self.room.bytes()) {
            return Err(NO_ROOM);
        }
        self.room.shrink_to(size);
        Ok(())
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
            Remedy::RemoveHead(head) => Wire::RemoveHead(head.into()),
            Remedy::Fail(status) => Wire::Fail(wire::status(&status)),
            Remedy::Delete => Wire::Delete(pb::Deleted {}),
        };
        self.tell(pb::follower_message::Message::Correction(pb::Correction {
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
    fn tell(&mut self, message: pb::follower_message::Message) -> Result<(), End> {
        let message = framed(&pb::FollowerMessage { message: Some(message) });
        let room = self.front.inflight().budget().reserve(Purpose::Queue, message.len()).ok_or(NO_ROOM)?;
        let now = Instant::now();
        let expiring = self.session.unsent().add(now, now + PATIENCE);
        self.to.send_data(Outgoing::held(message, room, expiring), false).map_err(|_| GONE)
    }
}

fn look_at(SoughtObject { group, resource, namespace, name, uid }: SoughtObject) -> pb::follower_message::Message {
    pb::follower_message::Message::Look(pb::Look {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.to_string(),
    })
}

/// A report that was read; `None` where it is none that an apiserver could make.
fn event(event: pb::stored_object_event::Event) -> Option<StoredEvent> {
    use pb::stored_object_event::Event;
    let id = |text: String| -> Option<Arc<str>> { is_name(&text).then(|| text.into()) };
    Some(match event {
        Event::Unfinished(object) => StoredEvent::Unfinished(stored(object)?),
        Event::Initialized(pb::Initialized { uid, resource_version }) => {
            StoredEvent::Initialized { uid: id(uid)?, resource_version: resource_version.into() }
        }
        Event::Gone(pb::Gone { uid }) => StoredEvent::Gone { uid: id(uid)? },
        Event::Synced(_) => StoredEvent::Synced,
    })
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
}

fn stored(object: pb::StoredObject) -> Option<StoredObject> {
    let pb::StoredObject { group, resource, namespace, name, uid, resource_version, pending, result } = object;
    let texts = [&resource, &name, &uid, &resource_version];
    if !texts.into_iter().all(|text| is_name(text)) || pending.len() > MOST_PENDING {
        return None;
    }
    if !pending.iter().all(|name| is_name(name)) || group.len().max(namespace.len()) > LONGEST_NAME {
        return None;
    }
    let result = result.map(|status| Box::new(wire::status_info(status)));
    // An object without a list is initialized, and is reported as that.
    let list = Initializers { result, ..Initializers::of(pending) }.normalized()?;
    let (group, resource, namespace, name) = (group.into(), resource.into(), namespace.into(), name.into());
    Some(StoredObject {
        group,
        resource,
        namespace,
        name,
        uid: uid.into(),
        resource_version: resource_version.into(),
        list,
    })
}

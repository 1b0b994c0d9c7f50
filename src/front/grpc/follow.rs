//! Follow: a stream on which one apiserver reports its unfinished objects and gets corrections of them.
//!
//! ```text
//!   every unfinished object ──> synced ──┬── change ──> event ───────────────┐
//!                                        ├── late head ──> correction ───────┤  until the apiserver
//!                                        └── hold without a report ──> look ─┘  or the process ends
//! ```
//!
//! Nothing is acknowledged: a correction shows in the next report of its object, and a lost one is decided again.

use gatepost_api::initialization::MAX_PENDING;
use std::{
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;
use tokio::time::interval;
use tonic::Code;

use super::{CallMessage, CallMessages, End, GONE, MAX_SKIPPED_MESSAGE, StreamSender, UNREADABLE, begin_stream};
use crate::{
    front::{outgoing::Outgoing, refusal::Refusal, state::ConnectionContext},
    telemetry::DroppedReport,
};
use gatepost_base::memory::{Purpose, Reservation};
use gatepost_initializers::{
    Correction, CorrectiveAction, Initializers,
    stored_objects::{Following, SoughtObject, ToFollower},
    stored_result,
    unfinished::{StoredEvent, StoredObject},
};
use gatepost_wire::{initializers as wire, outbound::framed, pb::gatepost::v1 as pb};

/// Maximum size of a message, in bytes: a list with the maximum number of names, and a Status.
const MAX_MESSAGE: usize = 256 << 10;
/// Interval of log lines about skipped messages.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Memory of one stream besides its messages and objects.
const STREAM_MEMORY: usize = 64 << 10;
/// Interval at which the controller checks for late heads.
const CONTROL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of corrections of the controller in that interval.
const MAX_CORRECTIONS: usize = 500;
/// Maximum length of the name or id of an object, in bytes.
pub(super) const MAX_NAME: usize = 253;

const NO_ROOM: End =
    (Code::ResourceExhausted, "no room for so many unfinished objects at the moment: begin again later");

/// Serves one stream until it ends.
pub(crate) async fn answer(
    context: &ConnectionContext,
    headers: &HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let Some((_quota_guard, to)) = begin_stream(context, headers, &mut respond, STREAM_MEMORY) else { return };
    let front = &context.front;
    let following = front.deps.current.stored().follow(&context.session.client.identity.to_key());
    let room = front.budget().empty(Purpose::Queue);
    let mut stream = Stream { to, context, following, room, skipped: (0, None) };
    let end = stream.serve(CallMessages::new(body, front.budget(), MAX_MESSAGE, MAX_SKIPPED_MESSAGE)).await;
    stream.to.end(end);
}

/// Stream of one apiserver.
struct Stream<'a> {
    to: StreamSender<'a>,
    context: &'a ConnectionContext,
    following: Following,
    /// Reservation for its objects.
    room: Reservation,
    /// Number of reports skipped since the last log line, and the time of that line.
    skipped: (u64, Option<Instant>),
}

impl Stream<'_> {
    /// Transfers messages in both directions until the stream ends.
    async fn serve(&mut self, mut messages: CallMessages<'_>) -> Result<End, End> {
        let mut draining = pin!(self.context.drain.begun());
        let mut control = interval(CONTROL_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = self.to.reset() => return Ok(GONE),
                () = &mut draining => {
                    self.send(pb::follower_message::Message::Draining(pb::Draining {}))?;
                    return Ok((Code::Unavailable, "shutting down"));
                }
                _ = control.tick() => self.control().await?,
                queued = self.following.recv() => match queued {
                    Some(ToFollower::Correct(correction)) => self.correct(correction)?,
                    Some(ToFollower::Look(sought)) => self.send(look_at(&sought))?,
                    None => return Ok(GONE),
                },
                message = messages.next() => match message {
                    Ok(Some(CallMessage::Whole(message, _room))) => self.handle(message)?,
                    Ok(Some(CallMessage::Skipped { .. })) => self.skip_report(DroppedReport::Message),
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Err(Refusal::TooLarge { .. }) => return Ok(self.end(DroppedReport::Message, NO_ROOM)),
                    Err(Refusal::Overloaded { .. }) => return Ok(self.end(DroppedReport::NoRoom, NO_ROOM)),
                    Err(_) => return Ok(self.end(DroppedReport::Unreadable, UNREADABLE)),
                },
            }
        }
    }

    /// Handles one report.
    fn handle(&mut self, message: Bytes) -> Result<(), End> {
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
                    self.context.front.deps.metrics.dropped_report(DroppedReport::Unknown);
                }
            }
            Err(DroppedReport::Unreadable) => return Err(self.end(DroppedReport::Unreadable, UNREADABLE)),
            Err(too_long) => {
                // The earlier report of the object is outdated.
                uid.iter().for_each(|uid| self.following.forget(uid));
                self.skip_report(too_long);
            }
        }
        let size = self.following.size();
        if size > self.room.bytes() && !self.room.try_grow(size - self.room.bytes()) {
            return Err(self.end(DroppedReport::NoRoom, NO_ROOM));
        }
        self.room.shrink_to(size);
        Ok(())
    }

    /// Counts a report that ends the stream, and returns `end`.
    fn end(&self, reason: DroppedReport, end: End) -> End {
        self.context.front.deps.metrics.dropped_report(reason);
        end
    }

    /// Skips one report that is too long: its object is not followed, all others are.
    fn skip_report(&mut self, reason: DroppedReport) {
        self.context.front.deps.metrics.dropped_report(reason);
        let (count, logged) = &mut self.skipped;
        *count += 1;
        let now = Instant::now();
        if logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL) {
            tracing::warn!(
                count,
                "passed over reports of unfinished objects that are too long; these are not corrected"
            );
            (*count, *logged) = (0, Some(now));
        }
    }

    /// Corrects late heads for which no hold waits.
    async fn control(&mut self) -> Result<(), End> {
        let current = &self.context.front.deps.current;
        let now = Instant::now();
        let generation = current.load();
        let age = current.freshness().age(now).filter(|_| current.freshness().is_fresh(now));
        let read = age.and_then(|age| now.checked_sub(age));
        for correction in self.following.control(read, |object| generation.head_rule(object), MAX_CORRECTIONS).await {
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
        self.to.send_held(framed(&pb::FollowerMessage { message: Some(message) }), NO_ROOM)
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

/// Returns the uid of the object whose state the event reports; `None` if it reports no state.
fn uid_of(event: &pb::stored_object_event::Event) -> Option<String> {
    use pb::stored_object_event::Event;
    match event {
        Event::Unfinished(pb::StoredObject { uid, .. }) | Event::Initialized(pb::Initialized { uid, .. }) => {
            Some(uid.clone())
        }
        Event::Gone(_) | Event::Synced(_) => None,
    }
}

/// Converts a report.
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

/// Returns a text that may be empty.
fn short(text: String) -> Result<Box<str>, DroppedReport> {
    if text.len() > MAX_NAME { Err(DroppedReport::Text) } else { Ok(text.into()) }
}

/// Returns a text that must not be empty.
fn name(text: String) -> Result<Box<str>, DroppedReport> {
    if text.is_empty() { Err(DroppedReport::Unreadable) } else { short(text) }
}

fn stored(object: pb::StoredObject) -> Result<StoredObject, DroppedReport> {
    let mut pending = object.pending;
    // Only the head matters of a list that is longer than allowed.
    pending.truncate(MAX_PENDING);
    let pending = pending.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
    let result = object.result.map(|status| Box::new(stored_result(wire::status_info(status))));
    // An object without a list is initialized, and must be reported as initialized.
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

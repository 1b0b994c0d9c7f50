//! gRPC calls that are no reviews: streams of initializers, apiservers and plugins, calls about unfinished objects,
//! health and reflection. Also what streams share, and the reader of messages,
//! except for those that tonic reads.

pub(crate) mod attach;
pub(crate) mod follow;
pub(crate) mod health_reflection;
pub(crate) mod initialization;
pub(crate) mod rule_index;

use std::{
    future::poll_fn,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::{RecvStream, SendStream, server::SendResponse};
use http::HeaderMap;
use tokio::task::coop::consume_budget;
use tonic::Code;

use crate::front::{
    answer,
    body::message_length,
    head::grpc_encoding,
    limits::QuotaGuard,
    outgoing::{Outgoing, UnsentGuard},
    refusal::Refusal,
    state::ConnectionContext,
};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};
use gatepost_initializers::TurnFailure;
use gatepost_wire::inbound::FRAME_HEAD;

/// Status with which a stream ends.
type End = (Code, &'static str);

const GONE: End = (Code::Cancelled, "");
const UNREADABLE: End = (Code::InvalidArgument, "a message cannot be read");

/// Time for the caller to read a message of a stream.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a message before the claim is accepted, in bytes.
const MAX_CLAIM: usize = 16 << 10;
/// Maximum size of a message of an instance, in bytes: a patch that replaces the largest object, and its envelope.
const MAX_ANSWER: usize = 4 << 20;
/// Maximum size of a message that is skipped, in bytes. A longer message ends the stream.
const MAX_SKIPPED_MESSAGE: usize = 16 << 20;
/// Buffered bytes that need no reservation of their own, as each stream reserves memory for them.
const UNRESERVED: usize = 16 << 10;
/// Length up to which a message of an instance is accepted even without room. The same number of bytes identifies the task of a longer
/// message.
const MESSAGE_BEGINNING: usize = 64;

const TOO_LONG: &str = "its answer is longer than 4 MiB";

/// Begins a stream, which reserves `memory` besides its messages; `None` if it is refused or the caller is gone.
fn begin_stream<'a>(
    context: &'a ConnectionContext,
    headers: &HeaderMap,
    respond: &mut SendResponse<Outgoing>,
    memory: usize,
) -> Option<(QuotaGuard<'a>, StreamSender<'a>)> {
    let ConnectionContext { front, session, .. } = context;
    match grpc_encoding(headers).and_then(|()| front.attach_quota.take(session, memory)) {
        Ok(guard) => Some((guard, StreamSender { to: answer::begin_grpc(respond).ok()?, context })),
        Err(refusal) => {
            front.send_refusal(respond, &refusal);
            None
        }
    }
}

/// Sender of the messages of a stream.
struct StreamSender<'a> {
    to: SendStream<Outgoing>,
    context: &'a ConnectionContext,
}

impl StreamSender<'_> {
    /// Waits until the caller has reset the stream.
    async fn reset(&mut self) {
        // An error means the same.
        let _ = poll_fn(|cx| self.to.poll_reset(cx)).await;
    }

    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.context.front.budget().reserve(Purpose::Queue, bytes)
    }

    /// Returns a guard with the deadline for the caller to read a message.
    fn expiring(&self, within: Duration) -> UnsentGuard {
        let now = Instant::now();
        self.context.session.unsent.add(now, now + within)
    }

    /// Queues one message.
    fn send(&mut self, message: Outgoing) -> Result<(), End> {
        self.to.send_data(message, false).map_err(|_| GONE)
    }

    /// Reserves memory for one message and queues it. If there is none, the stream ends with `no_room`.
    fn send_held(&mut self, message: Bytes, no_room: End) -> Result<(), End> {
        let room = self.reserve(message.len()).ok_or(no_room)?;
        self.send(Outgoing::held(message, room, self.expiring(READ_TIMEOUT)))
    }

    /// Ends the stream.
    fn end(&mut self, (Ok((code, message)) | Err((code, message))): Result<End, End>) {
        // An error means that the caller is gone.
        let _ = self.to.send_trailers(answer::trailers(code, message));
    }
}

/// One message.
pub(super) enum CallMessage {
    /// Message without its frame head, and its reservation.
    Whole(Bytes, Reservation),
    /// Message that was skipped.
    Skipped {
        /// First bytes of the message.
        beginning: Bytes,
        /// Reason why its task fails.
        why: TurnFailure,
    },
}

/// Messages of a caller. Buffered bytes are reserved in the memory budget.
///
/// A message that is longer than the limit, but may be skipped, is skipped, and the stream continues. So is a message
/// of an instance that finds no room: only its task fails, which its first bytes identify. No room for a message of
/// another caller is an error.
pub(super) struct CallMessages<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    buffer: BytesMut,
    /// Reservation for the buffer.
    room: Reservation,
    /// Lengths up to which a message is accepted, and up to which it is skipped.
    limits: (usize, usize),
    /// Buffered bytes that the stream of an instance has reserved; `None` for another caller.
    reserved: Option<usize>,
    skipping: Option<SkippedMessage>,
}

/// Message that is being skipped.
struct SkippedMessage {
    /// Bytes that are buffered or not yet received.
    left: usize,
    beginning: Bytes,
    why: TurnFailure,
}

impl<'a> CallMessages<'a> {
    /// Creates a reader of messages of at most `limit` bytes, which skips messages of at most `max_skipped` bytes.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>, limit: usize, max_skipped: usize) -> Self {
        let (room, limits) = (budget.empty(Purpose::Answer), (limit, max_skipped));
        Self { body, budget, buffer: BytesMut::new(), room, limits, reserved: None, skipping: None }
    }

    /// Creates the reader for an instance that has claimed nothing yet: its messages must be short.
    pub(super) fn of_instance(body: RecvStream, budget: &'a Arc<MemoryBudget>) -> Self {
        Self { reserved: Some(UNRESERVED), ..Self::new(body, budget, MAX_CLAIM, MAX_CLAIM) }
    }

    /// Allows messages of the length of answers, as the claim was accepted.
    pub(super) fn allow_answers(&mut self) {
        self.limits = (MAX_ANSWER, MAX_SKIPPED_MESSAGE);
    }

    /// Returns the next message; `None` at the end of the stream. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<CallMessage>, Refusal> {
        loop {
            // Many short messages might have arrived together: other tasks must run between them.
            consume_budget().await;
            if let Some(message) = self.first()? {
                return Ok(Some(message));
            }
            let Some(data) = poll_fn(|cx| self.body.poll_data(cx)).await else {
                let is_between = self.buffer.is_empty() && self.skipping.is_none();
                let received = self.buffer.len();
                return if is_between { Ok(None) } else { Err(Refusal::NoMessage { received }) };
            };
            let data = data.map_err(|_| Refusal::Cancelled)?;
            self.buffer.extend_from_slice(&data);
            let _ = self.body.flow_control().release_capacity(data.len());
        }
    }

    /// Returns the first message in the buffer, if it is complete.
    fn first(&mut self) -> Result<Option<CallMessage>, Refusal> {
        if self.skipping.is_some() {
            return Ok(self.take_skipped());
        }
        let Some(head) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let declared = message_length(*head)?;
        let ((limit, max_skipped), whole) = (self.limits, FRAME_HEAD + declared);
        if declared > max_skipped {
            return Err(Refusal::TooLarge { declared, limit });
        }
        let why = if declared > limit {
            Some(TurnFailure::Unable(TOO_LONG.to_owned()))
        } else if self.fits(declared) {
            None
        } else if self.reserved.is_some() {
            Some(TurnFailure::NoRoom)
        } else {
            return Err(Refusal::Overloaded { bytes: self.buffer.len() });
        };
        if let Some(why) = why {
            let Some(beginning) = self.buffer.get(FRAME_HEAD..whole.min(FRAME_HEAD + MESSAGE_BEGINNING)) else {
                return Ok(None);
            };
            self.skipping = Some(SkippedMessage { left: whole, beginning: Bytes::copy_from_slice(beginning), why });
            self.room.shrink_to(0);
            return Ok(self.take_skipped());
        }
        if self.buffer.len() < whole {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEAD);
        let message = self.buffer.split_to(declared).freeze();
        let mut room = mem::replace(&mut self.room, self.budget.empty(Purpose::Answer));
        room.shrink_to(declared);
        Ok(Some(CallMessage::Whole(message, room)))
    }

    /// Returns true if there is room for the buffer, whose first message has `declared` bytes.
    fn fits(&mut self, declared: usize) -> bool {
        let held = self.buffer.len();
        let is_whole = held >= FRAME_HEAD + declared;
        if is_whole && declared <= MESSAGE_BEGINNING && self.reserved.is_some() {
            return true;
        }
        let wanted = held.saturating_sub(self.reserved.unwrap_or_default()).max(if is_whole { declared } else { 0 });
        let more = wanted.saturating_sub(self.room.bytes());
        self.room.try_grow(more)
    }

    /// Returns the message that is being skipped, once it has arrived completely.
    fn take_skipped(&mut self) -> Option<CallMessage> {
        let skipped = self.skipping.as_mut()?;
        let received = skipped.left.min(self.buffer.len());
        skipped.left -= received;
        // Copies the rest, so that the buffer of the skipped message is freed.
        self.buffer = BytesMut::from(self.buffer.get(received..).unwrap_or_default());
        if skipped.left > 0 {
            return None;
        }
        self.skipping.take().map(|SkippedMessage { beginning, why, .. }| CallMessage::Skipped { beginning, why })
    }
}

//! gRPC calls that are no reviews: streams of initializers, apiservers and plugins, calls about unfinished objects,
//! health and reflection. Also the reader of their messages, except for those that tonic reads.

pub(crate) mod attach;
pub(crate) mod follow;
pub(crate) mod health_reflection;
pub(crate) mod initialization;
pub(crate) mod rule_index;

use std::{future::poll_fn, mem, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use tokio::task::coop::consume_budget;

use crate::front::{body::message_length, refusal::Refusal};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};
use gatepost_initializers::TurnFailure;
use gatepost_wire::inbound::FRAME_HEAD;

/// Longest message before the claim is accepted.
const MAX_CLAIM: usize = 16 << 10;
/// Longest message of an instance: a patch that replaces the largest object, and its envelope.
const MAX_ANSWER: usize = 4 << 20;
/// Longest message that is skipped. A longer message ends the stream.
const MAX_SKIPPED_MESSAGE: usize = 16 << 20;
/// Buffered bytes that need no reservation of their own, as each stream reserves memory for them.
const UNRESERVED: usize = 16 << 10;
/// Length up to which a message is accepted even without room. The same number of bytes identifies the task of a longer
/// message.
const MESSAGE_BEGINNING: usize = 64;

const TOO_LONG: &str = "its answer is longer than 4 MiB";

/// Messages of an apiserver. Buffered bytes are reserved in the memory budget.
pub(super) struct CallMessages<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    limit: usize,
    buffer: BytesMut,
    /// Reservation for the buffer.
    room: Reservation,
    /// Remaining bytes of a message that is being skipped, buffered or not yet received.
    skipping: usize,
}

impl<'a> CallMessages<'a> {
    /// Creates a reader of messages of at most `limit` bytes.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>, limit: usize) -> Self {
        let room = budget.empty(Purpose::Answer);
        Self { body, budget, limit, buffer: BytesMut::new(), room, skipping: 0 }
    }

    /// Returns the next message without its frame head, and its reservation; `None` at the end of the stream. Cancel
    /// safe. After `TooLarge` it continues with the following message.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Reservation)>, Refusal> {
        loop {
            // Many short messages might have arrived together: other tasks must run between them.
            consume_budget().await;
            self.drop_skipped();
            if let Some(message) = self.first()? {
                let mut room = self.budget.empty(Purpose::Answer);
                // The message takes over the reservation, and the buffer gets a new one.
                mem::swap(&mut self.room, &mut room);
                if !self.room.try_grow(self.buffer.len()) {
                    return Err(Refusal::Overloaded { bytes: self.buffer.len() });
                }
                room.shrink_to(message.len());
                return Ok(Some((message, room)));
            }
            let Some(data) = poll_fn(|cx| self.body.poll_data(cx)).await else {
                return match self.buffer.len() {
                    0 => Ok(None),
                    received => Err(Refusal::NoMessage { received }),
                };
            };
            let data = data.map_err(|_| Refusal::Cancelled)?;
            if !self.room.try_grow(data.len()) {
                return Err(Refusal::Overloaded { bytes: data.len() });
            }
            self.buffer.extend_from_slice(&data);
            let _ = self.body.flow_control().release_capacity(data.len());
        }
    }

    /// Drops the received bytes of a message that is being skipped.
    fn drop_skipped(&mut self) {
        let received = self.skipping.min(self.buffer.len());
        if received > 0 {
            self.skipping -= received;
            // Copies the rest, so that the buffer of the skipped message is freed.
            self.buffer = BytesMut::from(&self.buffer[received..]);
            self.room.shrink_to(self.buffer.len());
        }
    }

    /// Returns the first message in the buffer, if it is complete.
    fn first(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(head) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let declared = message_length(*head)?;
        if declared > self.limit {
            self.skipping = FRAME_HEAD + declared;
            return Err(Refusal::TooLarge { declared, limit: self.limit });
        }
        if self.buffer.len() < FRAME_HEAD + declared {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEAD);
        Ok(Some(self.buffer.split_to(declared).freeze()))
    }
}

/// One message of an instance.
pub(super) enum InstanceMessage {
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

/// Messages of an instance of an initializer.
///
/// Messages before the claim must be short. Later, a message that is too long or finds no room in the memory budget is
/// skipped: its task fails, but the stream continues. Its first bytes identify the task.
pub(super) struct InstanceMessages<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    buffer: BytesMut,
    /// Reservation for the buffer.
    room: Reservation,
    /// Lengths up to which a message is accepted, and up to which it is skipped.
    limits: (usize, usize),
    skipping: Option<SkippedMessage>,
}

/// Message that is being skipped.
struct SkippedMessage {
    /// Bytes that are buffered or not yet received.
    left: usize,
    beginning: Bytes,
    why: TurnFailure,
}

impl<'a> InstanceMessages<'a> {
    /// Creates the reader for an instance that has claimed nothing yet.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>) -> Self {
        let (room, limits) = (budget.empty(Purpose::Answer), (MAX_CLAIM, MAX_CLAIM));
        Self { body, budget, buffer: BytesMut::new(), room, limits, skipping: None }
    }

    /// Allows messages of the length of answers, as the claim was accepted.
    pub(super) fn allow_answers(&mut self) {
        self.limits = (MAX_ANSWER, MAX_SKIPPED_MESSAGE);
    }

    /// Returns the next message; `None` at the end of the stream. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<InstanceMessage>, Refusal> {
        loop {
            // Many short messages might have arrived together: other tasks must run between them.
            consume_budget().await;
            if let Some(message) = self.first()? {
                return Ok(Some(message));
            }
            let Some(data) = poll_fn(|cx| self.body.poll_data(cx)).await else {
                let is_between = self.buffer.is_empty() && self.skipping.is_none();
                return if is_between { Ok(None) } else { Err(Refusal::NotAClaim) };
            };
            let data = data.map_err(|_| Refusal::Cancelled)?;
            self.buffer.extend_from_slice(&data);
            let _ = self.body.flow_control().release_capacity(data.len());
        }
    }

    /// Returns the first message in the buffer, if it is complete.
    fn first(&mut self) -> Result<Option<InstanceMessage>, Refusal> {
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
        } else {
            (!self.fits(declared)).then_some(TurnFailure::NoRoom)
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
        Ok(Some(InstanceMessage::Whole(message, room)))
    }

    /// Returns true if there is room for the buffer, whose first message has `declared` bytes.
    fn fits(&mut self, declared: usize) -> bool {
        let held = self.buffer.len();
        let is_whole = held >= FRAME_HEAD + declared;
        if is_whole && declared <= MESSAGE_BEGINNING {
            return true;
        }
        let wanted = held.saturating_sub(UNRESERVED).max(if is_whole { declared } else { 0 });
        let more = wanted.saturating_sub(self.room.bytes());
        self.room.try_grow(more)
    }

    /// Returns the message that is being skipped, once it has arrived completely.
    fn take_skipped(&mut self) -> Option<InstanceMessage> {
        let skipped = self.skipping.as_mut()?;
        let received = skipped.left.min(self.buffer.len());
        skipped.left -= received;
        // Copies the rest, so that the buffer of the skipped message is freed.
        self.buffer = BytesMut::from(self.buffer.get(received..).unwrap_or_default());
        if skipped.left > 0 {
            return None;
        }
        self.skipping.take().map(|SkippedMessage { beginning, why, .. }| InstanceMessage::Skipped { beginning, why })
    }
}

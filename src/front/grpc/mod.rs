//! gRPC calls that are no reviews: streams of initializers and apiservers, calls about unfinished objects, health and
//! reflection. And the messages of all but tonic's, one after another as they come.

pub(crate) mod attach;
pub(crate) mod follow;
pub(crate) mod health_reflection;
pub(crate) mod initialization;

use std::{future::poll_fn, mem, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use tokio::task::coop::consume_budget;

use crate::front::{body::message_length, refusal::Refusal};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};
use gatepost_initializers::TurnFailure;
use gatepost_wire::inbound::FRAME_HEAD;

/// Length of a claim.
const MAX_CLAIM: usize = 16 << 10;
/// Length of a message of an instance: a patch that replaces the largest object, and what stands around it.
const MAX_ANSWER: usize = 4 << 20;
/// Length of a message that is passed over. A peer that sends more is not waited for.
const MAX_PASSED_OVER: usize = 16 << 20;
/// Bytes that are held without room of their own: they are part of what each stream reserves.
const UNRESERVED: usize = 16 << 10;
/// Length up to which a message is taken whether there is room or not; so much of a longer one says which task it is
/// of.
const MESSAGE_BEGINNING: usize = 64;

const TOO_LONG: &str = "its answer is longer than 4 MiB";

/// Messages of an apiserver, as they come. Bytes that are read have their place in the memory budget.
pub(super) struct CallMessages<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    limit: usize,
    buffer: BytesMut,
    /// Room of what is in the buffer, in the memory budget.
    room: Reservation,
    /// Bytes of a message that is too long, in the buffer or still to come.
    passing_over: usize,
}

impl<'a> CallMessages<'a> {
    /// Messages of at most `limit` bytes.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>, limit: usize) -> Self {
        let room = budget.empty(Purpose::Answer);
        Self { body, budget, limit, buffer: BytesMut::new(), room, passing_over: 0 }
    }

    /// The next message, without its frame head, and its room in the memory budget; `None` at the end of the stream. May
    /// be dropped and called again: nothing is lost. After `TooLarge` it goes on with the message behind.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Reservation)>, Refusal> {
        loop {
            // Many short ones may have come at once: other calls have their turn between them.
            consume_budget().await;
            self.drop_passed_over();
            if let Some(message) = self.first()? {
                let mut room = self.budget.empty(Purpose::Answer);
                // The buffer gives back what is the message's now.
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

    /// Drops what has come of a message that is too long.
    fn drop_passed_over(&mut self) {
        let come = self.passing_over.min(self.buffer.len());
        if come > 0 {
            self.passing_over -= come;
            // A copy of the rest: what was held of the message is held no longer.
            self.buffer = BytesMut::from(&self.buffer[come..]);
            self.room.shrink_to(self.buffer.len());
        }
    }

    /// The first message in the buffer, if it is complete.
    fn first(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(head) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let declared = message_length(*head)?;
        if declared > self.limit {
            self.passing_over = FRAME_HEAD + declared;
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
    /// Without its frame head, and its room in the memory budget.
    Whole(Bytes, Reservation),
    /// Passed over.
    PassedOver {
        /// The first bytes of it.
        beginning: Bytes,
        /// Reason for the end of its task.
        why: TurnFailure,
    },
}

/// Messages of an instance of an initializer, as they come.
///
/// Until the instance has a name they are short. Later, one that is too long, or for which the memory budget has no
/// room, is passed over and not held: that ends its task, and not the stream. Its first bytes say which task that is.
pub(super) struct InstanceMessages<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    buffer: BytesMut,
    /// Room of what is in the buffer.
    room: Reservation,
    /// Length up to which a message is taken, and up to which it is passed over.
    limits: (usize, usize),
    passing_over: Option<PassingOver>,
}

/// A message that is being passed over.
struct PassingOver {
    /// Bytes that are still to come, or in the buffer.
    left: usize,
    beginning: Bytes,
    why: TurnFailure,
}

impl<'a> InstanceMessages<'a> {
    /// Messages of an instance that has claimed nothing yet.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>) -> Self {
        let (room, limits) = (budget.empty(Purpose::Answer), (MAX_CLAIM, MAX_CLAIM));
        Self { body, budget, buffer: BytesMut::new(), room, limits, passing_over: None }
    }

    /// Allows answers, as the claim is good.
    pub(super) fn allow_answers(&mut self) {
        self.limits = (MAX_ANSWER, MAX_PASSED_OVER);
    }

    /// The next message; `None` at the end of the stream. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<InstanceMessage>, Refusal> {
        loop {
            // Many short ones may have come at once: other calls have their turn between them.
            consume_budget().await;
            if let Some(message) = self.first()? {
                return Ok(Some(message));
            }
            let Some(data) = poll_fn(|cx| self.body.poll_data(cx)).await else {
                let is_between = self.buffer.is_empty() && self.passing_over.is_none();
                return if is_between { Ok(None) } else { Err(Refusal::NotAClaim) };
            };
            let data = data.map_err(|_| Refusal::Cancelled)?;
            self.buffer.extend_from_slice(&data);
            let _ = self.body.flow_control().release_capacity(data.len());
        }
    }

    /// The first message in the buffer, if it is complete.
    fn first(&mut self) -> Result<Option<InstanceMessage>, Refusal> {
        if self.passing_over.is_some() {
            return Ok(self.passed_over());
        }
        let Some(head) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let declared = message_length(*head)?;
        let ((limit, max_passed_over), whole) = (self.limits, FRAME_HEAD + declared);
        if declared > max_passed_over {
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
            self.passing_over = Some(PassingOver { left: whole, beginning: Bytes::copy_from_slice(beginning), why });
            self.room.shrink_to(0);
            return Ok(self.passed_over());
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

    /// True if there is room for what is in the buffer, whose first message is so long.
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

    /// The message that is being passed over, once all of it has come.
    fn passed_over(&mut self) -> Option<InstanceMessage> {
        let passing = self.passing_over.as_mut()?;
        let come = passing.left.min(self.buffer.len());
        passing.left -= come;
        // A copy of the rest: what was held of the message is held no longer.
        self.buffer = BytesMut::from(self.buffer.get(come..).unwrap_or_default());
        if passing.left > 0 {
            return None;
        }
        self.passing_over
            .take()
            .map(|PassingOver { beginning, why, .. }| InstanceMessage::PassedOver { beginning, why })
    }
}

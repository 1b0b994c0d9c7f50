//! Incoming: the messages of an instance, one after another as they come.
//!
//! Until the instance has a name they are short. Later, one that is too long, or for which the memory budget has no room,
//! is passed over and not held: it is the end of its task, and not of the stream. Its first bytes say which task that
//! is.

use std::{future::poll_fn, mem, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use tokio::task::coop::consume_budget;

use crate::{
    front::refusal::Refusal,
    initialize::TurnFailure,
    memory::{MemoryBudget, Purpose, Reservation},
    wire::inbound::FRAME_HEAD,
};

/// The longest claim.
const LONGEST_CLAIM: usize = 16 << 10;
/// The longest message of an instance: a patch that replaces the largest object, and what stands around it.
const LONGEST: usize = 4 << 20;
/// The longest that is passed over. A peer that sends more is not waited for.
const LONGEST_PASSED: usize = 16 << 20;
/// Bytes that are held without room of their own: they are part of what each stream reserves.
const FREE: usize = 16 << 10;
/// A message of so many bytes is taken whether there is room or not; as many of a longer one say which task it is of.
const SMALL: usize = 64;

const TOO_LONG: &str = "its answer is longer than 4 MiB";

/// One message.
pub(super) enum Arrived {
    /// Whole, without its frame head, and its room in the memory budget.
    Message(Bytes, Reservation),
    /// Passed over.
    PassedOver {
        /// The first bytes of it.
        beginning: Bytes,
        /// Reason for the end of its task.
        why: TurnFailure,
    },
}

/// Messages as they come.
pub(super) struct Incoming<'a> {
    body: RecvStream,
    budget: &'a Arc<MemoryBudget>,
    buffer: BytesMut,
    /// Room of what is in the buffer.
    room: Reservation,
    /// The longest message that is taken, and that is passed over.
    longest: (usize, usize),
    passing: Option<Passing>,
}

/// A message that is being passed over.
struct Passing {
    /// Bytes that are still to come, or in the buffer.
    left: usize,
    beginning: Bytes,
    why: TurnFailure,
}

impl<'a> Incoming<'a> {
    /// Of somebody who has claimed nothing yet.
    pub(super) fn new(body: RecvStream, budget: &'a Arc<MemoryBudget>) -> Self {
        let (room, longest) = (budget.empty(Purpose::Answer), (LONGEST_CLAIM, LONGEST_CLAIM));
        Self { body, budget, buffer: BytesMut::new(), room, longest, passing: None }
    }

    /// Its claim is good: it may send answers.
    pub(super) fn take_answers(&mut self) {
        self.longest = (LONGEST, LONGEST_PASSED);
    }

    /// The next message; `None` at the end of the stream. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Arrived>, Refusal> {
        loop {
            // Many short ones may have come at once: other calls have their turn between them.
            consume_budget().await;
            if let Some(arrived) = self.arrived()? {
                return Ok(Some(arrived));
            }
            let Some(data) = poll_fn(|cx| self.body.poll_data(cx)).await else {
                let is_between = self.buffer.is_empty() && self.passing.is_none();
                return if is_between { Ok(None) } else { Err(Refusal::NotAClaim) };
            };
            let data = data.map_err(|_| Refusal::Cancelled)?;
            self.buffer.extend_from_slice(&data);
            let _ = self.body.flow_control().release_capacity(data.len());
        }
    }

    /// The first message in the buffer, where it is whole.
    fn arrived(&mut self) -> Result<Option<Arrived>, Refusal> {
        if self.passing.is_some() {
            return Ok(self.passed_over());
        }
        let Some(&[flag, a, b, c, d]) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        if flag != 0 {
            return Err(if flag == 1 { Refusal::Compressed } else { Refusal::Flag(flag) });
        }
        let declared = u32::from_be_bytes([a, b, c, d]) as usize;
        let ((longest, longest_passed), whole) = (self.longest, FRAME_HEAD + declared);
        if declared > longest_passed {
            return Err(Refusal::TooLarge { declared, limit: longest });
        }
        let why = if declared > longest {
            Some(TurnFailure::Unable(TOO_LONG.to_owned()))
        } else {
            (!self.fits(declared)).then_some(TurnFailure::NoRoom)
        };
        if let Some(why) = why {
            let Some(beginning) = self.buffer.get(FRAME_HEAD..whole.min(FRAME_HEAD + SMALL)) else { return Ok(None) };
            self.passing = Some(Passing { left: whole, beginning: Bytes::copy_from_slice(beginning), why });
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
        Ok(Some(Arrived::Message(message, room)))
    }

    /// Is there room for what is in the buffer, of which the first message is so long?
    fn fits(&mut self, declared: usize) -> bool {
        let held = self.buffer.len();
        let is_whole = held >= FRAME_HEAD + declared;
        if is_whole && declared <= SMALL {
            return true;
        }
        let wanted = held.saturating_sub(FREE).max(if is_whole { declared } else { 0 });
        let more = wanted.saturating_sub(self.room.bytes());
        self.room.try_grow(more)
    }

    /// The message that is being passed over, once all of it has come.
    fn passed_over(&mut self) -> Option<Arrived> {
        let passing = self.passing.as_mut()?;
        let come = passing.left.min(self.buffer.len());
        passing.left -= come;
        // A copy of the rest: what was held of the message is held no longer.
        self.buffer = BytesMut::from(self.buffer.get(come..).unwrap_or_default());
        if passing.left > 0 {
            return None;
        }
        self.passing.take().map(|Passing { beginning, why, .. }| Arrived::PassedOver { beginning, why })
    }
}

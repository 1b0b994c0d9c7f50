//! Frames: the messages of a call that is not a review, one after another as they come.

use std::{future::poll_fn, mem};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use tokio::task::coop::consume_budget;

use crate::{
    front::{Front, refusal::Refusal},
    memory::{Purpose, Reservation},
    wire::inbound::FRAME_HEAD,
};

/// Messages as they come. Bytes that are read have their place in the memory budget.
pub(super) struct Frames<'a> {
    body: RecvStream,
    front: &'a Front,
    longest: usize,
    buffer: BytesMut,
    /// Room of what is in the buffer, in the memory budget.
    room: Reservation,
    /// Bytes of a message that is too long, in the buffer or still to come.
    passing: usize,
}

impl<'a> Frames<'a> {
    /// Of messages of at most so many bytes.
    pub(super) fn new(front: &'a Front, body: RecvStream, longest: usize) -> Self {
        let room = front.inflight().budget().empty(Purpose::Answer);
        Self { body, front, longest, buffer: BytesMut::new(), room, passing: 0 }
    }

    /// The next message, without its frame head, and its room in the memory budget; `None` at the end of the stream. May be
    /// dropped and called again: nothing is lost. After `TooLarge` it goes on with the message behind.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Reservation)>, Refusal> {
        loop {
            // Many short ones may have come at once: other calls have their turn between them.
            consume_budget().await;
            self.pass_over();
            if let Some(message) = self.whole()? {
                let mut room = self.front.inflight().budget().empty(Purpose::Answer);
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

    /// Forgets what has come of a message that is too long.
    fn pass_over(&mut self) {
        let come = self.passing.min(self.buffer.len());
        if come > 0 {
            self.passing -= come;
            // A copy of the rest: what was held of the message is held no longer.
            self.buffer = BytesMut::from(&self.buffer[come..]);
            self.room.shrink_to(self.buffer.len());
        }
    }

    /// The first message in the buffer, where it is whole.
    fn whole(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(&[flag, a, b, c, d]) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        if flag != 0 {
            return Err(if flag == 1 { Refusal::Compressed } else { Refusal::Flag(flag) });
        }
        let declared = u32::from_be_bytes([a, b, c, d]) as usize;
        if declared > self.longest {
            self.passing = FRAME_HEAD + declared;
            return Err(Refusal::TooLarge { declared, limit: self.longest });
        }
        if self.buffer.len() < FRAME_HEAD + declared {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEAD);
        Ok(Some(self.buffer.split_to(declared).freeze()))
    }
}

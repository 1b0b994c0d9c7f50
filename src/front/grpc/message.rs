//! Message: one gRPC message collected from DATA frames without copying it.
//!
//! See [`BodyPieces`] for what is kept and what is joined. The first payload, where it holds the whole frame head, is
//! kept at any size; so a well-behaved caller's bytes are never copied.
//!
//! Flow-control credit is returned only for bytes that have their place in the memory budget.

use bytes::Bytes;
use h2::RecvStream;

use crate::{
    front::{inflight::InflightGuard, pieces::BodyPieces, progress::Progress, refusal::Refusal},
    model::Rope,
    telemetry::Metrics,
    wire::inbound::FRAME_HEAD,
};

/// A message in the making.
#[derive(Debug, Default)]
pub(crate) struct MessageBuilder {
    pieces: BodyPieces,
    /// Bytes so far, frame head included.
    received: usize,
    /// Bytes there will be, frame head included; `None` until the frame head is there.
    expected: Option<usize>,
}

impl MessageBuilder {
    /// Reads to the end of the stream. Bytes are reserved as they come, and not as they are announced: announcing costs
    /// a caller nothing.
    pub(crate) async fn read(
        &mut self,
        body: &mut RecvStream,
        entered: &mut InflightGuard<'_>,
        progress: &mut Progress<'_>,
        metrics: &Metrics,
        limit: usize,
    ) -> Result<(), Refusal> {
        while let Some(payload) = progress.next(self.received, |cx| body.poll_data(cx)).await? {
            // The only errors here are the stream's or connection's end.
            let payload = payload.map_err(|_| Refusal::Cancelled)?;
            let len = payload.len();
            let last = body.is_end_stream();
            self.push(payload, last, metrics);
            if self.expected.is_none() {
                self.read_frame_head(limit)?;
                entered.could_hold(self.expected.unwrap_or(0))?;
            }
            if let Some(expected) = self.expected.filter(|expected| self.received > *expected) {
                return Err(Refusal::MoreThanOne { declared: expected - FRAME_HEAD });
            }
            entered.reserve(self.pieces.held())?;
            // Fails only when the stream is gone, which the next read reports.
            let _ = body.flow_control().release_capacity(len);
            if last {
                break;
            }
        }
        match self.expected {
            None => Err(Refusal::NoMessage { received: self.received }),
            Some(expected) if self.received < expected => {
                Err(Refusal::Incomplete { received: self.received - FRAME_HEAD, declared: expected - FRAME_HEAD })
            }
            Some(_) => Ok(()),
        }
    }

    /// The message as one rope.
    pub(crate) fn into_rope(self) -> Rope {
        self.pieces.into_rope()
    }

    fn push(&mut self, mut payload: Bytes, last: bool, metrics: &Metrics) {
        let first = self.received == 0 && payload.len() >= FRAME_HEAD;
        self.received += payload.len();
        if first {
            return self.pieces.keep(payload);
        }
        if self.pieces.first().is_none() {
            // A frame head in pieces is put together, so that nobody after us needs to.
            self.pieces.complete_head(&mut payload, FRAME_HEAD);
        }
        self.pieces.push(payload, last, metrics);
    }

    /// Once the five bytes are there: plain? within the limit?
    fn read_frame_head(&mut self, limit: usize) -> Result<(), Refusal> {
        let Some(&[flag, a, b, c, d]) = self.pieces.first().and_then(|first| first.first_chunk::<FRAME_HEAD>()) else {
            return Ok(());
        };
        match flag {
            0 => {}
            1 => return Err(Refusal::Compressed),
            other => return Err(Refusal::Flag(other)),
        }
        let declared = u32::from_be_bytes([a, b, c, d]) as usize;
        if declared > limit {
            return Err(Refusal::TooLarge { declared, limit });
        }
        self.expected = Some(FRAME_HEAD + declared);
        Ok(())
    }
}

#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;

//! Message: one gRPC message collected from DATA frames without copying it.
//!
//! Each frame's payload is kept as the buffer it was read into. A retained payload keeps its whole read buffer alive,
//! so payloads below 1 KiB are joined instead: a caller that sends many tiny frames must not pin many large buffers.
//! The first payload (where it holds the whole frame head) and the last are kept as they are at any size, since every
//! message ends in a remainder; so a well-behaved caller's bytes are never copied.
//!
//! Flow-control credit is returned only for bytes that have their place in the memory budget.

use std::{future::poll_fn, mem};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use smallvec::SmallVec;

use super::{inflight::Entered, refusal::Refusal};
use crate::{model::Rope, telemetry::Metrics, wire::inbound::FRAME_HEAD};

/// Payloads smaller than this are joined.
const TINY: usize = 1024;

/// A message in the making.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// The payloads so far, but for `joined`.
    chunks: SmallVec<[Bytes; 4]>,
    /// Tiny payloads that follow `chunks`.
    joined: BytesMut,
    /// Bytes so far, frame head included.
    received: usize,
    /// Bytes there will be, frame head included; `None` until the frame head is there.
    expected: Option<usize>,
}

impl Message {
    /// Bytes so far.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Reads to the end of the stream. Cancel-safe: what was read stays in `self`.
    pub(super) async fn read(
        &mut self,
        body: &mut RecvStream,
        inflight: &mut Entered<'_>,
        metrics: &Metrics,
        limit: usize,
    ) -> Result<(), Refusal> {
        while let Some(payload) = poll_fn(|cx| body.poll_data(cx)).await {
            // The only errors here are the stream's or connection's end.
            let payload = payload.map_err(|_| Refusal::Cancelled)?;
            let len = payload.len();
            let last = body.is_end_stream();
            self.push(payload, last, metrics);
            if self.expected.is_none() {
                self.read_frame_head(inflight, limit)?;
            }
            if let Some(expected) = self.expected.filter(|expected| self.received > *expected) {
                return Err(Refusal::MoreThanOne { declared: expected - FRAME_HEAD });
            }
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

    /// The pieces as one rope.
    pub(super) fn into_rope(mut self) -> Rope {
        self.flush();
        match self.chunks.len() {
            1 => Rope::new([mem::take(&mut self.chunks[0])]),
            _ => Rope::new(self.chunks.into_vec()),
        }
    }

    fn push(&mut self, mut payload: Bytes, last: bool, metrics: &Metrics) {
        let first = self.received == 0 && payload.len() >= FRAME_HEAD;
        self.received += payload.len();
        if self.chunks.is_empty() && !first {
            // A frame head in pieces is put together, so that nobody after us needs to.
            let missing = (FRAME_HEAD - self.joined.len()).min(payload.len());
            self.joined.extend_from_slice(&payload.split_to(missing));
            if self.joined.len() == FRAME_HEAD {
                self.flush();
            }
        }
        if payload.is_empty() {
            return;
        }
        if payload.len() >= TINY || first || (last && self.joined.is_empty()) {
            self.flush();
            self.chunks.push(payload);
        } else {
            metrics.copied(payload.len());
            self.joined.extend_from_slice(&payload);
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            self.chunks.push(self.joined.split().freeze());
        }
    }

    /// Once the five bytes are there: plain? within the limit? is there room?
    fn read_frame_head(&mut self, inflight: &mut Entered<'_>, limit: usize) -> Result<(), Refusal> {
        let Some(&[flag, a, b, c, d]) = self.chunks.first().and_then(|first| first.first_chunk::<FRAME_HEAD>()) else {
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
        if !inflight.reserve(FRAME_HEAD + declared) {
            return Err(Refusal::Overloaded { declared });
        }
        self.expected = Some(FRAME_HEAD + declared);
        Ok(())
    }
}

#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;

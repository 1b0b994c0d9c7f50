//! Meter of a connection's HTTP/2 frames: it ends a flood of frames that ask nothing, and reserves memory for a large
//! DATA frame that is not whole.
//!
//! A PING or a SETTINGS costs its sender nine bytes, and us an answer; h2 cuts floods of resets and of small DATA, but
//! not of these. So the meter reads the heads of the frames on their way to h2: calls and data fill a bucket, all other
//! frames empty it. The clock is read only once it is empty. (h2's own `data_frame_budget` would replace one line of
//! this, the cost of small DATA, and the other frames would still have to be read.)
//!
//! h2 hands on a DATA frame once it is whole, and only then does its call reserve memory for it. Large frames are worth
//! having, as a large object then arrives in one piece; but the part that has arrived would be missing in the memory
//! budget, on every connection. So the meter reserves it. Without room the frame is read all the same, as no frame can
//! be refused before it is whole: its call is then refused.

use std::{io, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::front::{
    accept::client::Session,
    state::{ConnectionContext, Front},
};
use gatepost_base::memory::{Purpose, Reservation};

/// Connection preface of HTTP/2 (RFC 9113, 3.4).
pub(super) const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PADDED: u8 = 8;

/// Cost of a frame that asks and brings nothing.
const IDLE_COST: u32 = 8;
/// Cost of a frame that brings very little.
const TINY_COST: u32 = 1;
/// Length of DATA below which it brings very little.
const TINY_LEN: usize = 64;
/// Credit for a call's head: a client may well send a few PINGs and WINDOW_UPDATEs with each call.
const CALL_CREDIT: u32 = 16 * IDLE_COST;
/// The full bucket: 2,048 idle frames, or 16,384 with a byte in each.
const BUCKET: u32 = 2048 * IDLE_COST;
/// Credit for a second: 100 idle frames.
const CREDIT_PER_SECOND: u32 = 100 * IDLE_COST;
/// DATA frames up to this are not held: they are read at once.
const MAX_UNHELD_FRAME: usize = 32 << 10;

/// Meter of one connection, with what has come of its large frame in the memory budget.
#[derive(Debug)]
pub(crate) struct FrameMeter {
    frames: Frames,
    front: Arc<Front>,
    session: Arc<Session>,
    held: Reservation,
}

impl FrameMeter {
    /// Meter of a connection before its preface.
    pub(crate) fn new(context: &ConnectionContext) -> Self {
        let ConnectionContext { front, session, .. } = context;
        let held = front.budget().empty(Purpose::Review);
        let (front, session) = (Arc::clone(front), Arc::clone(session));
        Self { frames: Frames::new(Instant::now()), front, session, held }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// They are a flood: [`io::ErrorKind::QuotaExceeded`].
    pub(crate) fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.frames.take(bytes) {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many frames that ask nothing"));
        }
        self.hold(self.frames.partial());
        Ok(())
    }

    /// Holds so many bytes, as far as there is room.
    fn hold(&mut self, bytes: usize) {
        let before = self.held.bytes();
        if bytes < before {
            // A frame that is whole is its call's.
            self.held.shrink_to(bytes);
            self.session.client.give_back(before - bytes);
        }
        let missing = bytes - self.held.bytes();
        if missing > 0 {
            let Front { clients, inflight, .. } = &*self.front;
            let client = &self.session.client;
            let share = inflight.share(clients, client, clients.second(std::time::Instant::now()));
            // What finds no room is tried again with the next bytes.
            let _ = inflight.try_grow(&mut self.held, client, share, missing, missing);
        }
    }
}

impl Drop for FrameMeter {
    fn drop(&mut self) {
        self.session.client.give_back(self.held.bytes());
    }
}

/// Follows frames by their heads.
#[derive(Debug)]
struct Frames {
    /// Bytes to come that are no part of a head: the preface, then each frame's payload.
    skip: usize,
    /// Length of the payload that is being read, if it is large DATA; else 0.
    large: usize,
    head: [u8; HEAD],
    /// Bytes of the head so far.
    have: usize,
    bucket: u32,
    filled: Instant,
}

impl Frames {
    fn new(now: Instant) -> Self {
        Self { skip: HTTP2_PREFACE.len(), large: 0, head: [0; HEAD], have: 0, bucket: BUCKET, filled: now }
    }

    /// Bytes so far of a large DATA frame that is not whole.
    fn partial(&self) -> usize {
        if self.skip == 0 { 0 } else { self.large.saturating_sub(self.skip) }
    }

    /// Takes the next bytes; false once they are a flood.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return true;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.have));
            self.head[self.have..][..head.len()].copy_from_slice(head);
            self.have += head.len();
            bytes = rest;
            if self.have == HEAD {
                self.have = 0;
                let [a, b, c, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.large = if kind == DATA && self.skip > MAX_UNHELD_FRAME { self.skip } else { 0 };
                if !self.weigh(kind, flags, self.skip) {
                    return false;
                }
            }
        }
    }

    fn weigh(&mut self, kind: u8, flags: u8, len: usize) -> bool {
        let cost = match kind {
            DATA if len >= TINY_LEN && flags & PADDED == 0 => return self.fill(len / (TINY_LEN / 2)),
            HEADERS => return self.fill(CALL_CREDIT as usize),
            DATA if len > 0 => TINY_COST,
            // h2 bounds them, each belonging to a call.
            RST_STREAM => TINY_COST,
            _ => IDLE_COST,
        };
        if self.bucket < cost {
            let now = Instant::now();
            let passed = now.saturating_duration_since(self.filled).min(Duration::from_secs(3600));
            self.filled = now;
            self.fill((passed.as_millis() * u128::from(CREDIT_PER_SECOND) / 1000) as usize);
        }
        match self.bucket.checked_sub(cost) {
            Some(left) => self.bucket = left,
            None => return false,
        }
        true
    }

    fn fill(&mut self, units: usize) -> bool {
        self.bucket = (self.bucket as usize).saturating_add(units).min(BUCKET as usize) as u32;
        true
    }
}

#[cfg(test)]
mod tests;

//! Meter of a connection's HTTP/2 frames. It ends a flood of frames that request nothing, and reserves memory for a
//! large DATA frame that is incomplete.
//!
//! A PING or SETTINGS frame costs its sender nine bytes and costs us an answer. h2 limits floods of resets and of small
//! DATA frames, but not of PING and SETTINGS. So the meter reads the frame heads before h2 does: HEADERS and larger
//! unpadded DATA frames refill a token bucket; all other frames drain it. The clock is read only if the bucket is
//! empty. (h2's `data_frame_budget` would replace only the cost of small DATA frames here.)
//!
//! h2 delivers a DATA frame when it is complete, and only then its call reserves memory. Large frames are useful, as a
//! large object then arrives in one piece, but the bytes of incomplete frames would be missing in the memory budget, on
//! every connection. So the meter reserves them. If there is no room, the frame is still read, because an incomplete
//! frame cannot be refused; its call is refused later.

use std::{io, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::front::{
    accept::client::Session,
    state::{ConnectionContext, Front},
};
use gatepost_base::memory::{Purpose, Reservation};

/// Connection preface of HTTP/2 (RFC 9113, 3.4).
pub(super) const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame head (RFC 9113, 4.1).
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PADDED: u8 = 8;

/// Cost of a frame that carries no call and no data.
const IDLE_COST: u32 = 8;
/// Cost of a reset or of a tiny DATA frame.
const TINY_COST: u32 = 1;
/// Length below which a DATA frame is tiny.
const TINY_LEN: usize = 64;
/// Credit for a HEADERS frame: a client may send a few PINGs and WINDOW_UPDATEs with each call.
const CALL_CREDIT: u32 = 16 * IDLE_COST;
/// Capacity of the bucket: 2,048 idle frames, or 16,384 DATA frames of one byte.
const BUCKET_CAPACITY: u32 = 2048 * IDLE_COST;
/// Credit per second: 100 idle frames.
const CREDIT_PER_SECOND: u32 = 100 * IDLE_COST;
/// Largest DATA frame for which no memory is reserved here: smaller frames complete in one read.
const MAX_UNHELD_FRAME: usize = 32 << 10;

/// Meter of one connection, with the reservation for its incomplete large frame.
#[derive(Debug)]
pub(crate) struct FrameMeter {
    frames: Frames,
    front: Arc<Front>,
    session: Arc<Session>,
    held: Reservation,
}

impl FrameMeter {
    /// Creates the meter of a connection whose preface has not been read.
    pub(crate) fn new(context: &ConnectionContext) -> Self {
        let ConnectionContext { front, session, .. } = context;
        let held = front.budget().empty(Purpose::Review);
        let (front, session) = (Arc::clone(front), Arc::clone(session));
        Self { frames: Frames::new(Instant::now()), front, session, held }
    }

    /// Counts bytes that were read.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::QuotaExceeded`] if they are a flood.
    pub(crate) fn count_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.frames.count(bytes) {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many frames without calls or data"));
        }
        self.reserve(self.frames.partial());
        Ok(())
    }

    /// Changes the reservation to `bytes`, as far as there is room.
    fn reserve(&mut self, bytes: usize) {
        let before = self.held.bytes();
        if bytes < before {
            // A complete frame is reserved by its call.
            self.held.shrink_to(bytes);
            self.session.client.give_back(before - bytes);
        }
        let missing = bytes - self.held.bytes();
        if missing > 0 {
            let Front { clients, inflight, .. } = &*self.front;
            let client = &self.session.client;
            let share = inflight.share(clients, client, clients.second(std::time::Instant::now()));
            // The next read tries to reserve the rest.
            let _ = inflight.try_grow(&mut self.held, client, share, missing, missing);
        }
    }
}

impl Drop for FrameMeter {
    fn drop(&mut self) {
        self.session.client.give_back(self.held.bytes());
    }
}

/// Parser of frame heads, with the token bucket.
#[derive(Debug)]
struct Frames {
    /// Bytes until the next frame head: the preface, or the rest of a payload.
    skip: usize,
    /// Length of the current payload, if it is a large DATA frame; otherwise 0.
    large: usize,
    head: [u8; HEAD],
    /// Bytes of the frame head that have arrived.
    head_len: usize,
    bucket: u32,
    last_filled: Instant,
}

impl Frames {
    fn new(now: Instant) -> Self {
        Self {
            skip: HTTP2_PREFACE.len(),
            large: 0,
            head: [0; HEAD],
            head_len: 0,
            bucket: BUCKET_CAPACITY,
            last_filled: now,
        }
    }

    /// Returns the received bytes of an incomplete large DATA frame.
    fn partial(&self) -> usize {
        if self.skip == 0 { 0 } else { self.large.saturating_sub(self.skip) }
    }

    /// Counts bytes that were read; returns false if they are a flood.
    fn count(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return true;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head_len));
            self.head[self.head_len..][..head.len()].copy_from_slice(head);
            self.head_len += head.len();
            bytes = rest;
            if self.head_len == HEAD {
                self.head_len = 0;
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
            // h2 bounds the number of resets, each belonging to a call.
            RST_STREAM => TINY_COST,
            _ => IDLE_COST,
        };
        if self.bucket < cost {
            let now = Instant::now();
            let passed = now.saturating_duration_since(self.last_filled).min(Duration::from_secs(3600));
            self.last_filled = now;
            self.fill((passed.as_millis() * u128::from(CREDIT_PER_SECOND) / 1000) as usize);
        }
        match self.bucket.checked_sub(cost) {
            Some(left) => self.bucket = left,
            None => return false,
        }
        true
    }

    fn fill(&mut self, units: usize) -> bool {
        self.bucket = (self.bucket as usize).saturating_add(units).min(BUCKET_CAPACITY as usize) as u32;
        true
    }
}

#[cfg(test)]
mod tests;

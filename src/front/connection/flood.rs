//! Flood: frames by which a caller keeps us busy without asking anything.
//!
//! A PING or a SETTINGS costs its sender nine bytes, and us an answer; h2 cuts floods of resets and of empty DATA, but
//! not of these. So the heads of the frames are read on their way to h2 and metered: what asks or brings something
//! fills a bucket, what does neither empties it. The clock is read only once it is empty.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::partial::{self, Partial};

/// Bytes of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
/// HTTP/2 connection preface (RFC 9113 §3.4).
const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PADDED: u8 = 8;

/// Cost of a frame that asks and brings nothing.
const IDLE_COST: u32 = 8;
/// Cost of a frame that brings very little.
const TINY_COST: u32 = 1;
/// DATA below this brings very little.
const TINY: usize = 64;
/// Credit for a call's head: a client may well send a few PINGs and WINDOW_UPDATEs with each call.
const CALL: u32 = 16 * IDLE_COST;
/// The full bucket: 2,048 idle frames, or 16,384 with a byte in each.
const FULL: u32 = 2048 * IDLE_COST;
/// Credit for a second: 100 idle frames.
const A_SECOND: u32 = 100 * IDLE_COST;

/// A connection whose frames are metered. Reading ends with [`io::ErrorKind::QuotaExceeded`] when it floods.
#[derive(Debug)]
pub(crate) struct Metered<Io> {
    io: Io,
    meter: Meter,
    partial: Partial,
}

impl<Io> Metered<Io> {
    /// A connection before its preface.
    pub(crate) fn new(io: Io, partial: Partial) -> Self {
        Self { io, meter: Meter::new(Instant::now()), partial }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Metered<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if !self.meter.take(&buf.filled()[before..]) {
            let flood = "too many frames that ask nothing";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, flood)));
        }
        let come = self.meter.partial();
        self.partial.has(come);
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Metered<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Follows frames by their heads.
#[derive(Debug)]
struct Meter {
    /// Bytes that are no part of a head: the preface, then each frame's payload.
    skip: usize,
    /// Bytes of the payload of the frame that is being read, where it is large DATA; else 0.
    large: usize,
    head: [u8; HEAD],
    /// Bytes of the head so far.
    have: usize,
    bucket: u32,
    filled: Instant,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { skip: PREFACE, large: 0, head: [0; HEAD], have: 0, bucket: FULL, filled: now }
    }

    /// Bytes so far of a large frame that is not whole.
    fn partial(&self) -> usize {
        if self.skip == 0 { 0 } else { self.large.saturating_sub(self.skip) }
    }

    /// The next bytes; `false` once they are a flood.
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
                self.large = if kind == DATA && self.skip > partial::SMALL { self.skip } else { 0 };
                if !self.weigh(kind, flags, self.skip) {
                    return false;
                }
            }
        }
    }

    fn weigh(&mut self, kind: u8, flags: u8, len: usize) -> bool {
        let cost = match kind {
            DATA if len >= TINY && flags & PADDED == 0 => return self.fill(len / (TINY / 2)),
            HEADERS => return self.fill(CALL as usize),
            DATA if len > 0 => TINY_COST,
            // h2 bounds them, each belonging to a call.
            RST_STREAM => TINY_COST,
            _ => IDLE_COST,
        };
        if self.bucket < cost {
            let now = Instant::now();
            let passed = now.saturating_duration_since(self.filled).min(Duration::from_secs(3600));
            self.filled = now;
            self.fill((passed.as_millis() * u128::from(A_SECOND) / 1000) as usize);
        }
        match self.bucket.checked_sub(cost) {
            Some(left) => self.bucket = left,
            None => return false,
        }
        true
    }

    fn fill(&mut self, units: usize) -> bool {
        self.bucket = (self.bucket as usize).saturating_add(units).min(FULL as usize) as u32;
        true
    }
}

#[cfg(test)]
#[path = "flood/tests.rs"]
mod tests;

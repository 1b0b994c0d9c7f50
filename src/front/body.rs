//! Body of one review, over gRPC or plain HTTP, read within the size limit, the memory budget and the deadline.
//!
//! Memory is reserved for bytes that arrived, not for the declared length, because declaring a length costs a caller
//! nothing. Flow-control credit is returned only for bytes that have a reservation.
//!
//! A caller that sends its body slowly occupies memory that other callers need. So after [`ARRIVAL_GRACE`] an
//! incomplete review must have an average rate of at least [`MIN_RATE`]. Any network between an apiserver and its
//! webhooks is much faster, and the grace is longer than a busy machine delays a caller's writes.
//!
//! A body is collected without copying: each payload is kept in the buffer into which it was read. A kept payload keeps
//! its whole read buffer alive, and other calls may own the rest of that buffer. A read buffer of h2 or hyper has 8
//! KiB, or the size of the frame if that is larger. So payloads below half of 8 KiB are joined instead, and a caller
//! that sends many small frames cannot pin many buffers.

use std::{
    error::Error,
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http_body::Body as _;
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::time::Sleep;

use super::{inflight::InflightGuard, refusal::Refusal};
use crate::telemetry::Metrics;
use gatepost_api::{Deadline, Rope};
use gatepost_wire::inbound::FRAME_HEAD;

/// Time after the head in which a review may arrive at any rate.
const ARRIVAL_GRACE: Duration = Duration::from_secs(5);
/// Minimum bytes a second after the grace, on average since the head.
const MIN_RATE: usize = 16 << 10;
/// Interval at which the rate is checked.
const PACE_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the read buffers of h2 (through tokio-util's framing) and hyper, unless a frame needs more.
const READ_BUFFER: usize = 8 << 10;
/// Length below which payloads are joined, so that a kept payload pins at most twice its length.
const JOIN_THRESHOLD: usize = READ_BUFFER / 2;

/// Body that is being received, by version of HTTP.
#[derive(Debug)]
pub(super) enum Body {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Body {
    /// Returns the next payload; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>> {
        match self {
            Self::Http1(body) => loop {
                let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else { return Poll::Ready(None) };
                match frame.map(hyper::body::Frame::into_data) {
                    Ok(Ok(data)) => return Poll::Ready(Some(Ok(data))),
                    // Trailers are ignored.
                    Ok(Err(_)) => {}
                    Err(error) => return Poll::Ready(Some(Err(body_error(&error)))),
                }
            },
            // The only errors here are the end of the stream or of the connection.
            Self::Http2(body) => body.poll_data(cx).map(|data| Some(data?.map_err(|_| Refusal::Cancelled))),
        }
    }

    /// Returns true if it is known that no more bytes follow.
    fn is_over(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn release(&mut self, len: usize) {
        if let Self::Http2(body) = self {
            // Fails only if the stream is gone, which the next read reports.
            let _ = body.flow_control().release_capacity(len);
        }
    }
}

/// Returns `BrokenBody` if the body is malformed, `Cancelled` if the caller is gone.
fn body_error(error: &hyper::Error) -> Refusal {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match cause {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => Refusal::BrokenBody,
        _ => Refusal::Cancelled,
    }
}

/// Reader of one body.
#[derive(Debug)]
pub(super) struct BodyReader<'a, 'b> {
    body: Body,
    inflight: &'a mut InflightGuard<'b>,
    deadline: Instant,
    timer: Pin<&'a mut Sleep>,
    limit: usize,
    declared: Option<usize>,
    received: usize,
}

/// Returns the only timer of the request, to be pinned. tokio registers it only if the body is not available
/// immediately.
pub(super) fn timer(arrived: Instant, deadline: Deadline) -> Sleep {
    tokio::time::sleep_until((arrived + ARRIVAL_GRACE).min(deadline.instant()).into())
}

impl<'a, 'b> BodyReader<'a, 'b> {
    /// Creates the reader. Refuses a `declared` length that exceeds `limit` or the memory of all reviews.
    pub(super) fn begin(
        body: Body,
        declared: Option<usize>,
        inflight: &'a mut InflightGuard<'b>,
        deadline: Deadline,
        timer: Pin<&'a mut Sleep>,
        limit: usize,
    ) -> Result<Self, Refusal> {
        match declared {
            Some(0) => return Err(Refusal::NoBody),
            Some(declared) if declared > limit => return Err(Refusal::TooLarge { declared, limit }),
            _ => inflight.check_size(declared.unwrap_or(0))?,
        }
        Ok(Self { body, inflight, deadline: deadline.instant(), timer, limit, declared, received: 0 })
    }

    /// Reads the body into one buffer: a single payload is not copied, several are joined.
    pub(super) async fn contiguous(&mut self, metrics: &Metrics) -> Result<Bytes, Refusal> {
        let first = self.next_within_limit().await?.ok_or(Refusal::NoBody)?;
        if self.is_over() {
            self.reserve_and_release(first.len(), first.len())?;
            return Ok(first);
        }
        let mut joined = Vec::new();
        let mut next = Some(first);
        while let Some(payload) = next {
            metrics.copied(payload.len());
            self.grow(&mut joined, payload.len())?;
            joined.extend_from_slice(&payload);
            self.body.release(payload.len());
            next = self.next_within_limit().await?;
        }
        Ok(joined.into())
    }

    /// Reads the body as the pieces in which it arrived.
    pub(super) async fn pieces(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut pieces = BodyPieces::default();
        while let Some(payload) = self.next_within_limit().await? {
            let len = payload.len();
            pieces.push(payload, self.is_over(), metrics);
            self.reserve_and_release(pieces.held(), len)?;
        }
        if pieces.is_empty() { Err(Refusal::NoBody) } else { Ok(pieces.into_rope()) }
    }

    /// Reads one gRPC message with its frame head. [`BodyPieces`] decides which payloads are kept and which are joined;
    /// large payloads are not copied.
    pub(super) async fn message(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut pieces = BodyPieces::default();
        // Length of the message with its frame head; `None` until the frame head has arrived.
        let mut expected = None;
        while let Some(payload) = self.next().await? {
            let (len, last) = (payload.len(), self.is_over());
            pieces.push_framed(payload, last, metrics);
            if expected.is_none()
                && let Some(head) = pieces.frame_head()
            {
                let (declared, limit) = (message_length(*head)?, self.limit);
                if declared > limit {
                    return Err(Refusal::TooLarge { declared, limit });
                }
                self.inflight.check_size(FRAME_HEAD + declared)?;
                expected = Some(FRAME_HEAD + declared);
            }
            if let Some(expected) = expected.filter(|expected| self.received > *expected) {
                return Err(Refusal::MoreThanOne { declared: expected - FRAME_HEAD });
            }
            self.reserve_and_release(pieces.held(), len)?;
            if last {
                break;
            }
        }
        let received = self.received;
        match expected {
            None => Err(Refusal::NoMessage { received }),
            Some(expected) if received < expected => {
                Err(Refusal::Incomplete { received: received - FRAME_HEAD, declared: expected - FRAME_HEAD })
            }
            Some(_) => Ok(pieces.into_rope()),
        }
    }

    fn is_over(&self) -> bool {
        self.body.is_over() || self.declared == Some(self.received)
    }

    /// Grows the buffer. Its capacity is at most four times the received bytes; twice, if no length is declared. While
    /// the bytes move from the old buffer to the new one, both are reserved.
    fn grow(&mut self, joined: &mut Vec<u8>, more: usize) -> Result<(), Refusal> {
        let needed = joined.len() + more;
        if needed > joined.capacity() {
            let room = self.declared.unwrap_or(2 * needed).min(4 * needed).max(needed);
            self.inflight.reserve(joined.capacity() + room)?;
            joined.reserve_exact(room - joined.len());
            self.inflight.shrink_to(joined.capacity());
        }
        Ok(())
    }

    /// Reserves memory up to `held` bytes in total and returns flow-control credit for the `new` ones.
    fn reserve_and_release(&mut self, held: usize, new: usize) -> Result<(), Refusal> {
        self.inflight.reserve(held)?;
        self.body.release(new);
        Ok(())
    }

    /// Returns the next payload, and enforces the limit if no length is declared.
    async fn next_within_limit(&mut self) -> Result<Option<Bytes>, Refusal> {
        let payload = self.next().await?;
        if self.declared.is_none() && self.received > self.limit {
            return Err(Refusal::TooLong { limit: self.limit });
        }
        Ok(payload)
    }

    /// Returns the next non-empty payload. Refuses a body that arrives too slowly.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let payload = poll_fn(|cx| match self.body.poll_next(cx) {
                Poll::Ready(payload) => Poll::Ready(payload.transpose()),
                Poll::Pending => self.poll_pace(cx).map(Err),
            });
            let Some(payload) = payload.await? else { return Ok(None) };
            self.received += payload.len();
            if !payload.is_empty() {
                return Ok(Some(payload));
            }
        }
    }

    /// Returns why the body is refused if it arrives too slowly; pending otherwise.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        let received = self.received;
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = self.timer.deadline().into_std();
            let within = now - self.inflight.arrived;
            if now >= self.deadline {
                return Poll::Ready(Refusal::Deadline { within, received });
            }
            if (received as u128) * 1000 < MIN_RATE as u128 * within.as_millis() {
                return Poll::Ready(Refusal::Stalled { within, received });
            }
            self.timer.as_mut().reset((now + PACE_INTERVAL).min(self.deadline).into());
        }
    }
}

/// Returns the length of a gRPC message from its frame head: a flag byte, then the length in four bytes, big-endian.
pub(super) fn message_length([flag, a, b, c, d]: [u8; FRAME_HEAD]) -> Result<usize, Refusal> {
    match flag {
        0 => Ok(u32::from_be_bytes([a, b, c, d]) as usize),
        1 => Err(Refusal::Compressed),
        other => Err(Refusal::Flag(other)),
    }
}

/// Pieces of a body that is being received.
#[derive(Debug, Default)]
struct BodyPieces {
    /// Complete pieces, in order.
    chunks: SmallVec<[Bytes; 4]>,
    /// Small payloads that follow `chunks`.
    joined: BytesMut,
    /// Bytes of the buffers that `chunks` keeps alive.
    pinned: usize,
}

impl BodyPieces {
    /// Returns true before the first byte.
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.joined.is_empty()
    }

    /// Returns the bytes of memory in use: whole read buffers, and unused capacity of `joined`.
    fn held(&self) -> usize {
        self.pinned + self.joined.capacity()
    }

    /// Appends the next payload. The last payload of a body is kept at any size, since every body ends in a remainder.
    fn push(&mut self, payload: Bytes, last: bool, metrics: &Metrics) {
        if payload.is_empty() {
            return;
        }
        if payload.len() >= JOIN_THRESHOLD || (last && self.joined.is_empty()) {
            self.keep(payload);
        } else {
            metrics.copied(payload.len());
            self.joined.extend_from_slice(&payload);
        }
    }

    /// Appends the next payload without copying it.
    fn keep(&mut self, payload: Bytes) {
        self.flush();
        self.pinned += payload.len().max(READ_BUFFER);
        self.chunks.push(payload);
    }

    /// Appends the next payload of a gRPC message. A split frame head is joined and becomes the first piece.
    fn push_framed(&mut self, mut payload: Bytes, last: bool, metrics: &Metrics) {
        if self.is_empty() && payload.len() >= FRAME_HEAD {
            return self.keep(payload);
        }
        if self.chunks.is_empty() {
            let missing = (FRAME_HEAD - self.joined.len()).min(payload.len());
            self.joined.extend_from_slice(&payload.split_to(missing));
            if self.joined.len() == FRAME_HEAD {
                self.flush();
            }
        }
        self.push(payload, last, metrics);
    }

    /// Returns the frame head of a gRPC message once it has arrived.
    fn frame_head(&self) -> Option<&[u8; FRAME_HEAD]> {
        self.chunks.first()?.first_chunk()
    }

    /// Returns the pieces as one rope.
    fn into_rope(mut self) -> Rope {
        self.flush();
        match self.chunks.len() {
            1 => Rope::new([mem::take(&mut self.chunks[0])]),
            _ => Rope::new(self.chunks.into_vec()),
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            // `joined` keeps the buffer as long as it has unused capacity.
            self.pinned += self.joined.len();
            self.chunks.push(self.joined.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests;

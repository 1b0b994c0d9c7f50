//! Body: the bytes of one review, over gRPC or plain HTTP, read within the limit, the memory budget and the time.
//!
//! Bytes are reserved as they come, and not as they are announced: announcing costs a caller nothing. Flow-control
//! credit is returned only for bytes that have their place in the memory budget.
//!
//! A caller that announces much and sends little holds its place in the memory budget at the cost of the others. So
//! after [`ARRIVAL_GRACE`] a review that is not whole must have come with [`MIN_RATE`] on average. That is far below
//! what any network brings on which an apiserver waits for its webhooks, and the grace is longer than what a busy
//! machine keeps a caller from writing.
//!
//! A body is collected as it arrives without copying it: each payload is kept as the buffer it was read into. A
//! retained payload keeps its whole read buffer alive, of which others may have had the rest: in h2 and hyper 8 KiB, or
//! as much as the frame needs. So payloads below half of that are joined instead: a caller that sends many small frames
//! among others must not pin many buffers.

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

/// Time for a review to arrive, however slowly it comes.
const ARRIVAL_GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that are then expected, on average since the head.
const MIN_RATE: usize = 16 << 10;
/// Interval at which the pace is checked.
const PACE_INTERVAL: Duration = Duration::from_secs(1);
/// The read buffers of h2 (through tokio-util's framing) and hyper, unless a frame needs more.
const READ_BUFFER: usize = 8 << 10;
/// Length below which payloads are joined: what is kept pins at most twice its length.
const JOINED_BELOW: usize = READ_BUFFER / 2;

/// A body on its way, by either version of HTTP.
#[derive(Debug)]
pub(super) enum Body {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Body {
    /// The next payload; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>> {
        match self {
            Self::Http1(body) => loop {
                let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else { return Poll::Ready(None) };
                match frame.map(hyper::body::Frame::into_data) {
                    Ok(Ok(data)) => return Poll::Ready(Some(Ok(data))),
                    // Trailers are ignored.
                    Ok(Err(_)) => {}
                    Err(error) => return Poll::Ready(Some(Err(broken(&error)))),
                }
            },
            // The only errors here are the stream's or connection's end.
            Self::Http2(body) => body.poll_data(cx).map(|data| Some(data?.map_err(|_| Refusal::Cancelled))),
        }
    }

    /// True if it is known that nothing follows.
    fn is_over(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn release(&mut self, len: usize) {
        if let Self::Http2(body) = self {
            // Fails only when the stream is gone, which the next read reports.
            let _ = body.flow_control().release_capacity(len);
        }
    }
}

/// Refusal of a body that broke off, so that its caller is gone, or that cannot be read.
fn broken(error: &hyper::Error) -> Refusal {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match cause {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => Refusal::BrokenBody,
        _ => Refusal::Cancelled,
    }
}

/// A body being read.
#[derive(Debug)]
pub(super) struct BodyReader<'a, 'b> {
    body: Body,
    entered: &'a mut InflightGuard<'b>,
    deadline: Instant,
    timer: Pin<&'a mut Sleep>,
    limit: usize,
    declared: Option<usize>,
    received: usize,
}

/// The request's only timer, to be pinned; tokio registers it only when the body is not already there.
pub(super) fn timer(arrived: Instant, deadline: Deadline) -> Sleep {
    tokio::time::sleep_until((arrived + ARRIVAL_GRACE).min(deadline.instant()).into())
}

impl<'a, 'b> BodyReader<'a, 'b> {
    /// Begins, before any of it is read; refused where `declared` is more than the limit, or than all memory.
    pub(super) fn begin(
        body: Body,
        declared: Option<usize>,
        entered: &'a mut InflightGuard<'b>,
        deadline: Deadline,
        timer: Pin<&'a mut Sleep>,
        limit: usize,
    ) -> Result<Self, Refusal> {
        match declared {
            Some(0) => return Err(Refusal::NoBody),
            Some(declared) if declared > limit => return Err(Refusal::TooLarge { declared, limit }),
            _ => entered.check_size(declared.unwrap_or(0))?,
        }
        Ok(Self { body, entered, deadline: deadline.instant(), timer, limit, declared, received: 0 })
    }

    /// The body in one buffer: as it came if it came as one payload, else joined.
    pub(super) async fn contiguous(&mut self, metrics: &Metrics) -> Result<Bytes, Refusal> {
        let first = self.next_within_limit().await?.ok_or(Refusal::NoBody)?;
        if self.is_over() {
            self.place(first.len(), first.len())?;
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

    /// The body as the pieces it arrived in.
    pub(super) async fn pieces(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut pieces = BodyPieces::default();
        while let Some(payload) = self.next_within_limit().await? {
            let len = payload.len();
            pieces.push(payload, self.is_over(), metrics);
            self.place(pieces.held(), len)?;
        }
        if pieces.is_empty() { Err(Refusal::NoBody) } else { Ok(pieces.into_rope()) }
    }

    /// One gRPC message, with the head of its frame. See [`BodyPieces`] for what is kept and what is joined: a
    /// well-behaved caller's bytes are never copied.
    pub(super) async fn message(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut message = MessageBuilder::default();
        while let Some(payload) = self.next().await? {
            let (len, last) = (payload.len(), self.is_over());
            message.push(payload, last, metrics);
            if message.expected.is_none() {
                message.read_frame_head(self.limit)?;
                self.entered.check_size(message.expected.unwrap_or(0))?;
            }
            if let Some(expected) = message.expected.filter(|expected| self.received > *expected) {
                return Err(Refusal::MoreThanOne { declared: expected - FRAME_HEAD });
            }
            self.place(message.pieces.held(), len)?;
            if last {
                break;
            }
        }
        let received = self.received;
        match message.expected {
            None => Err(Refusal::NoMessage { received }),
            Some(expected) if received < expected => {
                Err(Refusal::Incomplete { received: received - FRAME_HEAD, declared: expected - FRAME_HEAD })
            }
            Some(_) => Ok(message.pieces.into_rope()),
        }
    }

    fn is_over(&self) -> bool {
        self.body.is_over() || self.declared == Some(self.received)
    }

    /// Makes room for more bytes. The buffer holds at most four times what has come; twice, if no length is declared.
    /// While the bytes move from one buffer to the next, both are counted.
    fn grow(&mut self, joined: &mut Vec<u8>, more: usize) -> Result<(), Refusal> {
        let needed = joined.len() + more;
        if needed > joined.capacity() {
            let room = self.declared.unwrap_or(2 * needed).min(4 * needed).max(needed);
            self.entered.reserve(joined.capacity() + room)?;
            joined.reserve_exact(room - joined.len());
            self.entered.shrink_to(joined.capacity());
        }
        Ok(())
    }

    /// Reserves room for what is held by now, and returns credit for the `new` bytes of it.
    fn place(&mut self, held: usize, new: usize) -> Result<(), Refusal> {
        self.entered.reserve(held)?;
        self.body.release(new);
        Ok(())
    }

    /// The next payload of a body whose length may be undeclared.
    async fn next_within_limit(&mut self) -> Result<Option<Bytes>, Refusal> {
        let payload = self.next().await?;
        if self.declared.is_none() && self.received > self.limit {
            return Err(Refusal::TooLong { limit: self.limit });
        }
        Ok(payload)
    }

    /// The next payload that is not empty; refused when the body comes too slowly.
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

    /// Pending while the body comes fast enough; else why it is refused.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        let received = self.received;
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = self.timer.deadline().into_std();
            let within = now - self.entered.arrived;
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

/// A gRPC message in the making.
#[derive(Debug, Default)]
struct MessageBuilder {
    pieces: BodyPieces,
    /// Bytes there will be, frame head included; `None` until the frame head is there.
    expected: Option<usize>,
}

impl MessageBuilder {
    fn push(&mut self, mut payload: Bytes, last: bool, metrics: &Metrics) {
        if self.pieces.is_empty() && payload.len() >= FRAME_HEAD {
            return self.pieces.keep(payload);
        }
        if self.pieces.first().is_none() {
            // A frame head in pieces is put together once, here.
            self.pieces.complete_head(&mut payload, FRAME_HEAD);
        }
        self.pieces.push(payload, last, metrics);
    }

    /// Reads the frame head once its five bytes are there.
    fn read_frame_head(&mut self, limit: usize) -> Result<(), Refusal> {
        let Some(head) = self.pieces.first().and_then(|first| first.first_chunk::<FRAME_HEAD>()) else {
            return Ok(());
        };
        let declared = message_length(*head)?;
        if declared > limit {
            return Err(Refusal::TooLarge { declared, limit });
        }
        self.expected = Some(FRAME_HEAD + declared);
        Ok(())
    }
}

/// Length of a gRPC message by the head of its frame: one flag byte and the length as four bytes, big-endian.
pub(super) fn message_length([flag, a, b, c, d]: [u8; FRAME_HEAD]) -> Result<usize, Refusal> {
    match flag {
        0 => Ok(u32::from_be_bytes([a, b, c, d]) as usize),
        1 => Err(Refusal::Compressed),
        other => Err(Refusal::Flag(other)),
    }
}

/// A body in the making.
#[derive(Debug, Default)]
struct BodyPieces {
    /// The payloads so far, but for `joined`.
    chunks: SmallVec<[Bytes; 4]>,
    /// Small payloads that follow `chunks`.
    joined: BytesMut,
    /// Bytes of the buffers that `chunks` keep alive.
    pinned: usize,
}

impl BodyPieces {
    /// True before the first byte.
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.joined.is_empty()
    }

    /// Bytes of memory it holds: the whole read buffers, and room that is not yet filled.
    fn held(&self) -> usize {
        self.pinned + self.joined.capacity()
    }

    /// The first piece that will not grow any more.
    fn first(&self) -> Option<&Bytes> {
        self.chunks.first()
    }

    /// Takes the next payload. The last of a body is kept at any size, since every body ends in a remainder.
    fn push(&mut self, payload: Bytes, last: bool, metrics: &Metrics) {
        if payload.is_empty() {
            return;
        }
        if payload.len() >= JOINED_BELOW || (last && self.joined.is_empty()) {
            self.keep(payload);
        } else {
            metrics.copied(payload.len());
            self.joined.extend_from_slice(&payload);
        }
    }

    /// Takes the next payload as it is.
    fn keep(&mut self, payload: Bytes) {
        self.flush();
        self.pinned += payload.len().max(READ_BUFFER);
        self.chunks.push(payload);
    }

    /// Moves bytes of `payload` into the first piece until that holds `head` of them; no other piece may be there yet.
    fn complete_head(&mut self, payload: &mut Bytes, head: usize) {
        let missing = (head - self.joined.len()).min(payload.len());
        self.joined.extend_from_slice(&payload.split_to(missing));
        if self.joined.len() == head {
            self.flush();
        }
    }

    /// The pieces as one rope.
    fn into_rope(mut self) -> Rope {
        self.flush();
        match self.chunks.len() {
            1 => Rope::new([mem::take(&mut self.chunks[0])]),
            _ => Rope::new(self.chunks.into_vec()),
        }
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            // Its buffer stays ours as long as there is room in it.
            self.pinned += self.joined.len();
            self.chunks.push(self.joined.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests;

//! Body: the bytes of a review over plain HTTP, read within the limit and the memory budget.
//!
//! Flow-control credit is returned only for bytes that have their place in the memory budget.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http_body::Body as _;
use hyper::body::Incoming;

use crate::{
    front::{inflight::InflightGuard, pieces::BodyPieces, progress::Progress, refusal::Refusal},
    model::Rope,
    telemetry::Metrics,
};

/// A body on its way, by either version of HTTP.
#[derive(Debug)]
pub(crate) enum Body {
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

    /// Is it known that nothing follows?
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

/// A body that breaks off has lost its caller; one that cannot be read still has one.
fn broken(error: &hyper::Error) -> Refusal {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match cause {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => Refusal::BrokenBody,
        _ => Refusal::Cancelled,
    }
}

/// A body being read.
#[derive(Debug)]
pub(crate) struct BodyReader<'a, 'b> {
    body: Body,
    entered: &'a mut InflightGuard<'b>,
    progress: Progress<'a>,
    limit: usize,
    declared: Option<usize>,
    received: usize,
}

impl<'a, 'b> BodyReader<'a, 'b> {
    /// Begins, before any of it is read. It gets its room as it comes, and not by what is announced: announcing costs a
    /// caller nothing.
    pub(crate) fn begin(
        body: Body,
        declared: Option<usize>,
        entered: &'a mut InflightGuard<'b>,
        progress: Progress<'a>,
        limit: usize,
    ) -> Result<Self, Refusal> {
        match declared {
            Some(0) => Err(Refusal::NoBody),
            Some(declared) if declared > limit => Err(Refusal::TooLarge { declared, limit }),
            _ => entered.could_hold(declared.unwrap_or(0)).map(|()| Self {
                body,
                entered,
                progress,
                limit,
                declared,
                received: 0,
            }),
        }
    }

    /// The body in one buffer: as it came where it came as one payload, else joined.
    pub(crate) async fn contiguous(&mut self, metrics: &Metrics) -> Result<Bytes, Refusal> {
        let first = self.next().await?.ok_or(Refusal::NoBody)?;
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
            next = self.next().await?;
        }
        Ok(joined.into())
    }

    /// The body as the pieces it arrived in.
    pub(crate) async fn pieces(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut pieces = BodyPieces::default();
        while let Some(payload) = self.next().await? {
            let len = payload.len();
            pieces.push(payload, self.is_over(), metrics);
            self.place(pieces.held(), len)?;
        }
        if pieces.is_empty() { Err(Refusal::NoBody) } else { Ok(pieces.into_rope()) }
    }

    fn is_over(&self) -> bool {
        self.body.is_over() || self.declared == Some(self.received)
    }

    /// Room for so many bytes more, in one buffer that holds at most four times what has come, or twice, where nobody
    /// has said how much will. While the bytes move from one buffer to the next, both are counted.
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

    /// A place for what is held by now, and credit for the `new` bytes of it.
    fn place(&mut self, held: usize, new: usize) -> Result<(), Refusal> {
        self.entered.reserve(held)?;
        self.body.release(new);
        Ok(())
    }

    /// The next payload that is not empty, within the limit.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let body = &mut self.body;
            let payload = self.progress.next(self.received, |cx| body.poll_next(cx)).await?;
            let Some(payload) = payload.transpose()? else { return Ok(None) };
            self.received += payload.len();
            if self.declared.is_none() && self.received > self.limit {
                return Err(Refusal::TooLong { limit: self.limit });
            }
            if !payload.is_empty() {
                return Ok(Some(payload));
            }
        }
    }
}

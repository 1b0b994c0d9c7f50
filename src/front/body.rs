//! Body: the bytes of a review over plain HTTP, read within the limit and the memory budget.
//!
//! Flow-control credit is returned only for bytes that have their place in the memory budget.

use std::{error::Error, future::poll_fn, io, pin::Pin};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http_body::Body as _;
use hyper::body::Incoming;

use super::{inflight::Entered, pieces::Pieces, refusal::Refusal};
use crate::{model::Rope, telemetry::Metrics};

/// A body on its way, by either version of HTTP.
#[derive(Debug)]
pub(super) enum Body {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Body {
    /// The next payload; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Refusal>> {
        match self {
            Self::Http1(body) => loop {
                let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
                match frame.map(hyper::body::Frame::into_data) {
                    Ok(Ok(data)) => return Some(Ok(data)),
                    // Trailers tell us nothing.
                    Ok(Err(_)) => {}
                    Err(error) => return Some(Err(broken(&error))),
                }
            },
            // The only errors here are the stream's or connection's end.
            Self::Http2(body) => Some(poll_fn(|cx| body.poll_data(cx)).await?.map_err(|_| Refusal::Cancelled)),
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
pub(super) struct Arriving<'a, 'b> {
    body: Body,
    entered: &'a mut Entered<'b>,
    limit: usize,
    declared: Option<usize>,
    received: usize,
}

impl<'a, 'b> Arriving<'a, 'b> {
    /// Makes room for a body before any of it is read. One of undeclared length gets its room as it comes.
    pub(super) fn begin(
        body: Body,
        declared: Option<usize>,
        entered: &'a mut Entered<'b>,
        limit: usize,
    ) -> Result<Self, Refusal> {
        match declared {
            Some(0) => return Err(Refusal::NoBody),
            Some(declared) if declared > limit => return Err(Refusal::TooLarge { declared, limit }),
            Some(declared) if !entered.reserve(declared) => return Err(Refusal::Overloaded { declared }),
            _ => Ok(Self { body, entered, limit, declared, received: 0 }),
        }
    }

    /// Bytes so far.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// The body in one buffer: as it came where it came as one payload, else joined, each byte copied once.
    pub(super) async fn contiguous(&mut self, metrics: &Metrics) -> Result<Bytes, Refusal> {
        let first = self.next().await?.ok_or(Refusal::NoBody)?;
        if self.is_over() {
            return Ok(first);
        }
        let mut joined = BytesMut::with_capacity(self.declared.unwrap_or(first.len() * 2));
        let mut next = Some(first);
        while let Some(payload) = next {
            metrics.copied(payload.len());
            joined.extend_from_slice(&payload);
            next = self.next().await?;
        }
        Ok(joined.freeze())
    }

    /// The body as the pieces it arrived in.
    pub(super) async fn pieces(&mut self, metrics: &Metrics) -> Result<Rope, Refusal> {
        let mut pieces = Pieces::default();
        while let Some(payload) = self.next().await? {
            pieces.push(payload, self.is_over(), metrics);
        }
        if pieces.is_empty() { Err(Refusal::NoBody) } else { Ok(pieces.into_rope()) }
    }

    fn is_over(&self) -> bool {
        self.body.is_over() || self.declared == Some(self.received)
    }

    /// The next payload that is not empty, within the limit, its place reserved.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        while let Some(payload) = self.body.next().await.transpose()? {
            let len = payload.len();
            self.received += len;
            if self.declared.is_none() {
                if self.received > self.limit {
                    return Err(Refusal::TooLong { limit: self.limit });
                }
                if !self.entered.reserve(len) {
                    return Err(Refusal::Overloaded { declared: self.received });
                }
            }
            self.body.release(len);
            if len > 0 {
                return Ok(Some(payload));
            }
        }
        Ok(None)
    }
}

//! Inbound: the body of a cold call, read as it comes and handed to tonic.
//!
//! It is read beside the service and not by it: what a service does not read would stay in the connection's window, out
//! of sight of every limit. So little may be sent at all that it can wait here.

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http::Request;
use http_body::{Body, Frame};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::front::refusal::Refusal;

/// Bytes that an empty frame counts as.
const LEAST: usize = 64;

/// The body as tonic reads it.
#[derive(Debug)]
pub(crate) struct Inbound(UnboundedReceiver<Result<Frame<Bytes>, h2::Error>>);

/// The body as it comes.
#[derive(Debug)]
pub(crate) struct MessageReader {
    body: RecvStream,
    to: UnboundedSender<Result<Frame<Bytes>, h2::Error>>,
}

/// The request for tonic, and the body to be fed into it.
pub(crate) fn split(request: Request<RecvStream>) -> (Request<Inbound>, MessageReader) {
    let (to, from) = unbounded_channel();
    let (parts, body) = request.into_parts();
    (Request::from_parts(parts, Inbound(from)), MessageReader { body, to })
}

impl MessageReader {
    /// Reads all of it; ends only when it is more than `limit`.
    pub(crate) async fn feed(self, limit: usize) -> Refusal {
        let Self { mut body, to } = self;
        let mut sent = 0;
        while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
            sent += data.as_ref().map_or(0, Bytes::len).max(LEAST);
            if sent > limit {
                return Refusal::ColdTooLong { limit };
            }
            if let Ok(data) = &data {
                let _ = body.flow_control().release_capacity(data.len());
            }
            // Copied, as it would keep alive all that was read with it. An error says that nobody reads any more.
            let _ = to.send(data.map(|data| Frame::data(Bytes::copy_from_slice(&data))));
        }
        if let Ok(Some(trailers)) = poll_fn(|cx| body.poll_trailers(cx)).await {
            let _ = to.send(Ok(Frame::trailers(trailers)));
        }
        drop(to);
        pending().await
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)))
    }
}
